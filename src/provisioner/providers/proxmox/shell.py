"""Commands on a Proxmox node over OpenSSH: one connection for all of them, and only to a host whose key is known."""

from __future__ import annotations

import hashlib
import os
import selectors
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from provisioner.providers.proxmox import ssh_socket
from provisioner.providers.proxmox.access import Access
from provisioner.providers.proxmox.framing import Frame, Outcome
from provisioner.providers.proxmox.ssh_failures import Destination, destination_of, is_passing, no_ssh, unreachable
from provisioner.values import limits
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Execution

CONNECT_TIMEOUT_S = 10
AGAIN_S = (0.5, 2.0, 5.0)
"""How long is waited before a busy sshd is asked again: of many at once it drops some (MaxStartups)."""
PERSIST_S = 60
BLOCK_BYTES = 1 << 18
SESSIONS = 7
"""At once over one connection: sshd's own limit is 10 (MaxSessions), and Ansible wants some, too."""
ENDING_SESSIONS = 2
"""Kept beside these for what ends other commands: those hold theirs until they are ended."""
OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    f"ConnectTimeout={CONNECT_TIMEOUT_S}",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "LogLevel=ERROR",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "UpdateHostKeys=no",
    f"ControlPersist={PERSIST_S}",
)


class CommandKilledError(ProviderError):
    """A command on the node went beyond one of its limits."""


class CommandTimeoutError(CommandKilledError):
    """A command on the node took longer than it was allowed to."""


class OutputLimitError(CommandKilledError):
    """A command on the node wrote more than it was allowed to."""


class _StoppedError(Exception):
    """We stopped listening to an ``ssh``; ``stderr`` is what it had said until then."""

    def __init__(self, stderr: bytes, *, is_late: bool) -> None:
        super().__init__()
        self.stderr = stderr
        self.is_late = is_late


