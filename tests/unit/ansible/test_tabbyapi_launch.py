"""The programs of role ``tabbyapi``: what is masked, when it does not start, and which imports fail."""

from __future__ import annotations

import itertools
import json
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import completed
from tests.scenario_programs import module_at

FILES = Path(__file__).resolve().parents[3] / "roles/tabbyapi/programs"
KEYS = ["canary-api-key-0123456789-longer", "canary-admin-key-01"]
EVERYWHERE = "0.0.0.0"  # noqa: S104  # an address of a test


launch = module_at(FILES / "launch.py", beside=True)


def passed_on(*parts: bytes) -> bytes:
    """What comes out where these parts go in, one write each."""
    before, after = os.pipe(), os.pipe()
    for part in parts:
        os.write(before[1], part)
        if part is not parts[-1]:
            continue
        os.close(before[1])
    launch.pass_on(before[0], after[1], [key.encode() for key in KEYS])
    os.close(after[1])
    with open(after[0], "rb") as out, open(before[0], "rb"):  # noqa: PTH123  # descriptors
        return out.read()


def test_every_key_is_masked_wherever_it_is() -> None:
    said = f"Your API key is: {KEYS[0]}\nYour admin key is: {KEYS[1]} ({KEYS[0]}{KEYS[1]})"
    assert launch.masked(said, KEYS) == "Your API key is: ********\nYour admin key is: ******** (****************)"


def test_of_two_keys_of_which_one_holds_the_other_nothing_is_left() -> None:
    both = launch.keys_of('api_key: "0123456789abcdef"\nadmin_key: "0123456789abcdef-more"\n')
    keys = launch.longest_first(both.values())
    assert launch.masked("0123456789abcdef-more 0123456789abcdef", keys) == "******** ********"


@pytest.mark.parametrize("size", [1, 2, 7, 31, 32, 33])
def test_a_key_that_comes_in_pieces_is_masked(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(launch, "CHUNK", size)
    said = f"a{KEYS[0]}b\nc {KEYS[1]}{KEYS[1]} {KEYS[0][:-1]}\n\nend".encode()
    assert passed_on(said) == launch.masked(said.decode(), KEYS).encode()


def test_what_holds_no_key_is_passed_on_as_it_is() -> None:
    said = bytes(itertools.chain(range(256))) * 300
    assert passed_on(said[:30000]) == said[:30000]


def test_a_line_goes_out_when_it_ends_and_text_as_soon_as_no_key_can_be_in_it() -> None:
    assert launch.safe_cut(b"a line\nand", 32) == len(b"a line\n")
    assert launch.safe_cut(b"x" * 100, 32) == 100 - 31
    assert launch.safe_cut(b"short", 32) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        'api_key: "a"\n',
        'api_key: "a"\nadmin_key: ""\n',
        'api_key: ["a"]\nadmin_key: "b"\n',
        "api_key: plain\nadmin_key: plain\n",
        'api_key: "a"\nadmin_key: "b"\nadmin_key: "c"\n',
        'api_key: "a"\napi_key: "b"\n',
    ],
)
def test_without_both_keys_nothing_can_be_masked(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        launch.keys_of(text)


def test_a_free_port_is_taken_for_free_again_and_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    launch.refuse_taken_port("127.0.0.1", port)
    launch.refuse_taken_port("127.0.0.1", port)


@pytest.mark.parametrize(
    ("theirs", "ours"), [("127.0.0.1", "127.0.0.1"), (EVERYWHERE, "127.0.0.1"), ("127.0.0.1", EVERYWHERE)]
)
def test_a_taken_port_ends_it_with_words_and_without_another_attempt(
    capsys: pytest.CaptureFixture[str], theirs: str, ours: str
) -> None:
    with socket.create_server((theirs, 0)) as taken, pytest.raises(SystemExit) as ended:
        launch.refuse_taken_port(ours, taken.getsockname()[1])
    assert ended.value.code == 78
    assert "Address already in use. Stop the program that listens there" in capsys.readouterr().err


class Backend:
    """What exllamav3's generator is asked for."""

    def __init__(self, **options: Any) -> None:
        self.options = options


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ({"num_draft_tokens": 0, "draft_model": None}, {"draft_model": None, "ngram_match_min": 3}),
        ({}, {"ngram_match_min": 3}),
        ({"num_draft_tokens": 6}, {"num_draft_tokens": 6, "ngram_match_min": 3}),
        ({"draft_model": "m", "num_draft_tokens": 4}, {"draft_model": "m", "num_draft_tokens": 4}),
        ({"ngram_match_min": 0}, {"ngram_match_min": 0}),
    ],
)
def test_ngrams_are_added_where_nothing_else_drafts(asked: dict[str, Any], got: dict[str, Any]) -> None:
    patched = type("Patched", (Backend,), {"__init__": launch.with_ngram(Backend.__init__, 3)})
    assert patched(**asked).options == got


