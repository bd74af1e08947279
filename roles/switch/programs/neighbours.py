"""How engines that share a card ask one another for it: by the switches before them, with a key that all of them know.

A keeper has no network. It asks through its own switch, which reaches those of the others, and is asked through it: the
one route is ``POST /release``. What comes from there is a stranger's word until the key has been compared.
"""

from __future__ import annotations

import hmac
import http.client
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any

from control import folder_of
from turns import LARGEST_COUNT, Answer, Question, Turn

ANSWER_S = 5.0
ABSENT_S = 5.0
"""Who cannot be reached for so long takes no part: its container is stopped, or its switch knows of no turns yet."""
CLAIMED_S = 5.0
"""So long a start counts that asks for the turn; it asks again several times a second."""
NEVER = float("-inf")
LARGEST_BODY = 1024
RELEASE = "/release"
CLAIM = "/claim"
HERE = "X-Switch"
"""Where another switch itself says 503, its keeper is about to come back, and its engine may have the card."""


def asks_of(socket_path: Path) -> Path:
    """The socket at which the keeper beside a switch is asked for the card."""
    return folder_of(socket_path) / "turns.sock"


class NotThereError(Exception):
    """Nobody answers at the socket."""


class UnreachableError(Exception):
    """The own switch cannot connect to another one, or that one does not take turns yet, or any more."""


class RefusedError(Exception):
    """It answers, and not with what was asked for; or it has been connected to and does not answer."""


