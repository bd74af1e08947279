"""What llama-server is waited for before it is stopped, by a stand-in that answers as the real one was seen to."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.http_servers import HERE, QuietHandler
from tests.processes import killed_at_end
from tests.scenario_programs import module_at

PROGRAM = Path(__file__).resolve().parents[3] / "roles/llama_cpp/programs/drain.py"
KEY = "canary-key"


drain = module_at(PROGRAM)


class Engine:
    """A stand-in for llama-server: says which slots compute, and notes which addresses it was asked for."""

    def __init__(self) -> None:
        self.slots: dict[str, list[bool]] = {"": [False, False]}
        """By models, whether each slot computes; the only model of a server has no name."""
        self.models: list[dict[str, Any]] = [{"id": "tiny"}]
        self.broken: tuple[int, bytes] | None = None
        self.asked: list[str] = []
        self.turns: list[list[bool]] = []
        """What the slots do at each of the next looks."""
        handler = type("Bound", (_Handler,), {"engine": self})
        self._server = ThreadingHTTPServer(HERE, handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def end(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, bytes]:
        """What is answered to a request with the key."""
        self.asked.append(path)
        if self.broken is not None:
            return self.broken
        if path == "/v1/models":
            return 200, json.dumps({"data": self.models}).encode()
        if self.turns:
            self.slots[""] = self.turns.pop(0)
        model = path.partition("?model=")[2]
        return 200, json.dumps([{"id": 0, "is_processing": computes} for computes in self.slots[model]]).encode()


class _Handler(QuietHandler):
    engine: Engine

    def do_GET(self) -> None:
        """Answer those who have the key."""
        allowed = self.headers.get("Authorization") == f"Bearer {KEY}"
        self.give(*(self.engine.answer(self.path) if allowed else (401, b"{}")))


@pytest.fixture
def engine() -> Iterator[Engine]:
    """One that has nothing to do."""
    made = Engine()
    yield made
    made.end()


def drained(engine: Engine, within_s: float) -> tuple[str, float]:
    """What was left, and how long it was waited for."""
    began = time.monotonic()
    left = drain.drained(drain.Server(engine.port, KEY), engine.port, within_s)
    return left, time.monotonic() - began


def test_running_answers_are_waited_for(engine: Engine) -> None:
    engine.turns = [[True, False]] * 5 + [[False, False]] * 2
    left, took_s = drained(engine, 60)
    assert left == ""
    assert engine.turns == []
    assert took_s >= 6 * drain.POLL_S


def test_a_moment_of_rest_between_two_answers_is_not_the_end(engine: Engine) -> None:
    engine.turns = [[True, True], [False, False], [True, False], [False, False], [False, False]]
    assert drained(engine, 60)[0] == ""
    assert engine.turns == []


@pytest.mark.parametrize("within_s", [0.5, 0])
def test_when_the_time_is_over_it_is_said_what_is_cut(engine: Engine, within_s: float) -> None:
    engine.slots[""] = [True, True]
    left, took_s = drained(engine, within_s)
    assert left == "2 answers that are computed, 0 connections with something unread"
    assert within_s <= took_s < within_s + 2


def test_an_answer_that_a_slow_reader_has_not_read_is_not_finished(engine: Engine) -> None:
    """Seen with the real one: slots at rest, 709,319 bytes in the socket's queue, 702 of 2,024 parts had arrived."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as reader:
        port = listener.getsockname()[1]
        reader.connect(("127.0.0.1", port))
        writer, _ = listener.accept()
        with writer:
            writer.setblocking(False)
            fill(writer)
            assert drain.undelivered(port) >= 1
            assert drain.undelivered(engine.port) == 0
            server = drain.Server(engine.port, KEY)
            assert drain.drained(server, port, 0.3).endswith("connections with something unread")
            writer.close()  # seen with the real one: it closed, and a megabyte was still on its way
            assert drain.drained(server, port, 0.3).endswith("connections with something unread")
            threading.Thread(target=read_all, args=(reader,), daemon=True).start()
            assert drain.drained(server, port, 30) == ""