UPSTREAM = """
import asyncio, os, subprocess, sys
from loguru import logger
from common.networking import is_port_in_use
async def entrypoint_async():
    import exllamav3
    print(is_port_in_use(1), logger.patched({{"message": open("api_tokens.yml").read()}}))
    subprocess.run(["cat", "api_tokens.yml"], check=True)
    os.write(2, b"to stderr: " + open("api_tokens.yml", "rb").read())
    print(logger.add("logs/1.log", level="INFO"), logger.add(print))
    print(sys.argv, exllamav3.AsyncGenerator(num_draft_tokens=0).options)
    {then}
def entrypoint():
    asyncio.run(entrypoint_async())
"""
AUTH = """
import asyncio, os
async def _watch_auth_file():
    while True:
        await asyncio.sleep(0.05)
        print("watched")
async def load_auth_keys():
    asyncio.create_task(_watch_auth_file())
"""
"""Since 2026-07-16 it starts a task that reads the file of the keys anew every two seconds."""
LOGURU = """
class Logger:
    def add(self, sink, **options): return 7
    def configure(self, patcher): self.patcher = patcher
    def patched(self, record): self.patcher(record); return record
logger = Logger()
"""
UVICORN = """
class Config:
    def __init__(self, app, host="", http="auto", timeout_graceful_shutdown=None):
        self.app, self.host, self.http, self.drain_s = app, host, http, timeout_graceful_shutdown
"""
OLD_UVICORN = """
class Config:
    def __init__(self, app, host="", http="auto"):
        self.app, self.host, self.http, self.drain_s = app, host, http, None
"""
AUTO = "class AutoHTTPProtocol: ...\n"
EXLLAMAV3 = """
class Generator:
    def __init__(self, {options}): ...
class AsyncGenerator:
    def __init__(self, **options): self.options = options
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A checkout in its first shape, packages in ``lib``, and a working directory with keys."""
    (tmp_path / "checkout/common").mkdir(parents=True)
    (tmp_path / "lib").mkdir()
    (tmp_path / "etc").mkdir()
    (tmp_path / "checkout/main.py").write_text(UPSTREAM.format(then=""), encoding="utf-8")
    (tmp_path / "checkout/common/auth.py").write_text(AUTH, encoding="utf-8")
    networking = "def is_port_in_use(port): return True\n"
    (tmp_path / "checkout/common/networking.py").write_text(networking, encoding="utf-8")
    (tmp_path / "lib/loguru.py").write_text(LOGURU, encoding="utf-8")
    (tmp_path / "lib/exllamav3.py").write_text(EXLLAMAV3.format(options="ngram_match_min=0"), encoding="utf-8")
    (tmp_path / "lib/uvicorn/protocols/http").mkdir(parents=True)
    (tmp_path / "lib/uvicorn/__init__.py").write_text(UVICORN, encoding="utf-8")
    (tmp_path / "lib/uvicorn/protocols/http/auto.py").write_text(AUTO, encoding="utf-8")
    tokens = f"# ours\napi_key: {json.dumps(KEYS[0])}\nadmin_key: {json.dumps(KEYS[1])}\n"
    (tmp_path / "etc/api_tokens.yml").write_text(tokens, encoding="utf-8")
    return tmp_path


