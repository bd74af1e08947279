"""The launcher of role ``kokoro``: when it does not start, and which requests it refuses."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parents[3] / "roles/kokoro/programs/launch.py"
TORCH = "class cuda:\n    def is_available():\n        return False\n"


def load() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("kokoro_launch", PROGRAM)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


launch = load()


def start(folder: Path, port: int, *words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Start it where torch is a stand-in that finds no card, and where there is no server."""
    (folder / "torch.py").write_text(TORCH, encoding="utf-8")
    limits = ["--max-input", "9", "--start-timeout", str(timeout_s)]
    command = [sys.executable, str(PROGRAM), "--host", "127.0.0.1", "--port", str(port), *limits, *words]
    return subprocess.run(
        command, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False, timeout=60
    )


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
    def __init__(self, application, **words):
        pass


class Server:
    started = %s

    def __init__(self, config):
        pass

    def run(self, sockets):
        pass
"""


def has_server(folder: Path, uvicorn: str, application: str = "app = None\n") -> None:
    """Put a stand-in for uvicorn there, and an application for it."""
    (folder / "uvicorn.py").write_text(uvicorn, encoding="utf-8")
    (folder / "api/src").mkdir(parents=True)
    (folder / "api/src/main.py").write_text(application, encoding="utf-8")


@pytest.mark.parametrize(("started", "code"), [(True, 0), (False, 1)])
def test_a_start_that_failed_is_a_failure(tmp_path: Path, started: bool, code: int) -> None:
    """Plays uvicorn 0.34: ``Server.run`` returns all the same when an application's start fails."""
    has_server(tmp_path, UVICORN % started)
    done = start(tmp_path, 0)
    assert done.returncode == code
    assert ("could not be loaded" in done.stderr) == bool(code)


SLOW = """
import asyncio
import threading
import time


class Config:
    def __init__(self, application, **words):
        Config.application = application


class Server:
    started = True

    def __init__(self, config):
        pass

    def run(self, sockets):
        async def send(message):
            pass

        asyncio.run(Config.application({"type": "lifespan"}, None, send))
        while any(isinstance(one, threading.Timer) and not one.finished.is_set() for one in threading.enumerate()):
            time.sleep(0.01)
"""
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


def limited(application: Any, most: int) -> Any:
    """The application within its limit."""
    return launch.Limited(application, most, lambda: None)


def answered(body: bytes, *, length: int | None, most: int = 10) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What an application got that reads all of a request, sent in two pieces, and what was sent back."""
    got: list[dict[str, Any]] = []
    sent: list[dict[str, Any]] = []
    pieces = [{"type": "http.request", "body": part, "more_body": part == body[:4]} for part in (body[:4], body[4:])]

    async def application(_scope: Any, receive: Any, send: Any) -> None:
        while True:
            got.append(await receive())
            if got[-1]["type"] == "http.disconnect" or not got[-1]["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200})

    async def receive() -> dict[str, Any]:
        return pieces.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    asyncio.run(limited(application, most)({"type": "http", "headers": headers}, receive, send))
    return got, sent


def test_a_request_that_is_short_enough_goes_through() -> None:
    got, sent = answered(b"0123456789", length=10)
    assert b"".join(one["body"] for one in got) == b"0123456789"
    assert sent[0]["status"] == 200


@pytest.mark.parametrize("length", [11, launch.THROWN_AWAY + 1])
def test_a_longer_one_is_refused_and_goes_no_further(length: int) -> None:
    got, sent = answered(b"0123456789a", length=length)
    assert got == []
    assert sent[0]["status"] == 413
    assert json.loads(sent[1]["body"])["detail"]["message"] == "A request may have 10 bytes. Send the text in parts."


def test_who_still_writes_hears_the_refusal() -> None:
    """A connection that ends with something unread is reset, and the answer is lost on its way."""
    pieces = [{"type": "http.request", "body": b"x" * 9, "more_body": one < 3} for one in range(4)]

    async def receive() -> dict[str, Any]:
        return pieces.pop(0)

    async def send(message: dict[str, Any]) -> None:
        assert pieces == []
        assert message.get("status", 413) == 413

    asyncio.run(limited(None, 10)({"type": "http", "headers": [(b"content-length", b"36")]}, receive, send))


def test_one_that_hides_its_length_is_ended() -> None:
    got, _ = answered(b"0123456789a", length=None)
    assert [one["type"] for one in got] == ["http.request", "http.disconnect"]


def test_what_is_no_request_goes_through() -> None:
    seen = []

    async def application(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    asyncio.run(limited(application, 1)({"type": "lifespan"}, None, None))
    assert seen == ["lifespan"]


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_both_kinds_of_addresses_are_listened_on(host: str, family: int) -> None:
    with launch.listening(host, 0) as listener:
        assert listener.family == family