class _Connection(http.client.HTTPConnection):
    """HTTP over a socket of the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        """Open it."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def posted(path: Path, route: str, content: dict[str, Any], key: str = "") -> dict[str, Any]:
    """What the one behind a socket answers to a question.

    Raises ``NotThereError`` where nobody does, ``UnreachableError`` where that is a switch which reaches nobody, and
    ``RefusedError`` for every other answer than one in JSON.
    """
    connection = _Connection(path)
    try:
        with suppress(BrokenPipeError):  # a switch that reaches nobody says so before it has read all
            connection.request("POST", route, json.dumps(content), {"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        body = answer.read(LARGEST_BODY)
    except (OSError, http.client.HTTPException) as error:
        raise NotThereError(str(error)) from error
    finally:
        connection.close()
    if answer.status == http.HTTPStatus.SERVICE_UNAVAILABLE and not answer.headers.get(HERE):
        raise UnreachableError(f"its switch cannot be reached (HTTP {answer.status})")
    if answer.status == http.HTTPStatus.NOT_FOUND:
        raise UnreachableError(f"its switch knows of no turns (HTTP {answer.status})")
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"it answers with HTTP {answer.status} and no JSON") from error
    if answer.status != http.HTTPStatus.OK or not isinstance(said, dict):
        raise RefusedError(f"it answers with HTTP {answer.status}")
    return said


def question_in(said: dict[str, Any], names: Sequence[str]) -> tuple[int, int, bool]:
    """Place, number of the ticket, and whether it has the card, of one that asks; ``ValueError`` for anything else."""
    name, count, holds = said.get("from"), said.get("count"), said.get("holds")
    if name not in names or type(count) is not int or not 0 <= count < LARGEST_COUNT or type(holds) is not bool:
        raise ValueError("not a question of one that shares the card")
    return names.index(name), count, holds


def answer_in(said: dict[str, Any]) -> Answer:
    """What another one says; ``RefusedError`` where that is no answer."""
    granted, holds, count = said.get("granted"), said.get("holds"), said.get("count")
    if type(granted) is not bool or type(holds) is not bool or type(count) is not int or not 0 <= count < LARGEST_COUNT:
        raise RefusedError("it answers with something else than an answer")
    return Answer(granted, holds, count)


@dataclass
class Neighbours:
    """Those who share a card, by their names: ``turn`` is what is known, ``through`` the socket of the own switch."""

    names: Sequence[str]
    turn: Turn
    key: str
    through: Path
    say: Callable[[str], None]
    called: threading.Event = field(default_factory=threading.Event)
    """Set when somebody asks for the card while it is ours, or a start asks for the turn."""
    _claimed: float = NEVER
    _silent: dict[int, float] = field(default_factory=dict)
    _told: dict[int, str] = field(default_factory=dict)

    def seek(self) -> bool:
        """Ask the others for the turn; whether it is ours."""
        for other in self.turn.want():
            self._ask(other)
        return self.turn.holds

    def compare(self) -> None:
        """Find out whether somebody else has the card as well, after one of both could not be reached."""
        for other in self.turn.others:
            self._ask(other)

    def _ask(self, other: int) -> None:
        asked = self.turn.question(other)
        content = {"from": self.names[self.turn.place], "count": asked.count, "holds": asked.holds}
        try:
            answer = answer_in(posted(self.through, f"/{other}", content, self.key))
        except UnreachableError as error:
            self._miss(other, asked, str(error))
        except (NotThereError, RefusedError) as error:
            self._silent.pop(other, None)
            self._tell(other, f"{self.names[other]} was asked for the card: {error}. It is asked again.")
        else:
            self._silent.pop(other, None)
            self._told.pop(other, None)
            self.turn.learn(other, asked, answer)

    def _miss(self, other: int, asked: Question, why: str) -> None:
        now = time.monotonic()
        since = self._silent.setdefault(other, now)
        if now - since < ABSENT_S:
            return
        self._tell(other, f"{self.names[other]} takes no part: {why}.")
        self.turn.miss(other, asked)

    def _tell(self, other: int, words: str) -> None:
        if self._told.get(other) != words:
            self.say(words)
        self._told[other] = words

    def claim(self) -> bool:
        """Note that a start of the engine asks for the turn; whether it is ours, so that it asks no more."""
        is_ours = self.turn.holds
        self._claimed = NEVER if is_ours else time.monotonic()
        self.called.set()
        return is_ours

    def is_claimed(self) -> bool:
        """Whether a start of the engine waits for the turn."""
        return time.monotonic() < self._claimed + CLAIMED_S and not self.turn.holds

    def let_go(self, *, wants: bool = False) -> None:
        """Give the turn back, as the engine has ended; and want it no more where nobody asks the engine."""
        self.turn.ended()
        if not wants and not self.is_claimed():
            self.turn.forget()

    def waiting(self) -> list[str]:
        """The names of those who wait for the card while it is ours."""
        return [self.names[place] for place in self.turn.waiting()]

    def listen(self, path: Path) -> UnixStreamServer:
        """Answer at that socket from now on, in a thread of its own that ends with this process; return the server."""
        path.unlink(missing_ok=True)
        server = _Server(str(path), _Handler)
        server.neighbours = self
        # The switch, which is of the file's group, hands on what others ask.
        path.chmod(0o660)
        threading.Thread(target=server.serve_forever, name="neighbours", daemon=True).start()
        return server


class _Server(UnixStreamServer):
    """Answers one question after the other; none takes longer than ``_Handler.timeout``."""

    neighbours: Neighbours

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who goes away before it was answered is no fault of ours."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One question, of another one's keeper or of a start of the engine."""

    timeout = ANSWER_S
    server: _Server

    def do_POST(self) -> None:
        """Answer it."""
        try:
            status, answer = self._answer(self._content())
        except (ValueError, RecursionError):
            status, answer = http.HTTPStatus.BAD_REQUEST, {}
        body = json.dumps(answer).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _content(self) -> dict[str, Any]:
        """The question, empty where it is no mapping; ``ValueError`` for what is too long, or no JSON."""
        length = int(self.headers.get("Content-Length", ""))
        if not 0 <= length <= LARGEST_BODY:
            raise ValueError("too long")
        said = json.loads(self.rfile.read(length))
        return said if isinstance(said, dict) else {}

    def _answer(self, said: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        neighbours = self.server.neighbours
        if self.path == CLAIM and self._is_root():
            wants = said.get("wants") is True
            return http.HTTPStatus.OK, {"granted": neighbours.claim() if wants else neighbours.turn.holds}
        if self.path != RELEASE:
            return http.HTTPStatus.NOT_FOUND, {}
        given = self.headers.get("Authorization", "").encode("utf-8", errors="replace")
        if not neighbours.key or not hmac.compare_digest(given, f"Bearer {neighbours.key}".encode()):
            return http.HTTPStatus.FORBIDDEN, {}
        place, count, holds = question_in(said, neighbours.names)
        if place == neighbours.turn.place:
            raise ValueError("asked by itself")
        answer = neighbours.turn.answer(place, count, holds=holds)
        if neighbours.turn.waiting():
            neighbours.called.set()
        return http.HTTPStatus.OK, {"granted": answer.granted, "holds": answer.holds, "count": answer.count}

    def _is_root(self) -> bool:
        """Whether a process of root asks, by the kernel's word; the switch is none."""
        form = "3i"
        said = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form))
        return bool(struct.unpack(form, said)[1] == os.getuid() == 0)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing of each question: there are several in a second."""
