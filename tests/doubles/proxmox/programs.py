"""Programs of the node that ask a small service in the double's process, and do what it says."""

from __future__ import annotations

import json
import socketserver
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.doubles.proxmox.client import Reply

FAILED = 255

CLIENT = """#!{python} -IS
'''{shown}'''
import json, os, socket, sys, time
with socket.socket(socket.AF_UNIX) as service:
    service.connect({service!r})
    asked = {{"argv": sys.argv[1:], "environment": dict(os.environ), "terminal": any(map(os.isatty, range(3)))}}
    service.sendall(json.dumps(asked).encode() + b"\\n")
    answer = json.load(service.makefile())
while time.process_time() < answer["cost_s"]:
    pass
sys.stdout.write(answer["out"])
sys.stderr.write(answer["err"])
sys.stdout.flush()
sys.stderr.flush()
for link, target in answer["links"].items():
    if os.path.islink(link):
        os.unlink(link)
    if target:
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(target, link)
if answer["becomes"]:
    os.execvp(answer["becomes"][0], answer["becomes"])
sys.exit(answer["code"])
"""


@dataclass
class Answer:
    """What the program is to do: say something, set or remove ``links``, end, or become another program."""

    code: int = 0
    out: str = ""
    err: str = ""
    links: dict[str, str] = field(default_factory=dict)
    becomes: list[str] = field(default_factory=list)
    cost_s: float = 0


@dataclass
class Asked:
    """One call; ``terminal``: any of its streams is one, which is what ``lxc-attach`` goes by."""

    argv: list[str]
    environment: dict[str, str]
    terminal: bool


class PctError(Exception):
    """What PVE says before it ends with 255."""


def options_of(words: Sequence[str]) -> dict[str, str]:
    """``--name value`` and ``-name value``, as PVE takes them."""
    if len(words) % 2 or not all(one.startswith("-") for one in words[::2]):
        raise PctError("400 unable to parse option")
    return {one.lstrip("-"): value for one, value in zip(words[::2], words[1::2], strict=True)}


def data_of(reply: Reply) -> Any:
    """What the API answered; a refusal as ``PctError``, in the words of the programs that call it themselves."""
    if reply.status != HTTPStatus.OK:
        errors = (reply.json.get("errors") or {}) if reply.body else {}
        text = reply.line if reply.status == HTTPStatus.BAD_REQUEST else reply.reason
        raise PctError("\n".join([text, *(f"{name}: {said}" for name, said in errors.items())]).rstrip())
    return reply.json["data"]


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        if not isinstance(server, _Service):
            raise TypeError(type(server))
        asked = json.loads(self.rfile.readline())
        self.wfile.write(json.dumps(asdict(server.answer(Asked(**asked)))).encode())


class _Service(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64
    answer: Callable[[Asked], Answer]


class Program:
    """One program at ``path``, whose service listens at ``socket`` until it is closed.

    ``shown`` stands in its file, too, for those who read that.
    """

    def __init__(self, path: Path, socket: Path, answer: Callable[[Asked], Answer], shown: str = "") -> None:
        self._server = _Service(str(socket), _Handler)
        self._server.answer = answer
        write(path, CLIENT, service=str(socket), shown=shown)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Answer no longer."""
        self._server.shutdown()
        self._server.server_close()


def write(path: Path, text: str, **words: str) -> None:
    """A program of the node."""
    path.write_text(text.format(python=sys.executable, **words), encoding="utf-8")
    path.chmod(0o755)
