"""A server of ``/v1/audio/speech`` that says what it is told: tones for speech, pieces at their times, every wrong."""

from __future__ import annotations

import array
import json
import math
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from tests.http_servers import HERE, QuietHandler, served

RATE = 24000
OPEN_ENDED = 0xFFFFFFFF


def tone(seconds: float, rate: int = RATE, height: int = 8000) -> bytes:
    """Samples of 16 bits."""
    return array.array("h", (int(height * math.sin(at / 9)) for at in range(int(seconds * rate)))).tobytes()


def wav(data: bytes, rate: int = RATE, *, size: int | None = None, channels: int = 1, bits: int = 16) -> bytes:
    """A WAV file of these samples; ``size`` is what its header says of them."""
    size = len(data) if size is None else size
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, rate * 2, 2, bits)
    note = struct.pack("<4sI4s", b"LIST", 3, b"abc\0")
    return struct.pack("<4sI4s", b"RIFF", 0, b"WAVE") + form + note + struct.pack("<4sI", b"data", size) + data


@dataclass
class Speech:
    """What is answered: pieces, each with the seconds before it; ``cut`` ends the answer without its end.

    ``length``: what the header promises, instead of chunks. ``one_at_a_time``: nobody else is answered meanwhile.
    """

    pieces: Sequence[tuple[float, bytes]] = ()
    status: int = 200
    cut: bool = False
    length: int | None = None
    one_at_a_time: bool = False
    seen: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    held: Speech

    def do_GET(self) -> None:
        with self.held.turn:
            self.give(200)

    def do_POST(self) -> None:
        with self.held.turn if self.held.one_at_a_time else nullcontext():
            self._speak()

    def _speak(self) -> None:
        self.held.seen.append(json.loads(self.content()))
        self.send_response(self.held.status)
        chunked = self.held.length is None
        self.send_header(*("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(self.held.length)))
        self.end_headers()
        for wait, piece in self.held.pieces:
            time.sleep(wait)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        if chunked and not self.held.cut:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True


@contextmanager
def speaking(speech: Speech) -> Iterator[Speech]:
    """Run it; ``port`` says where."""
    with served(ThreadingHTTPServer(HERE, type("Handler", (_Handler,), {"held": speech}))) as server:
        speech.port = server.server_port
        yield speech
