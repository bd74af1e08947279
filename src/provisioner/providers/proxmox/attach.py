"""Run one command in a container with its streams joined to descriptors of ours, with or without a terminal.

``ssh`` writes to our stdout, and to our terminal, itself. Our stdin passes through us, because what is to be run is
told over it, and stderr does, because that is where frames are (``framing``).
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from provisioner.providers.proxmox import inside
from provisioner.providers.proxmox.framing import Frame
from provisioner.providers.proxmox.pct import Call
from provisioner.providers.proxmox.relay import Relay, Sieve
from provisioner.providers.proxmox.shell import Shell, ssh_environment
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.signals import heard_signals

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
    """Run ``command`` as root in the container until it ends, and give its exit code; errors as in ``inside.execute``.

    SIGINT, SIGTERM and SIGHUP end the command with its children and give 130; a reader of ours that goes away does so
    too, and gives 141, as a shell would. In a thread other than the main one no signal is heard.
    """
    what = f"Unable to run {command[0]} in container {name or vmid}"
    terminal = {"TERM": os.environ.get("TERM") or "dumb"} if ends.terminal else {}
    call = Call(vmid, command, {**terminal, **(environment or {})})
    with heard_signals() as signals:
        shell.open()
        joined = _in_terminal if ends.terminal else _in_streams
        return joined(shell, call, ends, signals, what)


def _in_streams(shell: Shell, call: Call, ends: Ends, signals: int | None, what: str) -> int:
    frame = Frame()
    sieve = Sieve(f"{call.mark}:inside\n".encode(), frame.mark.encode())

    def end(number: signal.Signals) -> None:
        inside.kill(shell, call, signal.Signals.SIGTERM.name[3:] if number is signal.SIGPIPE else number.name[3:])
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
                inside.kill(shell, call)
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
        raise ProviderError(what, details=Foreign.of_output(outcome.stderr) or "pct exec said nothing.")
    return code


def _in_terminal(shell: Shell, call: Call, ends: Ends, signals: int | None, what: str) -> int:
    # Its stdin is the terminal, and its arguments can be read by everybody: what is to be run lies in a file.
    words = call.words.encode(errors="surrogateescape")
    kept = inside.execute_call(shell, Call(call.vmid, ["sh", "-c", _KEEP]), what, stdin=words)
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
    inside.kill(shell, call)
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
