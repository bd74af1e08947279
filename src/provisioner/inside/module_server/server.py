"""Runs modules of Ansible in a container: has their common library loaded, and forks a child for each payload.

Carried to the container and run there from standard input, by the Python that would run the modules (3.9 to 3.13).
The server itself never reads a byte that a client sends: the child does. So no secret of a task is in the server.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import datetime as dt
import fcntl
import gc
import importlib
import io
import json
import os
import pathlib
import re
import resource
import runpy
import select
import shutil
import signal
import site
import socket
import struct
import sys
import tempfile
import time
import types
import zipfile
import zipimport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STALE = "Python was changed since"
USED_BY_PAYLOADS = (base64, dt, runpy, shutil, tempfile, zipfile)
"""Loaded here, so that no child has to do it."""
CONFIGURATION, LISTENER, READY, LIBRARY = 3, 4, 5, 6
"""The open files that the program ``start`` hands over."""
LIBRARY_PATH = f"/proc/self/fd/{LIBRARY}"
CORE = ("ansible.module_utils.basic", "ansible.module_utils._internal._ansiballz._loader")
"""Every payload imports these: what they import in turn is what is loaded."""
PROFILE = "ansible/module_utils/_internal/_json/_profiles/_module_legacy_"
"""How the files begin by which nearly all modules read their arguments and write their results."""
DIGEST_BYTES = 32
LARGEST_REQUEST = 1 << 17
PATIENCE_S = 30.0
"""A client that says nothing for so long is given up."""
RIGHTS = ("Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
ATTACHED = re.compile(r"/\.lxc(-\d+)?$", re.MULTILINE)
"""The control group below the container's own in which a command from outside is put; there may be several of them."""
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME = 1, 4, 15
_LIBC = ctypes.CDLL(None, use_errno=True)


class Refusal(Exception):  # noqa: N818  # it is an answer, not an error
    """Why a payload is not run here; the client runs it the usual way."""


def main() -> types.CodeType | None:
    """Serve until nobody needs this server; in a child, return the payload that it has to run."""
    try:
        with open(CONFIGURATION, encoding="utf-8") as stream:
            configuration = json.load(stream)
        _prctl(PR_SET_DUMPABLE, 0)
        library = Library(configuration["digests"])
        server = Server(configuration)
    except Exception as error:  # noqa: BLE001  # whoever started this server gets the reason, whatever it is
        os.write(READY, f"{type(error).__name__}: {error}".encode())
        return None
    os.write(READY, b"ready")
    os.close(READY)
    gc.collect()
    gc.freeze()
    connection = server.serve()
    if connection is None:
        return None
    return Task(connection, library, server).payload()


