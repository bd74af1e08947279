"""The controller's side: recognises a payload that the module server can run, and has it run there.

Used by the connection plugins, in a process of its own for each task: what a run knows of its servers lies in a folder
of notes, a file for each container. An ejected lab takes this module along (``provisioner.eject.eject``).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import os
import re
import secrets
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

ROOT = "/run/provisioner-modules"
"""The folder of the servers' sockets in a container."""
NOTES = "PROVISION_MODULE_SERVER_NOTES"
"""The variable that names the run's folder, in which the plugins note what was served."""
SWITCH = "PROVISION_MODULE_SERVER"
"""The variable that switches the server off, when it is ``off``."""
IDLE_S = 60.0
"""So long a server waits for the next task."""
MOST_STARTS = 10
"""So often one run tries to start a server in a container."""
TRIED_VERSIONS = ("2.19", "2.20", "2.21")
"""The lines of ansible-core with which the results are known to be the same."""

SERVED = "served"
STARTED = "started"
STALE = "Python was changed since"
SERVER_IS_GONE = frozenset({STALE, "no server", "the server ended"})
"""What the client says when a new server has to be started for the next task."""
NOT_STARTED = "the server did not start"

COMMAND = re.compile(r"/[\w./-]+ -c '(/[\w./+-]+) && sleep 0'")
"""How Ansible calls the Python that reads a payload, when nothing else is asked for."""
WRAPPER = b"\n_ANSIBALLZ_WRAPPER = True\n"
WRAPPER_BEGINS_WITHIN = 4096
PAYLOAD_FILE = "/AnsiballZ_"
CALL = b'\n\nif __name__ == "__main__":\n    _ansiballz_main(\nansible_module='
ARCHIVE = b"\nextensions={},\nzip_data='"
END = b"',\n)\n"
LIBRARY_FOLDER = "ansible/module_utils/"
LIBRARY_PACKAGE = "ansible/__init__.py"
_FOLDER = Path(__file__).parent

Run = Callable[[Sequence[str], bytes], tuple[int, bytes, bytes]]
"""Runs a command in the container with this standard input; gives its exit code, output and errors."""


class UsualWayError(Exception):
    """Why a payload goes the usual way."""


@dataclass(frozen=True, slots=True)
class Served:
    """How many payloads were served, and how many went the usual way for which reason; ``containers`` had a server."""

    served: int = 0
    usual: Mapping[str, int] = field(default_factory=dict)
    containers: Mapping[str, str] = field(default_factory=dict)
    """By the names of containers, the Python that their server is run by."""

    def __str__(self) -> str:
        if not self.usual:
            return f"The module server ran {self.served} modules"
        total = sum(self.usual.values())
        reasons = "; ".join(f"{reason}: {count}" for reason, count in sorted(self.usual.items()))
        return f"The module server ran {self.served} modules, {total} went the usual way ({reasons})"


@dataclass(frozen=True, slots=True)
class Payload:
    """A module with its arguments and its library, as Ansible would feed it to a Python."""

    python: str
    content: bytes
    archive: bytes
    """The zip archive with the module and its library; no arguments are in it."""


def hand_over(
    command: str, content: bytes | None, *, version: str, server: ModuleServer
) -> tuple[int, bytes, bytes] | None:
    """What the payload gave, run by the container's module server; None when it must go the usual way."""
    if os.environ.get(SWITCH, "").lower() == "off":
        return None
    try:
        payload = recognised(command, content, version)
        return server.run(payload) if payload else None
    except UsualWayError as reason:
        server.notes.add("usual", str(reason))
        return None


def recognised(command: str, content: bytes | None, version: str) -> Payload | None:
    """The payload that this command would run; None when there is none, ``UsualWayError`` when it is an unusual one."""
    if not content:
        if PAYLOAD_FILE in command:
            raise UsualWayError("not pipelined")
        return None
    if WRAPPER not in content[:WRAPPER_BEGINS_WITHIN]:
        return None
    called = COMMAND.fullmatch(command)
    if called is None:
        raise UsualWayError(_unusual(command))
    if ".".join(version.split(".")[:2]) not in TRIED_VERSIONS:
        raise UsualWayError(f"ansible-core {version}")
    before, call, arguments = content.rpartition(CALL)
    arguments, begins, archive = arguments.rpartition(ARCHIVE)
    if not (before and call and begins and archive.endswith(END)):
        raise UsualWayError("a payload of an unknown form")
    try:
        return Payload(called[1], content, base64.b64decode(archive[: -len(END)], validate=True))
    except binascii.Error as error:
        raise UsualWayError("a payload of an unknown form") from error


def _unusual(command: str) -> str:
    if "BECOME-SUCCESS" in command:
        return "another user"
    if re.search(r" -c '\w+=", command):
        return "an environment of its own"
    return "an unknown command"


class Notes:
    """What one run knows of one container's server; lines of a file, since each task is a process of its own."""

    def __init__(self, folder: Path, container: str) -> None:
        self._path = folder / f"module-server-{quote(container, safe='')}"

    def add(self, word: str, text: str = "") -> None:
        """Note one thing; a line is written in one piece, so tasks may do this at once."""
        with self._path.open("ab", buffering=0) as stream:
            stream.write(f"{word}\t{text}\n".encode())

    def lines(self) -> list[tuple[str, str]]:
        """What was noted, in its order."""
        if not self._path.exists():
            return []
        found = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            word, _, text = line.partition("\t")
            found.append((word, text))
        return found


