"""Commands on a Proxmox node over OpenSSH: one connection for all of them, and only to a host whose key is known."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import selectors
import shlex
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from provisioner.hosts.proxmox.access import Access
from provisioner.values import limits
from provisioner.values.errors import PreflightError, ProviderError, UnavailableError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Execution

CONNECT_TIMEOUT_S = 10
CONNECT_AGAIN_S = (0.5, 2.0, 5.0)
"""How long is waited before a busy sshd is asked again: of many at once it drops some (MaxStartups)."""
CONNECTION_PERSIST_S = 60
BLOCK_BYTES = 1 << 18
SESSIONS = 7
"""At once over one connection: sshd's own limit is 10 (MaxSessions), and Ansible wants some, too."""
ENDING_SESSIONS = 2
"""Kept beside these for what ends other commands: those hold theirs until they are ended."""
SSH_OPTIONS = (
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
    f"ControlPersist={CONNECTION_PERSIST_S}",
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
            raise no_ssh_error("Unable to reach the node")
        return destination_of(self._access.ssh)

    @property
    def socket(self) -> Path:
        """Where the connection is shared: by all threads, and with Ansible's workers."""
        what = f"{self._access.ssh} {self._access.ssh_config}"
        return socket_folder() / hashlib.sha256(what.encode()).hexdigest()[:16]

    def options(self, master: str = "no") -> list[str]:
        """The options with which every ``ssh`` of ours is called; no destination."""
        config = ["-F", str(self._access.ssh_config)] if self._access.ssh_config else []
        chosen = (*SSH_OPTIONS, f"ControlPath={self.socket}", f"ControlMaster={master}")
        port = self.destination.port
        return [*config, *(f"-o{option}" for option in chosen), *(["-p", port] if port else [])]

    def argv(self, command: str, *options: str) -> list[str]:
        """The call that has the node's shell run ``command``."""
        return ["ssh", *self.options(), *options, "--", self.destination.login, command]

    def open(self) -> None:
        """Be connected; ``UnavailableError`` says why not, and what to do."""
        with self._opening:
            if socket_answers(self.socket):
                return
            with connecting_turn(self.socket):
                if not socket_answers(self.socket):
                    self._connect()

    def close(self) -> None:
        """Be no longer connected; not being so is success."""
        if self._access.ssh and socket_answers(self.socket):
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
                process = _SshProcess(self.argv(frame.command(argv), "-T"), before_kill)
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

    def code(self, argv: Sequence[str], outcome: FramedOutcome) -> int:
        """The exit code of a framed command; the error that ``run`` promises when there is none."""
        if outcome.pid is None:
            raise unreachable_error(self.destination, outcome.noise.decode(errors="replace"))
        if outcome.is_missing:
            is_of_proxmox = argv[0].startswith("p")
            install = f"Install {argv[0]} there."
            resolution = "Does ssh: lead to a Proxmox VE node, as root?" if is_of_proxmox else install
            details = f"There is no {argv[0]} there."
            what = f"Unable to run {argv[0]} on {self.destination}"
            raise ProviderError(what, details=details, resolution=resolution)
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
                _SshProcess(self.argv(command, "-T")).communicate(b"", None, limits.KILL_S, limits.OUTPUT_BYTES)

    def _connect(self) -> None:
        """Be let in; a server that lets go of a newcomer before it has greeted him is asked again, a few times."""
        for wait_s in (*CONNECT_AGAIN_S, None):
            said = self._refused()
            if said is None:
                return
            if wait_s is None or not is_passing_failure(said):
                raise unreachable_error(self.destination, said)
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
                raise unreachable_error(self.destination, f"ssh timed out after {error.timeout:.0f} s") from error
            said.seek(0)
            return said.read().decode(errors="replace") if done.returncode else None


def ssh_environment() -> dict[str, str]:
    """What ``ssh`` gets: our own environment, but errors in English, and no locale that the node lacks."""
    kept = {name: value for name, value in os.environ.items() if name != "LANG" and not name.startswith("LC_")}
    return kept | {"LC_ALL": "C"}


class _SshOutputs:
    """What an ``ssh`` writes, read until its end, its deadline or its limits; its stdout may go into a file."""

    def __init__(self, file: IO[bytes] | None, limit: int, deadline: float) -> None:
        self.out, self.err = bytearray(), bytearray()
        self._take_block: dict[str, Callable[[bytes], object]] = {
            "out": self.out.extend if file is None else file.write,
            "err": self.err.extend,
        }
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
        self._take_block[name](block)


class _SshProcess:
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
        outputs = _SshOutputs(stdout, limit, deadline)
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


# Frames of commands on the other side of `ssh`, so that their exit code is not taken for that of `ssh` or `pct`. Both
# of those give 255 when they fail, which a command may give, too; and both write to its stderr. So each side writes a
# line with a random mark before and after the command, which `Frame` takes out again.

_FRAME_SCRIPT = """
mark=$1; shift
printf '%s:node:%s\\n' "$mark" $$ >&2
if command -v "$1" >/dev/null; then ("$@"); printf '%s:end:%s\\n' "$mark" $? >&2
else printf '%s:missing\\n' "$mark" >&2; fi
"""
_BOUND_SCRIPT = """
seconds=$1 most=$2; shift 2
exec 4>&1 5>&2
code=$({
  {
    { timeout --foreground -k 10 "$seconds" "$@" 3>&- 4>&- 5>&- 6>&-; echo $? >&3; } 2>&1 >&6 6>&- |
      head -c "$most" >&5
  } 6>&1 | head -c "$most" >&4
} 3>&1)
exit "${code:-255}"
"""


def bounded_call(argv: Sequence[str], seconds: float, most: int) -> list[str]:
    """The call that runs ``argv`` for no longer than ``seconds``, and gives ``most`` bytes of each of its outputs."""
    return ["sh", "-c", _BOUND_SCRIPT, "provision", str(round(seconds)), str(most), *argv]


@dataclass(frozen=True, slots=True)
class FramedOutcome:
    """What became of a framed command.

    ``pid``: its process group on the node. ``code``: its exit code, None when that is not known. ``stderr``: what it
    wrote; ``noise``: what was written before it began, by ssh, by a shell's start files.
    """

    pid: int | None
    code: int | None
    is_missing: bool
    stderr: bytes
    noise: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of one command."""

    mark: str = field(default_factory=lambda: secrets.token_hex(16))

    def command(self, argv: Sequence[str]) -> str:
        """What the node's shell is given to run ``argv``; it ends with 0 once the command has ended, however."""
        return shlex.join(["exec", "/bin/sh", "-c", _FRAME_SCRIPT, "provision", self.mark, *argv])

    def outcome(self, stderr: bytes) -> FramedOutcome:
        """What a whole stderr says of the command."""
        mark = re.escape(self.mark).encode()
        begun = re.search(mark + rb":node:(\d+)\n", stderr)
        if begun is None:
            return FramedOutcome(None, None, is_missing=False, stderr=b"", noise=stderr)
        own = stderr[begun.end() :]
        ended = re.search(mark + rb":(?:end:(\d+)|(missing))\n", own)
        code = int(ended[1]) if ended and ended[1] else None
        if ended:
            own = own[: ended.start()] + own[ended.end() :]
        return FramedOutcome(
            int(begun[1]), code, is_missing=bool(ended and ended[2]), stderr=own, noise=stderr[: begun.start()]
        )


# The sockets over which processes of one user share a connection of `ssh`.

SOCKET_PATH_BYTES = 108 - 1 - 17
"""A socket's path has 108 bytes; ssh adds 17 characters while it makes one."""
SOCKET_NAME_BYTES = 16


def socket_folder() -> Path:
    """A folder of this user's alone, with a short path."""
    candidates = [
        path for path in _socket_folders() if len(os.fsencode(path)) + 1 + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES
    ]
    # Anybody may have taken a name in /tmp; that must not keep us from working where we have another place.
    chosen = next(filter(_is_own_folder, candidates), candidates[-1])
    if not _is_own_folder(chosen) or chosen.lstat().st_mode & 0o077:
        details = "Somebody else could use connections that are shared there."
        raise UnavailableError(f"Unable to use folder {chosen}", details=details, resolution=f"Remove {chosen}.")
    return chosen


def _socket_folders() -> list[Path]:
    """The folders that may be used, the best first."""
    candidates: list[Path] = []
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        candidates.append(Path(runtime, "provision"))
    if os.getuid() == 0:
        candidates.append(Path("/run/provision"))
    name = f"provision-{os.getuid()}"
    return [*candidates, Path(tempfile.gettempdir(), name), Path("/tmp", name)]  # noqa: S108 - checked below


def _is_own_folder(path: Path) -> bool:
    """Whether this is a folder of this user, made where there was nothing; a link is none."""
    with suppress(OSError):
        path.mkdir(mode=0o700)
    try:
        seen = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid()


def socket_answers(path: Path) -> bool:
    """Whether a connection is shared there; what a dead ``ssh`` has left is removed."""
    with socket.socket(socket.AF_UNIX) as end:
        try:
            end.connect(str(path))
        except FileNotFoundError:
            return False
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return False
    return True


@contextmanager
def connecting_turn(path: Path) -> Iterator[None]:
    """One at a time connects; the others wait and then share."""
    with path.with_name(f"{path.name}.turn").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# What `ssh` says when it cannot reach a node or is not let in: what failed, and what to do now.

_FAILURES = {
    "changed key": "REMOTE HOST IDENTIFICATION HAS CHANGED|host key for .* has changed",
    "unknown key": "host key is known for|Host key verification failed",
    "refused key": "Permission denied|Too many authentication failures",
    "let go": "kex_exchange_identification",
    "refused": "Connection refused",
    "silent": "timed out|No route to host|Network is unreachable|Host is down",
    "nameless": "Could not resolve hostname",
}
CHANGED_KEY, UNKNOWN_KEY = "changed key", "unknown key"
"""Those in which the other side answers, and its host key is another one than the known one, or none is known."""
_ADVICE = {
    "changed key": "It shows another host key than the one that is known. Was it installed anew? Then compare its key "
    "on its own console (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), remove the old one "
    "(ssh-keygen -R '{known}') and take up the new one: ssh {option}{login}. If not, somebody may stand between "
    "you and it.",
    "unknown key": "Its host key is not known here. Compare the fingerprint that ssh-keyscan {option}{host} "
    "| ssh-keygen -lf - prints with the one on its own console (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), and "
    "add the key to ~/.ssh/known_hosts; or log in once by hand, ssh {option}{login}, and confirm it there.",
    "refused key": "It takes none of the keys that ssh offers, and provision types no passwords. Put yours there: "
    "ssh-copy-id {option}{login}; a key with a passphrase must be in ssh-agent (ssh-add).",
    "let go": "The sshd of {host} lets go of newcomers: is it busy (MaxStartups in its sshd_config), or does something "
    "there, such as fail2ban, keep this machine out?",
    "refused": "Nothing listens on port {port} of {host}: does its sshd run, and is the port right?",
    "silent": "Is {host} switched on, is the address right, and does a firewall let port {port} pass?",
    "nameless": "The name {host} leads nowhere from here: write its address, or a Host entry in ~/.ssh/config.",
}
"""What to do, by the names of failures; with parts of a destination."""


@dataclass(frozen=True, slots=True)
class Destination:
    """``[USER@]HOST[:PORT]`` taken apart; ``port`` is empty where ssh itself decides."""

    login: str
    host: str
    port: str

    def __str__(self) -> str:
        return f"{self.login}:{self.port}" if self.port else self.login


def destination_of(text: str) -> Destination:
    """What ``ssh:`` says, as ssh wants it; an IPv6 address stands in brackets there."""
    user, at, rest = text.rpartition("@")
    match = re.fullmatch(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:]+))(?::(?P<port>\d+))?", rest)
    if match is None:
        raise PreflightError(f"Unable to use {text} as a destination of ssh", resolution="Write ssh: user@host:port.")
    host = match["six"] or match["host"]
    return Destination(f"{user}{at}{host}", host, match["port"] or "")