def _prctl(option: int, value: int | bytes) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Library:
    """The library of Ansible that all payloads have in common, loaded, and who may use it."""

    def __init__(self, digests: dict[str, str]) -> None:
        self._codes: list[types.CodeType] = []
        profiles = [name[:-3].replace("/", ".") for name in digests if name.startswith(PROFILE)]
        self._load([*CORE, *profiles])
        self._watched = watched_paths()
        self._python = [_file_identity(path) for path in self._watched]
        self._modules: list[tuple[types.ModuleType, str]] = []
        for name, module in sorted(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(LIBRARY_PATH):
                self._modules.append((module, name))
        files = [str(module.__file__)[len(LIBRARY_PATH) + 1 :] for module, _ in self._modules]
        self.loaded = frozenset(bytes.fromhex(digests[file]) for file in files)

    def _load(self, names: list[str]) -> None:
        """Import the common modules, and remember their code."""
        original = zipimport._get_module_code  # type: ignore[attr-defined]  # noqa: SLF001

        def remembering(*args: Any) -> Any:
            found = original(*args)
            self._codes.append(found[0])
            return found

        zipimport._get_module_code = remembering  # type: ignore[attr-defined]  # noqa: SLF001
        sys.path.insert(0, LIBRARY_PATH)
        for name in names:
            importlib.import_module(name)
        sys.path.remove(LIBRARY_PATH)
        zipimport._get_module_code = original  # type: ignore[attr-defined]  # noqa: SLF001

    def refuse_when_stale(self) -> None:
        """Refuse every payload when a Python that begins now would be another one."""
        if [_file_identity(path) for path in self._watched] != self._python:
            raise Refusal(STALE)

    def refuse_others(self, digests: frozenset[bytes]) -> None:
        """Refuse a payload whose own library is not what is loaded here."""
        if not self.loaded <= digests:
            raise Refusal("its library is another one")

    def come_from(self, archive: str) -> None:
        """Make every loaded module look as if it had been imported from the payload's own archive.

        What was not loaded is then found there, and tracebacks and ``inspect`` read the sources there.
        """
        loaders: dict[str, zipimport.zipimporter] = {}
        for module, name in self._modules:
            package = os.path.dirname(name.replace(".", "/"))
            if package not in loaders:
                loaders[package] = zipimport.zipimporter(os.path.join(archive, package) if package else archive)
            _move_module(module, loaders[package], archive)
        fix = importlib.import_module("_imp")._fix_co_filename  # noqa: SLF001
        for code in self._codes:
            fix(code, _moved(code.co_filename, archive))


def _moved(path: str, archive: str) -> str:
    if path.startswith(LIBRARY_PATH):
        return archive + path[len(LIBRARY_PATH) :]
    return path


def _move_module(module: types.ModuleType, loader: zipimport.zipimporter, archive: str) -> None:
    spec = module.__spec__
    module.__file__ = _moved(str(module.__file__), archive)
    module.__loader__ = loader
    if spec is not None:
        spec.loader = loader  # type: ignore[assignment]
        spec.origin = module.__file__
    if hasattr(module, "__path__"):
        paths = [_moved(path, archive) for path in module.__path__]
        module.__path__ = paths
        if spec is not None:
            spec.submodule_search_locations = paths
    for name, value in list(vars(module).items()):
        if isinstance(value, pathlib.Path) and str(value).startswith(LIBRARY_PATH):
            setattr(module, name, pathlib.Path(_moved(str(value), archive)))


def watched_paths() -> list[str]:
    """The files whose replacement makes a Python that begins now another one than this.

    Its own file, all libraries that it has loaded, and the folders in which packages appear, those that are missing
    included: a module may look for a package that an earlier task has just installed.
    """
    paths = {sys.executable, os.__file__, *site.getsitepackages(), site.getusersitepackages(), *sys.path}
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            fields = line.split(None, 5)
            if len(fields) > 5 and fields[5].startswith("/"):  # noqa: PLR2004  # the sixth is the file
                paths.add(fields[5].rstrip("\n"))
    return sorted(path for path in paths if path and not path.startswith(("/proc/", "/memfd:", "/dev/")))


def _file_identity(path: str) -> tuple[int, ...]:
    try:
        about = os.stat(path)
    except FileNotFoundError:
        return ()
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


class Server:
    """Accepts connections, forks a child for each, and tells the client how that ended."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self._path = str(configuration["path"])
        self._idle_s = float(configuration["idle_s"])
        self.environment = _environment_of("self")
        self.direct = tuple(beginning.encode() for beginning in configuration["direct"])
        """How variables begin by which a process is another one from its very start: this one has no others."""
        self.listener = socket.socket(fileno=LISTENER)
        self.listener.setblocking(False)
        self.listener.listen()  # once more: from now on it bears this process's number, not the starting one's
        self._inode = os.stat(self._path).st_ino
        self._clients: dict[int, socket.socket] = {}
        self._is_ending = False
        self._last_used = time.monotonic()
        self._poller = select.poll()
        self._poller.register(self.listener, select.POLLIN)
        self._waker, wakes = os.pipe()
        for end in (self._waker, wakes):
            os.set_blocking(end, False)
        self._poller.register(self._waker, select.POLLIN)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGTERM, lambda _number, _frame: self._stop_listening())
        _prctl(PR_SET_NAME, b"module-server")

    def serve(self) -> socket.socket | None:
        """The connection that a child has to serve; None when the server has come to its end."""
        while True:
            connection = self._step()
            if connection is not None:
                return connection
            if self._is_ending and not self._clients and not self._poller.poll(0):
                return None

    def _step(self) -> socket.socket | None:
        for descriptor, _event in self._poller.poll(self._patience_ms()):
            if descriptor == LISTENER:
                connection = self._accept()
                if connection is not None:
                    return connection
            elif descriptor == self._waker:
                os.read(descriptor, 1 << 12)
            else:
                self._client_has_gone(descriptor)
        self._tell_ends()
        if self._patience_ms() == 0:
            self._stop_listening()
        return None

    def _patience_ms(self) -> int | None:
        """How long to wait for something to happen; None while children work: theirs is what happens next."""
        if self._clients:
            return None
        return max(0, int(1000 * (self._last_used + self._idle_s - time.monotonic())))

    def _accept(self) -> socket.socket | None:
        """In a child its connection; None in the server."""
        try:
            connection, _ = self.listener.accept()
        except BlockingIOError:  # the client has gone meanwhile
            return None
        if peer_of(connection)[1] != os.getuid():
            connection.close()
            return None
        child = os.fork()
        if child == 0:
            return connection
        self._clients[child] = connection
        self._poller.register(connection, 0)  # only its end is of interest
        return None

    def _client_has_gone(self, descriptor: int) -> None:
        """Kill the child: nobody waits for it any more, just as when the Python of a module is killed."""
        self._poller.unregister(descriptor)
        for child, connection in self._clients.items():
            if connection.fileno() == descriptor:
                _kill_group(child)

    def _tell_ends(self) -> None:
        while self._clients:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            connection = self._clients.pop(child)
            with contextlib.suppress(KeyError, OSError):  # the client has gone: nobody is left to be told
                self._poller.unregister(connection)
                connection.send(b"ended %d" % status)
            connection.close()
            self._last_used = time.monotonic()

    def forget(self) -> None:
        """In a child: give up all files of the server, so that nothing closes their numbers later."""
        self.listener.detach()
        for connection in self._clients.values():
            connection.detach()

    def _stop_listening(self) -> None:
        """Give up the name, so that a new server can begin; children and clients that wait are served to their end."""
        if self._is_ending:
            return
        self._is_ending = True
        folder = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            if os.path.exists(self._path) and os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)
            if not os.listdir(folder):
                os.rmdir(os.path.dirname(self._path))
        finally:
            os.close(folder)


def peer_of(connection: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end."""
    pid, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid, gid


def _kill_group(child: int) -> None:
    for kill in (os.killpg, os.kill):  # it may not have its own group yet
        with contextlib.suppress(ProcessLookupError):
            kill(child, signal.SIGKILL)


def _environment_of(process: str | int) -> list[bytes]:
    with open(f"/proc/{process}/environ", "rb") as stream:
        return [entry for entry in stream.read().split(b"\0") if entry]


def _status_of(process: str | int) -> dict[str, str]:
    found: dict[str, str] = {}
    with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            key, _, value = line.partition(":")
            found[key + ":"] = value.strip()
    return found


def _place_of(process: str | int) -> list[str]:
    """Where a process lives, and what it may do: none that is elsewhere can be stood in for."""
    status = _status_of(process)
    place = [status.get(right, "") for right in RIGHTS]
    place += [os.readlink(f"/proc/{process}/ns/{name}") for name in NAMESPACES]
    place.append(os.readlink(f"/proc/{process}/root"))
    with open(f"/proc/{process}/cgroup", encoding="utf-8") as stream:
        place.append(ATTACHED.sub("", stream.read()))
    return place


class Task:
    """One payload, in a child: takes the place of the client's process, and is what that would have been."""

    def __init__(self, connection: socket.socket, library: Library, server: Server) -> None:
        self._connection = connection
        self._library = library
        self._server = server
        self._client = peer_of(connection)[0]

    def payload(self) -> types.CodeType:
        """The payload's program, ready to be run as the main program."""
        os.setsid()
        server = os.getppid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(PR_SET_NAME, os.path.basename(sys.executable).encode()[:15])
        self._connection.settimeout(PATIENCE_S)
        try:
            self._answer(self._connection.recv(LARGEST_REQUEST), server)
        except OSError:  # a client that says nothing, or has gone: it has lost nothing yet
            os._exit(1)
        self._take_place()
        return compile(_read_all(0), "<stdin>", "exec", dont_inherit=True)

    def _answer(self, request: bytes, server: int) -> None:
        """Return when the payload may be run here; else tell the client why not, and end."""
        if request == b"stop\n":
            os.kill(server, signal.SIGTERM)
            os._exit(0)
        try:
            self._check(request)
        except Refusal as refusal:
            self._connection.send(str(refusal).encode())
            if refusal.args[0] == STALE:
                os.kill(server, signal.SIGTERM)
            os._exit(0)
        self._connection.send(b"ok")

    def _check(self, request: bytes) -> None:
        command, _, digests = request.partition(b"\n")
        if command != b"run" or len(digests) % DIGEST_BYTES:
            raise Refusal("a request that nobody understands")
        self._library.refuse_when_stale()
        parts = range(0, len(digests), DIGEST_BYTES)
        self._library.refuse_others(frozenset(digests[start : start + DIGEST_BYTES] for start in parts))
        direct = [entry for entry in _environment_of(self._client) if entry.startswith(self._server.direct)]
        if sorted(direct) != sorted(self._server.environment):
            raise Refusal("another environment")
        if _place_of(self._client) != _place_of("self"):
            raise Refusal("other rights, or another place")

    def _take_place(self) -> None:
        """Take what the client's process has: files, folder, environment, umask, limits, signals."""
        message, descriptors, _, _ = socket.recv_fds(self._connection, 16, 4)
        if message != b"go" or len(descriptors) != 4:  # noqa: PLR2004  # three streams and a folder
            os._exit(1)
        status = _status_of(self._client)
        environment = _environment_of(self._client)
        for number in _limits():
            resource.setrlimit(number, resource.prlimit(self._client, number))
        os.fchdir(descriptors[3])
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
        self._connection.detach()
        self._server.forget()
        os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
        os.umask(int(status["Umask:"], 8))
        _take_environment(environment, self._server.environment)
        _take_signals(status)
        self._library_for_payload()
        _fresh_main()

    def _library_for_payload(self) -> None:
        """Have the library moved to the payload's archive when the payload asks for the function that runs a module.

        It has put its archive before all others by then.
        """
        loader = importlib.import_module(CORE[1])
        run_module = vars(loader).pop("run_module")

        def find(name: str) -> Any:
            if name != "run_module":
                raise AttributeError(name)
            del vars(loader)["__getattr__"]
            vars(loader)["run_module"] = run_module
            self._library.come_from(sys.path[0])
            return run_module

        vars(loader)["__getattr__"] = find


def _limits() -> list[int]:
    return sorted({number for name, number in vars(resource).items() if name.startswith("RLIMIT_")})


def _take_environment(environment: list[bytes], at_start: list[bytes]) -> None:
    """Take the client's variables, and those that Python itself has added to the server's: its locale."""
    names_at_start = {entry.partition(b"=")[0] for entry in at_start}
    added = {name: value for name, value in os.environb.items() if name not in names_at_start}
    os.environb.clear()
    os.environb.update(added)
    for entry in environment:
        name, _, value = entry.partition(b"=")
        os.environb[name] = value
    time.tzset()


def _take_signals(status: dict[str, str]) -> None:
    ignored = int(status["SigIgn:"], 16)
    for number in signal.valid_signals():
        is_ignored = ignored >> (number - 1) & 1
        if number in (signal.SIGKILL, signal.SIGSTOP) or signal.getsignal(number) is None:
            continue  # nobody can set the first two, and C libraries keep some for themselves
        if number == signal.SIGINT and not is_ignored:
            signal.signal(number, signal.default_int_handler)
        else:
            signal.signal(number, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    blocked = int(status["SigBlk:"], 16)
    signal.pthread_sigmask(signal.SIG_SETMASK, {n for n in signal.valid_signals() if blocked >> (n - 1) & 1})


def _read_all(descriptor: int) -> bytes:
    parts: list[bytes] = []
    while True:
        part = os.read(descriptor, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _fresh_main() -> None:
    """Give the payload standard streams and a main module as a Python has them that reads its program from there."""
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.stdin)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.stdout)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.stderr)  # type: ignore[misc]
    sys.excepthook = _show_without_server
    sys.argv = [""]
    main_module = types.ModuleType("__main__")
    given: dict[str, Any] = {
        "__builtins__": sys.modules["builtins"],
        "__annotations__": {},
        "__loader__": globals().get("__loader__"),
    }
    vars(main_module).update(given)
    sys.modules["__main__"] = main_module


def _show_without_server(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Show an error that ends the payload as Python does, without the line of this program that ran the payload."""
    inner = trace.tb_next if trace else None
    sys.__excepthook__(kind, error.with_traceback(inner), inner)


def _stream(descriptor: int, mode: str, model: Any) -> io.TextIOWrapper:
    """A text stream of the same kind as the one that Python made at the server's start."""
    raw = io.FileIO(descriptor, mode, closefd=False)
    buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    is_terminal = raw.isatty()
    raw.name = model.name
    stream = io.TextIOWrapper(
        buffer,
        encoding=model.encoding,
        errors=model.errors,
        line_buffering=is_terminal or descriptor == 2,  # noqa: PLR2004
    )
    stream.mode = mode  # type: ignore[misc]
    return stream


if __name__ == "__main__":
    _PAYLOAD = main()
    if _PAYLOAD is not None:
        exec(_PAYLOAD, vars(sys.modules["__main__"]))  # noqa: S102  # nothing else is this program's purpose