class Shell:
    """A way to run commands on the node of ``access``; one object serves many threads."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._sessions = threading.BoundedSemaphore(SESSIONS)
        self._ending_sessions = threading.BoundedSemaphore(ENDING_SESSIONS)
        self._opening = threading.Lock()

    @property
    def destination(self) -> Destination:
        """Where it leads; ``PreflightError`` where the file does not say."""
        if not self._access.ssh:
            raise no_ssh("Unable to reach the node")
        return destination_of(self._access.ssh)

    @property
    def socket(self) -> Path:
        """Where the connection is shared: by all threads, and with Ansible's workers."""
        what = f"{self._access.ssh} {self._access.ssh_config}"
        return ssh_socket.folder() / hashlib.sha256(what.encode()).hexdigest()[:16]

    def options(self, master: str = "no") -> list[str]:
        """The options with which every ``ssh`` of ours is called; no destination."""
        config = ["-F", str(self._access.ssh_config)] if self._access.ssh_config else []
        chosen = (*OPTIONS, f"ControlPath={self.socket}", f"ControlMaster={master}")
        port = self.destination.port
        return [*config, *(f"-o{option}" for option in chosen), *(["-p", port] if port else [])]

    def argv(self, command: str, *options: str) -> list[str]:
        """The call that has the node's shell run ``command``."""
        return ["ssh", *self.options(), *options, "--", self.destination.login, command]

    def open(self) -> None:
        """Be connected; ``UnavailableError`` says why not, and what to do."""
        with self._opening:
            if ssh_socket.answers(self.socket):
                return
            with ssh_socket.turn(self.socket):
                if not ssh_socket.answers(self.socket):
                    self._connect()

    def close(self) -> None:
        """Be no longer connected; not being so is success."""
        if self._access.ssh and ssh_socket.answers(self.socket):
            call = ["ssh", *self.options(), "-O", "exit", "--", self.destination.login]
            with suppress(subprocess.TimeoutExpired):  # it ends by itself when nobody has used it for a minute
                subprocess.run(
                    call,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=ssh_environment(),
                    timeout=CONNECT_TIMEOUT_S,
                    check=False,
                )

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | Iterable[bytes] = b"",
        stdout: IO[bytes] | None = None,
        timeout_s: float = limits.COMMAND_S,
        limit: int = limits.OUTPUT_BYTES,
        before_kill: Callable[[], None] = lambda: None,
        is_ending: bool = False,
    ) -> Execution:
        """Run ``argv`` on the node and give all of its output, its stdout into a file when one is given.

        A non-zero exit is no error. ``UnavailableError``: it did not begin; ``ProviderError``: how it ended is not
        known, or the node has no such program; ``CommandTimeoutError``, ``OutputLimitError``: it took longer than
        ``timeout_s``, or its stdout has more than ``limit`` bytes; we called ``before_kill`` while it went on, and
        killed it. A command that ``is_ending`` another one waits for no session of such.
        """
        frame = Frame()
        sessions = self._ending_sessions if is_ending else self._sessions
        try:
            with sessions:
                self.open()
                process = _Process(self.argv(frame.command(argv), "-T"), before_kill)
                out, err = process.communicate(stdin, stdout, timeout_s, limit)
        except _StoppedError as stopped:
            self.kill(frame.outcome(stopped.stderr).pid)
            if stopped.is_late:
                what = f"Unable to wait for {argv[0]} on {self.destination}"
                raise CommandTimeoutError(what, details=limits.killed_after(timeout_s)) from stopped
            what = f"Unable to take what {argv[0]} on {self.destination} writes"
            raise OutputLimitError(what, details=limits.cut_at(limit)) from stopped
        outcome = frame.outcome(err)
        return Execution(self.code(argv, outcome), out, outcome.stderr)

    def code(self, argv: Sequence[str], outcome: Outcome) -> int:
        """The exit code of a framed command; the error that ``run`` promises when there is none."""
        if outcome.pid is None:
            raise unreachable(self.destination, outcome.noise.decode(errors="replace"))
        if outcome.is_missing:
            resolution = "Does ssh: lead to a Proxmox VE node, as root?" if argv[0].startswith("p") else ""
            details = f"There is no {argv[0]} there."
            what = f"Unable to run {argv[0]} on {self.destination}"
            raise ProviderError(what, details=details, resolution=resolution or f"Install {argv[0]} there.")
        if outcome.code is None:
            details = Foreign.of_output(outcome.stderr) or "The connection ended before the command."
            raise ProviderError(f"Unable to tell how {argv[0]} on {self.destination} ended", details=details)
        return outcome.code

    def kill(self, pid: int | None) -> None:
        """Kill a command that was left to itself, by its process group on the node; that is tried once, and briefly."""
        if pid is not None:
            command = f'kill -s KILL -- "-{pid}" 2>/dev/null; :'
            with suppress(_StoppedError), self._ending_sessions:
                self.open()
                _Process(self.argv(command, "-T")).communicate(b"", None, limits.KILL_S, limits.OUTPUT_BYTES)

    def _connect(self) -> None:
        """Be let in; a server that lets go of a newcomer before it has greeted him is asked again, a few times."""
        for wait_s in (*AGAIN_S, None):
            said = self._refused()
            if said is None:
                return
            if wait_s is None or not is_passing(said):
                raise unreachable(self.destination, said)
            time.sleep(wait_s)

    def _refused(self) -> str | None:
        """What ``ssh`` said that could not connect; None when it is connected."""
        call = ["ssh", *self.options("yes"), "-N", "-f", "--", self.destination.login]
        # Not a pipe: an older ssh that goes to the background keeps its stderr open.
        with tempfile.TemporaryFile() as said:
            try:
                done = subprocess.run(
                    call,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    env=ssh_environment(),
                    start_new_session=True,
                    timeout=3 * CONNECT_TIMEOUT_S,
                    check=False,
                )
            except FileNotFoundError as error:
                raise PreflightError("Unable to find ssh", resolution="apt install openssh-client") from error
            except subprocess.TimeoutExpired as error:
                raise unreachable(self.destination, f"ssh timed out after {error.timeout:.0f} s") from error
            said.seek(0)
            return said.read().decode(errors="replace") if done.returncode else None