def started(place: Path, *arguments: str, port: int = 0) -> subprocess.CompletedProcess[str]:
    """The launcher's whole life as a process; both of its streams are in ``stdout``."""
    own = ["--host", "127.0.0.1", "--port", str(port), *arguments, str(place / "checkout")]
    return subprocess.run(
        [sys.executable, str(FILES / "launch.py"), *own],
        cwd=place / "etc",
        env=os.environ | {"PYTHONPATH": str(place / "lib"), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_process_its_children_and_its_records_show_no_key_and_keep_their_port(place: Path) -> None:
    done = started(place)
    assert done.returncode == 0, done.stdout
    assert [key for key in KEYS if key in done.stdout] == []
    assert done.stdout.count('api_key: "********"') == 3
    assert "False {'message':" in done.stdout
    assert "-1 7" in done.stdout.splitlines()
    assert "main.py'] {'num_draft_tokens': 0}" in done.stdout


def test_upstream_is_told_another_context_than_its_file_says(place: Path) -> None:
    """Its own arguments count before its file (``load`` in its ``common/tabby_config.py``)."""
    told = started(place, "--context", "8192")
    assert "main.py', '--max-seq-len', '8192'] {" in told.stdout


def test_an_old_commit_is_helped_where_it_is_asked_for(place: Path) -> None:
    assert "main.py'] {'ngram_match_min': 2}" in started(place, "--ngram", "2").stdout


def test_the_end_of_upstream_is_its_own(place: Path) -> None:
    (place / "checkout/main.py").write_text(UPSTREAM.format(then="raise RuntimeError('VRAM')"), encoding="utf-8")
    done = started(place)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "RuntimeError: VRAM")


def test_a_taken_port_ends_it_before_upstream_is_read(place: Path) -> None:
    (place / "checkout/main.py").write_text("raise SystemExit('read')", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = started(place, port=taken.getsockname()[1])
    assert done.returncode == 78
    assert done.stdout.startswith("Unable to listen on port ")


@pytest.mark.parametrize(
    ("file", "text", "arguments", "words"),
    [
        ("etc/api_tokens.yml", "api_key: 1\n", (), "Unable to read the keys from"),
        ("checkout/main.py", "def entrypoint(): ...\n", (), "it has no entrypoint_async and no is_port_in_use"),
        ("lib/exllamav3.py", EXLLAMAV3.format(options="cache=0"), ("--ngram", "2"), "this exllamav3 is too old"),
    ],
)
def test_what_cannot_be_started_says_why_and_is_not_tried_again(
    place: Path, file: str, text: str, arguments: tuple[str, ...], words: str
) -> None:
    (place / file).write_text(text, encoding="utf-8")
    done = started(place, *arguments)
    assert done.returncode == 78
    assert words in done.stdout.splitlines()[-1]


SERVES = """
import json
    import uvicorn

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200})

    async def asked(length):
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"12345", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/completions"}
        await config.app({**scope, "headers": [(b"content-length", length)]}, receive, send)
        return sent[0]["status"]

    config = uvicorn.Config(app, host="h", http="auto")
    answers = [await asked(b"5"), await asked(b"6")]
    print(json.dumps([config.host, config.http.__mro__[1].__name__, answers, config.drain_s]))
"""


@pytest.mark.parametrize(("uvicorn", "drain_s"), [(UVICORN, 120), (OLD_UVICORN, None)], ids=["new", "Debian 12's"])
def test_what_it_serves_stands_behind_a_guard(place: Path, uvicorn: str, drain_s: int | None) -> None:
    (place / "lib/uvicorn/__init__.py").write_text(uvicorn, encoding="utf-8")
    (place / "checkout/main.py").write_text(UPSTREAM.format(then=SERVES.strip()), encoding="utf-8")
    done = started(place, "--max-body", "5", "--drain", "120")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout.splitlines()[-1]) == ["h", "AutoHTTPProtocol", [200, 413], drain_s]


WATCHES = """
import common.auth
    await common.auth.load_auth_keys()
    await asyncio.sleep(0.3)
"""


def test_it_keeps_the_keys_of_its_start(place: Path) -> None:
    (place / "checkout/main.py").write_text(UPSTREAM.format(then=WATCHES.strip()), encoding="utf-8")
    done = started(place)
    assert (done.returncode, "watched" in done.stdout) == (0, False), done.stdout


def test_a_commit_that_reads_them_once_is_started_as_well(place: Path) -> None:
    (place / "checkout/common/auth.py").write_text("async def load_auth_keys(): ...\n", encoding="utf-8")
    (place / "checkout/main.py").write_text(UPSTREAM.format(then=WATCHES.strip()), encoding="utf-8")
    done = started(place)
    assert done.returncode == 0, done.stdout


FORMER = "canary-former-key-0123456789"
ASKS = """
import json
    import uvicorn

    async def app(scope, receive, send):
        await receive()
        print([value.decode() == "Bearer " + {present!r} for name, value in scope["headers"]], flush=True)
        await send({{"type": "http.response.start", "status": 200}})

    async def receive():
        return {{"type": "http.request", "body": b"", "more_body": False}}

    async def send(message):
        pass

    scope = {{"type": "http", "method": "POST", "path": "/v1/completions"}}
    served = uvicorn.Config(app, host="h", http="auto").app
    await served({{**scope, "headers": [(b"authorization", b"Bearer {former}")]}}, receive, send)
    print({former!r})
"""


@pytest.mark.parametrize(("grace_s", "taken"), [(900, True), (0, False)])
def test_the_former_key_is_taken_for_its_time_and_never_shown(place: Path, grace_s: int, *, taken: bool) -> None:
    (place / "etc/former-api-key").write_text(f"{FORMER}\n", encoding="utf-8")
    then = ASKS.strip().format(present=KEYS[0], former=FORMER)
    (place / "checkout/main.py").write_text(UPSTREAM.format(then=then), encoding="utf-8")
    done = started(place, "--former-key", "former-api-key", "--key-grace", str(grace_s))
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-2] == str([taken])
    assert (FORMER in done.stdout) is not taken, "a key that nobody takes is no secret of this server"


def test_imports_that_fail_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise OSError('no such library')", encoding="utf-8")
    command = [sys.executable, str(FILES / "imports.py"), "json", "broken", "not_there"]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True, timeout=60
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["failed"] == {
        "broken": "OSError: no such library",
        "not_there": "ModuleNotFoundError: No module named 'not_there'",
    }
    assert answer["python"] == platform.python_version()


def test_a_module_that_takes_the_process_with_it_is_the_last_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "crash.py").write_text("import os; os.abort()", encoding="utf-8")
    command = [sys.executable, str(FILES / "imports.py"), "json", "crash", "re"]
    done = completed(command, env={"PYTHONPATH": str(tmp_path)}, timeout_s=60)
    assert done.returncode != 0
    assert done.stdout.splitlines() == ["json", "crash"]
