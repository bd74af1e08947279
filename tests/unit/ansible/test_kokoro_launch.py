"""The launcher of role ``kokoro``: when it does not start, and which requests it refuses."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from tests.processes import completed
from tests.scenario_programs import module_at

PROGRAM = Path(__file__).resolve().parents[3] / "roles/kokoro/programs/launch.py"
TORCH = "class cuda:\n    def is_available():\n        return False\n"


launch = module_at(PROGRAM, beside=True)


def start(folder: Path, port: int, *words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Start it where torch is a stand-in that finds no card, and where there is no server."""
    (folder / "torch.py").write_text(TORCH, encoding="utf-8")
    limits = ["--max-input", "9", "--start-timeout", str(timeout_s)]
    command = [sys.executable, str(PROGRAM), "--host", "127.0.0.1", "--port", str(port), *limits, *words]
    return completed(command, env={"PYTHONPATH": str(folder)}, timeout_s=60)


def test_a_port_that_is_taken_ends_it_for_good(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = start(tmp_path, port)
    assert done.returncode == 78
    assert done.stderr == f"Unable to start Kokoro: port {port} of 127.0.0.1 cannot be had (Address already in use).\n"


def test_without_the_card_that_is_asked_for_it_ends_for_good(tmp_path: Path) -> None:
    done = start(tmp_path, 0, "--cuda")
    assert done.returncode == 78
    assert "torch finds no card of nvidia" in done.stderr


UVICORN = """
class Config:
    def __init__(self, application, http=None, **words):
        {config}


class Server:
    started = {started}

    def __init__(self, config):
        pass

    def run(self, sockets):
{run}
"""


def uvicorn(config: str = "pass", run: str = "pass", *, started: bool = True) -> str:
    """Return a stand-in for uvicorn that does this."""
    return UVICORN.format(config=config, run=indent(run, " " * 8), started=started)


def has_server(folder: Path, uvicorn: str, application: str = "app = None\n") -> None:
    """Put a stand-in for uvicorn there, and an application for it."""
    (folder / "uvicorn/protocols/http").mkdir(parents=True)
    (folder / "uvicorn/__init__.py").write_text(uvicorn, encoding="utf-8")
    (folder / "uvicorn/protocols/http/h11_impl.py").write_text("class H11Protocol:\n    pass\n", encoding="utf-8")
    (folder / "api/src").mkdir(parents=True)
    (folder / "api/src/main.py").write_text(application, encoding="utf-8")


@pytest.mark.parametrize(("started", "code"), [(True, 0), (False, 1)])
def test_a_start_that_failed_is_a_failure(tmp_path: Path, started: bool, code: int) -> None:
    """Plays uvicorn 0.34: ``Server.run`` returns all the same when an application's start fails."""
    has_server(tmp_path, uvicorn(started=started))
    done = start(tmp_path, 0)
    assert done.returncode == code
    assert ("could not be loaded" in done.stderr) == bool(code)


SLOW = uvicorn(
    "Config.application = application",
    """
import asyncio, threading, time

async def send(message):
    pass

asyncio.run(Config.application({"type": "lifespan"}, None, send))
while any(isinstance(one, threading.Timer) and not one.finished.is_set() for one in threading.enumerate()):
    time.sleep(0.01)
""",
)
STARTS = "async def app(scope, receive, send):\n    await send({'type': 'lifespan.startup.%s'})\n"


@pytest.mark.parametrize(
    "application",
    [STARTS % "nothing", "import time\ntime.sleep(30)\n", "import time\ndef app(*_):\n    time.sleep(30)\n"],
    ids=["waits", "is imported for ever", "loads for ever"],
)
def test_one_that_is_not_warm_in_time_ends_with_its_own_words(tmp_path: Path, application: str) -> None:
    has_server(tmp_path, SLOW, application)
    done = start(tmp_path, 0, timeout_s=0.3)
    assert done.returncode == 1
    assert done.stderr == "Unable to start Kokoro: it was not loaded and warm within 0.3 seconds.\n"


def test_one_that_is_warm_has_no_limit_any_more(tmp_path: Path) -> None:
    has_server(tmp_path, SLOW, STARTS % "complete")
    done = start(tmp_path, 0)
    assert (done.returncode, done.stderr) == (0, "")


def test_running_answers_have_the_time_that_the_unit_says(tmp_path: Path) -> None:
    has_server(tmp_path, uvicorn('print(words["timeout_graceful_shutdown"])'))
    assert start(tmp_path, 0, "--drain", "120").stdout == "120\n"


ASKED = uvicorn(
    "Config.application, Config.connection = application, http",
    """
import asyncio, json
import guard

def asked(headers, *parts):
    sent, left = [], list(parts)

    async def receive():
        if not left:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": left.pop(0), "more_body": True}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/audio/speech", "headers": headers}
    asyncio.run(Config.application(scope, receive, send))
    return [message["status"] for message in sent if "status" in message]

guard.DISCARD_S = 0.1
chunked = [(b"transfer-encoding", b"chunked")]
answers = [asked([(b"content-length", b"10")]), asked(chunked, b"12345", b"67890"), asked([])]
print(json.dumps([answers, [one.__name__ for one in Config.connection.__mro__[1:-1]]]))
""",
)
READS = """
async def app(scope, receive, send):
    while scope["headers"] and (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200})
"""


def test_what_is_too_long_is_refused_however_it_is_sent_and_heads_are_watched(tmp_path: Path) -> None:
    has_server(tmp_path, ASKED, READS)
    done = start(tmp_path, 0)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[[413], [413], [200]], ["H11Protocol"]]


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_both_kinds_of_addresses_are_listened_on(host: str, family: int) -> None:
    with launch.listening(host, 0) as listener:
        assert listener.family == family
