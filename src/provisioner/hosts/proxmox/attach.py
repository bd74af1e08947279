"""Run one command in a container with its streams joined to descriptors of ours, with or without a terminal.

``ssh`` writes to our stdout, and to our terminal, itself. Our stdin passes through us, because what is to be run is
told over it, and stderr does, because that is where frames are (``ssh.Frame``).
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from provisioner.hosts.proxmox import execute
from provisioner.hosts.proxmox.execute import PctCall
from provisioner.hosts.proxmox.ssh import Frame, Shell, ssh_environment
from provisioner.values import limits
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.signals import HEARD, heard_signals

INTERRUPTED = 130
NOBODY_READS = 128 + signal.SIGPIPE
_KEEP = 'umask 077; file=$(mktemp) && cat >"$file" && echo "$file"'


@dataclass(frozen=True, slots=True)
class Ends:
    """The descriptors of ours that a command's streams are joined to; ``terminal``: they are one terminal."""

    stdin: int
    stdout: int
    stderr: int
    terminal: bool = False


def attach(
    shell: Shell,
    vmid: int,
    command: Sequence[str],
    ends: Ends,
    environment: Mapping[str, str] | None = None,
    *,
    name: str = "",
) -> int:
    """Run ``command`` as root in the container until it ends, and give its exit code; errors as in ``execute.execute``.

    SIGINT, SIGTERM and SIGHUP end the command with its children and give 130; a reader of ours that goes away does so
    too, and gives 141, as a shell would. In a thread other than the main one no signal is heard.
    """
    what = f"Unable to run {command[0]} in container {name or vmid}"
    terminal = {"TERM": os.environ.get("TERM") or "dumb"} if ends.terminal else {}
    call = PctCall(vmid, command, {**terminal, **(environment or {})})
    with heard_signals() as signals:
        shell.open()
        joined = _in_terminal if ends.terminal else _in_streams
        return joined(shell, call, ends, signals, what)


def _in_streams(shell: Shell, call: PctCall, ends: Ends, signals: int | None, what: str) -> int:
    frame = Frame()
    sieve = Sieve(f"{call.mark}:inside\n".encode(), frame.mark.encode())

    def end(number: signal.Signals) -> None:
        execute.kill_processes(
            shell, call, signal.Signals.SIGTERM.name[3:] if number is signal.SIGPIPE else number.name[3:]
        )
        # It may not have begun yet, and would do so now.
        shell.kill(frame.outcome(bytes(sieve.said)).pid)

    with ExitStack() as stack:
        stack.enter_context(_kept_blocking(ends.stdout))
        process = stack.enter_context(
            subprocess.Popen(
                shell.argv(frame.command(call.argv), "-T"),
                stdin=subprocess.PIPE,
                stdout=ends.stdout,
                stderr=subprocess.PIPE,
                env=ssh_environment(),
                start_new_session=True,
            )
        )
        relay = Relay(process, (ends.stdin, ends.stdout, ends.stderr), sieve, signals, end)
        try:
            relay.run(call.head)
        except BaseException:
            # In the container first: without its ssh the call may end, and with it what its children are found by.
            try:
                execute.kill_processes(shell, call)
            finally:
                process.kill()
            raise
    if relay.ended_by is not None:
        return NOBODY_READS if relay.ended_by is signal.SIGPIPE else INTERRUPTED
    outcome = frame.outcome(bytes(sieve.said))
    if outcome.code is None and not relay.is_read:
        return NOBODY_READS
    code = shell.code(call.argv, outcome)
    if call.own_stderr(bytes(sieve.said)) is None:
        raise execute.not_begun_error(what, outcome.stderr)
    return code


def _in_terminal(shell: Shell, call: PctCall, ends: Ends, signals: int | None, what: str) -> int:
    # Its stdin is the terminal, and its arguments can be read by everybody: what is to be run lies in a file.
    words = call.words.encode(errors="surrogateescape")
    kept = execute.execute_call(shell, PctCall(call.vmid, ["sh", "-c", _KEEP]), what, stdin=words)
    if kept.returncode:
        raise ProviderError(what, details=Foreign.of_output(kept.stderr))
    file = kept.stdout.decode(errors="surrogateescape").strip()
    command = f"exec {shlex.join(call.opened(file))}"
    with _restored(ends.stdin):
        # In our own process group: only the foreground's may set a terminal's mode.
        process = subprocess.Popen(
            shell.argv(command, "-tt"), stdin=ends.stdin, stdout=ends.stdout, stderr=ends.stderr, env=ssh_environment()
        )
        ended_by = _waited(process, signals)
    if ended_by is None:
        return process.returncode
    execute.kill_processes(shell, call)
    return INTERRUPTED