def ssh_environment() -> dict[str, str]:
    """What ``ssh`` gets: our own environment, but errors in English, and no locale that the node lacks."""
    kept = {name: value for name, value in os.environ.items() if name != "LANG" and not name.startswith("LC_")}
    return kept | {"LC_ALL": "C"}


class _Outputs:
    """What an ``ssh`` writes, read until its end, its deadline or its limits; its stdout may go into a file."""

    def __init__(self, file: IO[bytes] | None, limit: int, deadline: float) -> None:
        self.out, self.err = bytearray(), bytearray()
        self._file = file
        self._limits = {"out": limit, "err": limits.OUTPUT_BYTES}
        self._sizes = {"out": 0, "err": 0}
        self._deadline = deadline

    def read(self, process: subprocess.Popen[bytes]) -> None:
        """Return when both outputs have ended; ``_StoppedError``, else."""
        with selectors.DefaultSelector() as selector:
            for name, pipe in (("out", process.stdout), ("err", process.stderr)):
                if pipe is not None:
                    selector.register(pipe, selectors.EVENT_READ, name)
            while selector.get_map():
                for key, _ in selector.select(self.left()):
                    block = os.read(key.fd, BLOCK_BYTES)
                    if block:
                        self._take(key.data, block)
                    else:
                        selector.unregister(key.fileobj)

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the process has ended; ``_StoppedError``, else."""
        try:
            process.wait(self.left())
        except subprocess.TimeoutExpired as error:
            raise self.stopped(is_late=True) from error

    def left(self) -> float:
        """The seconds until the deadline; ``_StoppedError`` when there are none."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise self.stopped(is_late=True)
        return left_s

    def stopped(self, *, is_late: bool) -> _StoppedError:
        """The reason to stop, with what was said so far."""
        return _StoppedError(bytes(self.err), is_late=is_late)

    def _take(self, name: str, block: bytes) -> None:
        self._sizes[name] += len(block)
        if self._sizes[name] > self._limits[name]:
            raise self.stopped(is_late=False)
        if name == "out" and self._file is not None:
            self._file.write(block)
        else:
            (self.out if name == "out" else self.err).extend(block)


class _Process:
    """One ``ssh``; ctrl-c does not reach it, only us."""

    def __init__(self, call: Sequence[str], before_kill: Callable[[], None] = lambda: None) -> None:
        self._before_kill = before_kill
        self._process = subprocess.Popen(
            call,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ssh_environment(),
            start_new_session=True,
        )
        self._failure: list[BaseException] = []

    def communicate(
        self, stdin: bytes | Iterable[bytes], stdout: IO[bytes] | None, timeout_s: float, limit: int
    ) -> tuple[bytes, bytes]:
        """Feed it and give what it wrote; ``_StoppedError`` with its stderr so far when that was too long or much."""
        deadline = time.monotonic() + timeout_s
        pipe, self._process.stdin = self._process.stdin, None
        feeder = threading.Thread(target=self._feed, args=(pipe, stdin), daemon=True)
        feeder.start()
        outputs = _Outputs(stdout, limit, deadline)
        with self._process as process:
            try:
                outputs.read(process)
                outputs.wait(process)
            except _StoppedError:
                # Without its ssh the command may end, and what it has started would have lost its ancestor.
                self._before_kill()
                raise
            finally:
                # Its pipes may have no end yet: the shared connection holds them for as long as the command runs.
                process.kill()
        feeder.join(CONNECT_TIMEOUT_S)  # what it feeds has ended: it has nobody to write to
        if self._failure:
            raise self._failure[0]
        return bytes(outputs.out), bytes(outputs.err)

    def _feed(self, pipe: Any, stdin: bytes | Iterable[bytes]) -> None:
        # A command may end without reading what it was given: that is its right, and its exit code says the rest.
        try:
            with suppress(BrokenPipeError, ConnectionResetError), pipe:
                for chunk in [stdin] if isinstance(stdin, bytes) else stdin:
                    pipe.write(chunk)
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._failure.append(error)
            self._process.kill()