def fill(writer: socket.socket) -> None:
    """Write until the other side's buffers are full."""
    while True:
        try:
            writer.send(bytes(1 << 16))
        except BlockingIOError:
            return


def read_all(reader: socket.socket) -> None:
    """Read to the end."""
    while reader.recv(1 << 20):
        pass


def test_of_several_models_only_those_in_memory_are_asked(engine: Engine) -> None:
    """A question about another one would load it: llama.cpp#20227."""
    engine.models = [
        {"id": "a b", "status": {"value": "loaded"}},
        {"id": "asleep", "status": {"value": "unloaded"}},
        {"id": "other", "status": {"value": "loaded"}},
    ]
    engine.slots = {"a%20b": [True], "other": [True, False]}
    assert drained(engine, 0.2)[0].startswith("2 answers")
    assert set(engine.asked) == {"/v1/models", "/slots?model=a%20b", "/slots?model=other"}


@pytest.mark.parametrize(
    "answer", [(200, b"nonsense"), (200, b""), (401, b"{}"), (404, b"{}"), (500, b"{}"), (501, b'{"error":{}}')]
)
def test_one_that_does_not_say_what_it_does_may_be_busy(engine: Engine, answer: tuple[int, bytes]) -> None:
    engine.broken = answer
    assert drained(engine, 0.3)[0].startswith("the server does not say what it does")


@pytest.mark.parametrize("state", ["at rest", "loads its model", "gone"])
def test_one_that_answers_nobody_is_not_waited_for(engine: Engine, state: str) -> None:
    if state == "loads its model":
        engine.broken = (503, b'{"error":{"message":"Loading model"}}')
    if state == "gone":
        engine.end()
    left, took_s = drained(engine, 60)
    assert left == ""
    assert took_s < 5


def test_a_table_of_connections_that_cannot_be_read_is_no_rest(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        drain.undelivered(1, (tmp_path / "tcp",))


def test_one_that_wants_another_key_may_be_busy(engine: Engine) -> None:
    server = drain.Server(engine.port, "another-key")
    said = "the server does not say what it does (/v1/models answers with 401)"
    assert drain.drained(server, engine.port, 0.3) == said


@pytest.fixture
def started(engine: Engine, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the words of a llama-server; the last port counts, as it does for the real one."""
    key = tmp_path / "key"
    key.write_text(f"{KEY}\nits-former-key\n", encoding="utf-8")
    words = ["--port", "1", "--port", str(engine.port), "--api-key-file", str(key), "--slots"]
    with killed_at_end(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *words])) as process:
        yield process


def program(pid: int | None) -> subprocess.CompletedProcess[str]:
    """Run the program as systemd does, with no time to wait; without a process where the server's has ended."""
    environment = {} if pid is None else {"MAINPID": str(pid)}
    return subprocess.run(
        [sys.executable, "-IS", str(PROGRAM), "--within", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


def test_the_program_asks_with_what_the_server_was_started_with(
    engine: Engine, started: subprocess.Popen[bytes]
) -> None:
    engine.slots[""] = [True]
    done = program(started.pid)
    assert done.returncode == 0
    assert done.stderr.startswith("Not drained within 0 s, and ended all the same: 1 answers that are computed")
    assert KEY not in done.stderr + done.stdout


def test_a_key_that_cannot_be_read_is_no_rest(started: subprocess.Popen[bytes], tmp_path: Path) -> None:
    (tmp_path / "key").unlink()
    done = program(started.pid)
    assert done.returncode == 0
    assert "the server does not say what it does (/v1/models answers with 401)" in done.stderr


def test_the_program_waits_for_no_server_that_has_ended(engine: Engine, started: subprocess.Popen[bytes]) -> None:
    engine.slots[""] = [True]
    started.kill()
    started.wait(60)
    for pid in (started.pid, None):
        done = program(pid)
        assert (done.returncode, done.stderr, engine.asked) == (0, "", [])