class ModuleServer:
    """The module server of one container: started when it is first needed, and asked to run payloads."""

    def __init__(self, run: Run, notes: Notes, *, root: str = ROOT, idle_s: float = IDLE_S) -> None:
        self.notes = notes
        self._run = run
        self._root = root
        self._idle_s = idle_s

    def run(self, payload: Payload) -> tuple[int, bytes, bytes]:
        """Run the payload; the client goes the usual way by itself when the server cannot."""
        library = library_of(payload.archive)
        path = f"{self._root}/{self._name(payload.python)}"
        if not self._is_started():
            self._start(payload, library, path)
        mark = secrets.token_hex(8)
        request = b"run\n" + b"".join(sorted(library.digests.values()))
        code, output, errors = self._run(
            _program(payload.python, "client", path, mark, payload.python), part(request) + payload.content
        )
        said, errors = _without_mark(mark, errors)
        self._note(said)
        return code, output, errors

    def _name(self, python: str) -> str:
        """The socket's name: each Python has a server of its own, and each version of the server, too."""
        return hashlib.sha256(python.encode() + b"\0" + _text("server")).hexdigest()[:16]

    def _is_started(self) -> bool:
        last = ""
        for word, text in self.notes.lines():
            if word == STARTED:
                last = STARTED
            elif word == "usual" and (text in SERVER_IS_GONE or text.startswith(NOT_STARTED)):
                last = ""
        return last == STARTED

    def _start(self, payload: Payload, library: Library, path: str) -> None:
        starts = sum(word == STARTED for word, _ in self.notes.lines())
        if starts >= MOST_STARTS:
            raise UsualWayError(f"the server was started {MOST_STARTS} times")
        self.notes.add(STARTED, payload.python)
        parts = part(_text("server")) + part(library.digests_json()) + part(library.archive())
        code, _, errors = self._run(_program(payload.python, "start", path, payload.python, str(self._idle_s)), parts)
        if code != 0:
            reason = errors.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise UsualWayError(f"{NOT_STARTED}: " + "".join(reason)[:200])

    def _note(self, said: str) -> None:
        if said == SERVED:
            self.notes.add(SERVED)
        else:
            self.notes.add("usual", said)


@dataclass(frozen=True, slots=True)
class Library:
    """The part of a payload that no arguments and no module are in: what modules of Ansible import."""

    source: bytes
    digests: Mapping[str, bytes]
    """By the names of files, the sha256 of name and content."""

    def archive(self) -> bytes:
        """A zip archive of these files alone."""
        target = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self.source)) as whole, zipfile.ZipFile(target, "w") as library:
            for name in self.digests:
                library.writestr(name, whole.read(name))
        return target.getvalue()

    def digests_json(self) -> bytes:
        """The digests, as the server takes them."""
        return json.dumps({name: digest.hex() for name, digest in self.digests.items()}).encode()


def library_of(archive: bytes) -> Library:
    """The library in a payload's archive."""
    digests: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as whole:
            for name in whole.namelist():
                if name == LIBRARY_PACKAGE or name.startswith(LIBRARY_FOLDER):
                    digests[name] = hashlib.sha256(name.encode() + b"\0" + whole.read(name)).digest()
    except zipfile.BadZipFile as error:
        raise UsualWayError("a payload of an unknown form") from error
    return Library(archive, digests)


def part(content: bytes) -> bytes:
    """The content with its length before it, as the programs in the container read it."""
    return b"%08d" % len(content) + content


def _text(program: str) -> bytes:
    return (_FOLDER / f"{program}.py").read_bytes()


def _program(python: str, name: str, *arguments: str) -> list[str]:
    """The command that runs one of the carried programs; a shell stands around it, as around every payload.

    The shell is what says by which signal its child was ended.
    """
    flags = [python, "-I", "-S", "-E", "-c", _text(name).decode(), *arguments]
    return ["/bin/sh", "-c", '"$@" && :', "sh", *flags]


def _without_mark(mark: str, errors: bytes) -> tuple[str, bytes]:
    """What the client said first, and what the module wrote after that."""
    line, _, rest = errors.partition(b"\n")
    word, _, said = line.decode("utf-8", "replace").partition(" ")
    if word != mark:
        return "the client ended early", errors
    return said, rest


def notes_folder(usual: str) -> Path:
    """Where notes are: the run's folder, or the one that Ansible itself has for a run."""
    return Path(os.environ.get(NOTES) or usual)


def served(folder: Path) -> Served:
    """What was noted in a run's folder."""
    count = 0
    usual: Counter[str] = Counter()
    containers: dict[str, str] = {}
    for path in sorted(folder.glob("module-server-*")):
        container = unquote(path.name.removeprefix("module-server-"))
        for word, text in Notes(folder, container).lines():
            count += word == SERVED
            if word == "usual":
                usual[text] += 1
            if word == STARTED:
                containers[container] = text
    return Served(count, dict(usual), containers)


def stop_command(python: str, root: str = ROOT) -> list[str]:
    """The command that ends the servers in a container, when what they run has ended."""
    return _program(python, "stop", root)