def no_ssh_error(what: str) -> PreflightError:
    """What is said where the file gives no way into the node."""
    return PreflightError(
        f"{what}: work inside containers on Proxmox needs ssh",
        details="The API of Proxmox VE runs no commands in containers and copies no files.",
        resolution="Write ssh: root@NODE on the host's page, with a key that the node lets in.",
    )


def unreachable_error(destination: Destination, said: str) -> UnavailableError:
    """The error for an ``ssh`` that did not get as far as to run anything; ``said`` is what it wrote."""
    host, port = destination.host, destination.port
    resolution = _ADVICE.get(ssh_failure(said), "").format(
        host=host,
        port=port or 22,
        login=destination.login,
        option=f"-p {port} " if port else "",
        known=f"[{host}]:{port}" if port else host,
    )
    what = f"Unable to reach {destination} by ssh"
    said = said.replace("\r\n", "\n").strip()  # ssh ends its own lines as a terminal in raw mode needs it
    return UnavailableError(what, details=said or "It ended without a word.", resolution=resolution)


def ssh_failure(said: str) -> str:
    """Why ``ssh`` was not let in, by what it wrote; "" where that is not known."""
    return next((name for name, pattern in _FAILURES.items() if re.search(pattern, said)), "")


def is_passing_failure(said: str) -> bool:
    """Whether the other side let go before it had greeted us: nothing was asked of it, and the next time it may not."""
    return "kex_exchange_identification" in said