def _waited(process: subprocess.Popen[bytes], signals: int | None) -> signal.Signals | None:
    """Wait for the end of ``ssh``, or for a signal that ends it; a terminal's new size is handed on."""
    over, end = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(end)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    ended_by = None
    try:
        poll = select.poll()
        for one in (over, signals):
            if one is not None:
                poll.register(one, select.POLLIN)
        while over not in (ready := dict(poll.poll())):
            for number in os.read(next(iter(ready)), 64):
                if number == signal.SIGWINCH:
                    process.send_signal(number)
                else:
                    ended_by = signal.Signals(number)
                    process.terminate()
    finally:
        process.terminate()
        waiter.join()
        os.close(over)
    return ended_by


@contextmanager
def _restored(terminal: int) -> Iterator[None]:
    """The terminal is as it was afterwards, whatever happens to ``ssh``."""
    before = termios.tcgetattr(terminal)
    try:
        yield
    finally:
        with suppress(termios.error):  # a terminal that is gone needs no restoring
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def _kept_blocking(descriptor: int) -> Iterator[None]:
    """The descriptor's mode, which others may share, is as it was; an ``ssh`` that is killed does not see to that."""
    before = os.get_blocking(descriptor)
    try:
        yield
    finally:
        os.set_blocking(descriptor, before)


# The relay between our descriptors and a running `ssh`; it ends the command when asked to.

UNREAD_S = 0.5
"""How long a silent command may go on when nobody reads what it writes: it may just have ended."""
LINGER_S = 5.0
"""How long ``ssh`` may take to notice that its command has been killed."""
BLOCK_BYTES = 1 << 15
UNWRITTEN_BYTES = 1 << 18
"""So much output waits for a slow reader before we stop listening."""
NOISE_BYTES = 1 << 20
"""So much may ssh, pct and the start files of shells say before a command begins."""
_LOST = select.POLLERR | select.POLLHUP | select.POLLNVAL


@dataclass
class Sieve:
    """Tells a command's own stderr from what stands around it: all until ``begin``, and the line with ``mark``."""

    begin: bytes
    mark: bytes
    said: bytearray = field(default_factory=bytearray)
    """What stands around it."""
    _held: bytearray = field(default_factory=bytearray)
    _has_begun: bool = False

    def own(self, data: bytes) -> bytes:
        """What of the next bytes, and of those held back, is the command's own; ``ProviderError`` for endless noise."""
        self._held += data
        if not self._has_begun:
            before, found, after = self._held.partition(self.begin)
            if not found and len(self._held) > NOISE_BYTES:
                raise ProviderError("Unable to run a command in a container", details=limits.cut_at(NOISE_BYTES))
            if not found:
                return b""
            self.said += before + found
            self._held, self._has_begun = after, True
        return self._passed()

    def rest(self) -> bytes:
        """The same of what is held back when nothing follows."""
        rest, self._held = bytes(self._held), bytearray()
        if self._has_begun:
            return rest
        self.said += rest
        return b""

    def _passed(self) -> bytes:
        before, found, after = self._held.partition(self.mark)
        if found:
            line, end, after = after.partition(b"\n")
            if not end:
                self._held = found + line
                return bytes(before)
            self.said += found + line + end
            self._held = bytearray()
            return bytes(before + after)
        kept = next(n for n in range(min(len(self.mark) - 1, len(before)), -1, -1) if before.endswith(self.mark[:n]))
        self._held = before[len(before) - kept :]
        return bytes(before[: len(before) - kept])


