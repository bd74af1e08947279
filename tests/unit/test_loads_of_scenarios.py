"""What the loads of scenarios count: an answer that is not whole is none, however it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.http_servers import HERE, QuietHandler, served
from tests.processes import killed_at_end

SHARED = Path(__file__).resolve().parents[2] / "molecule" / "shared"
GOES_ON_S = 1.0


class Engine(QuietHandler):
    """Answers as a gateway does, but for what ``fails``; connections are kept."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    fails: ClassVar[str] = ""

    def do_GET(self) -> None:
        """A page, after which the connection ends without a word where that is what fails."""
        self.give(200, b"{}")
        self.close_connection = self.fails == "silent end"

    def do_POST(self) -> None:
        """A completion, as one answer or as a stream."""
        asked = json.loads(self.content())
        if self.fails.startswith("503"):
            self.give(503, b"{}", *([("Retry-After", "1")] if self.fails == "503" else []))
        elif self.fails == "lost":
            self.close_connection = True
        elif asked.get("stream"):
            self.stream(asked["max_tokens"])
        else:
            self.give(200, json.dumps(self.part(asked["max_tokens"], "length")).encode())

    def part(self, tokens: int, reason: str | None) -> dict[str, Any]:
        """What stands in an answer, or at a stream's end."""
        told = tokens - 1 if self.fails == "feigned" else tokens
        return {"choices": [{"finish_reason": reason}], "usage": {"completion_tokens": told}}

    def stream(self, tokens: int) -> None:
        """In pieces, of which the last is missing where it is cut."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines = [{"choices": [{}]}, self.part(tokens, "length")]
        pieces = [f"data: {json.dumps(line)}\n\n".encode() for line in lines]
        if self.fails == "cut":
            pieces, self.close_connection = pieces[:1], True
        for piece in (*pieces, *([] if self.fails == "cut" else [b"data: [DONE]\n\n", b""])):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))


@contextmanager
def engine(fails: str) -> Iterator[int]:
    """The port of an engine that fails in this way."""
    handler = type("Failing", (Engine,), {"fails": fails})
    with served(ThreadingHTTPServer(HERE, handler)) as server:
        yield server.server_port


def told(folder: Path, program: str, fails: str, *words: str) -> dict[str, Any]:
    """What a load says after a moment of asking an engine that fails in this way."""
    stop = folder / "stop"
    with engine(fails) as port:
        command = [sys.executable, str(SHARED / program), str(port), "3", str(stop), *words]
        with killed_at_end(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ) as load:
            time.sleep(GOES_ON_S)
            stop.touch()
            said, _ = load.communicate(timeout=60)
    return dict(json.loads(said))


@pytest.mark.parametrize("words", [(), ("--keep",), ("--keep", "--slowly", "0.5")], ids=["anew", "kept", "slowly"])
def test_whole_answers_are_whole_on_any_connection(tmp_path: Path, words: tuple[str, ...]) -> None:
    became = told(tmp_path, "load.py", "", "model", *words)
    assert set(became) == {"whole", "slowest"}, became
    assert became["whole"] > 0


@pytest.mark.parametrize("words", [(), ("--keep",)], ids=["anew", "kept"])
@pytest.mark.parametrize(
    ("fails", "wanted"), [("cut", "cut"), ("feigned", "feigned"), ("lost", "lost"), ("503", "503")]
)
def test_what_is_not_whole_is_counted_by_what_it_is(
    tmp_path: Path, fails: str, wanted: str, words: tuple[str, ...]
) -> None:
    became = told(tmp_path, "load.py", fails, "model", *words)
    assert became[wanted] > 0, became
    assert set(became) <= {wanted, "slowest", *(["whole"] if fails == "cut" else [])}, became


def test_a_refusal_that_does_not_say_when_to_come_again_is_for_ever(tmp_path: Path) -> None:
    assert told(tmp_path, "load.py", "503 without a word", "model")["503 for ever"] > 0


@pytest.mark.parametrize(("fails", "is_lost"), [("", False), ("silent end", True)])
def test_a_connection_that_ends_in_silence_loses_the_next_request(tmp_path: Path, fails: str, *, is_lost: bool) -> None:
    became = told(tmp_path, "kept.py", fails, "/")
    assert became["answered"] > 0
    assert (became["lost"] > 0) is is_lost, became