class Relay:
    """One running ``ssh``: ``ends`` are our stdin, stdout and stderr; it writes to the second of them itself.

    ``end`` is called in a thread with the signal that shall end the command, and returns when that has happened.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        ends: tuple[int, int, int],
        sieve: Sieve,
        signals: int | None,
        end: Callable[[signal.Signals], None],
    ) -> None:
        if process.stdin is None or process.stderr is None:
            raise ValueError("ssh needs pipes for stdin and stderr")
        self.ended_by: signal.Signals | None = None
        self._process, self._sieve, self._signals, self._kill = process, sieve, signals, end
        self._stdin, self._stdout, self._stderr = ends
        self._in, self._err = process.stdin, process.stderr
        os.set_blocking(self._in.fileno(), False)
        self._unsent = b""
        self._unwritten = bytearray()
        self.is_read = True
        self._input_open, self._over = True, False
        self._due: tuple[float, Callable[[], None]] | None = None
        self._killed, self._killing = os.pipe()
        self._killer: threading.Thread | None = None

    def run(self, head: bytes) -> None:
        """Send ``head`` and then our stdin; return when ``ssh`` has ended and all that it wrote is written."""
        self._unsent = head
        try:
            while not self._over or self._unwritten:
                self._wait()
            self._process.wait()
        finally:
            if self._killer is not None:
                self._killer.join()
            os.close(self._killed)
            os.close(self._killing)

    def _wait(self) -> None:
        interests = self._interests()
        poll = select.poll()
        masks: dict[int, int] = {}
        for descriptor, mask, _ in interests:
            masks[descriptor] = masks.get(descriptor, 0) | mask
        for descriptor, mask in masks.items():
            poll.register(descriptor, mask)
        left_ms = None if self._due is None else max(0.0, self._due[0] - time.monotonic()) * 1000
        seen = dict(poll.poll(left_ms))
        for descriptor, mask, act in interests:
            if seen.get(descriptor, 0) & (mask | _LOST):
                act()
        if self._due is not None and time.monotonic() >= self._due[0]:
            _, act = self._due
            self._due = None
            act()

    def _interests(self) -> list[tuple[int, int, Callable[[], None]]]:
        wanted: list[tuple[int, int, Callable[[], None]]] = []
        if self._signals is not None:
            wanted.append((self._signals, select.POLLIN, self._hear))
        if self._killer is not None and self._due is None:
            wanted.append((self._killed, select.POLLIN, self._after_kill))
        if not self._over and len(self._unwritten) < UNWRITTEN_BYTES:
            wanted.append((self._err.fileno(), select.POLLIN, self._read_error))
        if self._unwritten:
            wanted.append((self._stderr, select.POLLOUT, self._write))
        if self.is_read:
            wanted.append((self._stdout, 0, self._learn_unread))
        if self._unsent:
            wanted.append((self._in.fileno(), select.POLLOUT, self._send))
        elif self._input_open and not self._over:
            wanted.append((self._stdin, select.POLLIN, self._read))
        return wanted

    def _read(self) -> None:
        self._unsent = os.read(self._stdin, BLOCK_BYTES)
        if not self._unsent:
            self._close_input()

    def _send(self) -> None:
        # A command may end without reading what it was given: that is its right, and its exit code says the rest.
        try:
            sent = os.write(self._in.fileno(), self._unsent)
        except (BrokenPipeError, ConnectionResetError):
            self._close_input()
        else:
            self._unsent = self._unsent[sent:]

    def _close_input(self) -> None:
        self._unsent, self._input_open = b"", False
        self._in.close()

    def _read_error(self) -> None:
        data = os.read(self._err.fileno(), BLOCK_BYTES)
        self._over = not data
        self._unwritten += self._sieve.own(data) if data else self._sieve.rest()

    def _write(self) -> None:
        try:
            written = os.write(self._stderr, self._unwritten[: select.PIPE_BUF])
        except BlockingIOError:  # somebody else set the mode; it will be announced again
            return
        except BrokenPipeError:
            self._unwritten.clear()
            self._end(signal.SIGPIPE)
        else:
            del self._unwritten[:written]

    def _learn_unread(self) -> None:
        self.is_read = False
        if self.ended_by is None:
            self._due = (time.monotonic() + UNREAD_S, lambda: self._end(signal.SIGPIPE))

    def _hear(self) -> None:
        for number in os.read(self._signals or 0, 64):
            if number in HEARD and number != signal.SIGWINCH:
                self._end(signal.Signals(number))

    def _end(self, number: signal.Signals) -> None:
        if self.ended_by is None and not self._over:
            self.ended_by, self._due = number, None
            self._killer = threading.Thread(target=self._work, args=(number,), daemon=True)
            self._killer.start()

    def _work(self, number: signal.Signals) -> None:
        try:
            self._kill(number)
        finally:
            os.write(self._killing, b"x")

    def _after_kill(self) -> None:
        self._due = (time.monotonic() + LINGER_S, self._give_up)

    def _give_up(self) -> None:
        # Its pipes may have no end: the shared connection holds them until it knows that the command has ended.
        self._process.kill()
        self._over = True
