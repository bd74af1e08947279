"""One repair of a cluster at a time: a lock that an ssh session holds on every node that has quorum, and ends with it.

On every one, because whoever asks another node has another lead; two majorities always share a node.
"""

from __future__ import annotations

import os
import selectors
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

from provisioner.cluster.reaching import Reach
from provisioner.providers.proxmox.shell import CONNECT_TIMEOUT_S, Shell, ssh_environment
from provisioner.providers.proxmox.ssh_failures import unreachable
from provisioner.repair.facts import ClusterFacts
from provisioner.values.errors import LockedError

LOCK = "/run/lock/provisioner-repair"
HEARTBEAT_S = 20.0
ANSWER_S = 60.0
ANSWER_BYTES = 1 << 16
"""The node says in a line or two whose the lock is; so long it has for that, and no more is read of it."""
SILENCE_S = 90
"""The node lets go when it has heard nothing for so long: our machine may be gone without its knowing."""
MINE, BUSY = "turn:mine", "turn:busy"

_HOLD = f"""
exec 9>>"$1"
if ! flock -n 9; then echo {BUSY}; exec cat "$1"; fi
printf '%s\\n' "$2" >"$1"
echo {MINE}
while read -r -t "$3" _; do :; done
"""


@contextmanager
def cluster_turn(asked: Reach, facts: ClusterFacts, words: str, *, without: str = "") -> Iterator[None]:
    """Hold the lock on every node that has quorum, but not on the one that is repaired (``without``).

    ``LockedError`` says who has it on one of them; without any such node there is nothing to hold.
    """
    quorate = [node for node in facts.nodes if node.is_quorate and node.name != without]
    with ExitStack() as held:
        for node in sorted(quorate, key=lambda node: node.name):
            reach = asked if node.name == facts.asked else asked.at(node.address, node.name)
            held.enter_context(turn(reach.shell, words))
        yield


@contextmanager
def turn(shell: Shell, words: str) -> Iterator[None]:
    """Hold the cluster's lock on one node; ``LockedError`` says who has it. ``words``: what others read of us."""
    shell.open()
    hold = shlex.join(["exec", "bash", "-c", _HOLD, "provision", LOCK, words, str(SILENCE_S)])
    process = subprocess.Popen(
        shell.argv(hold, "-T"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=ssh_environment(),
        start_new_session=True,
    )
    assert process.stdin  # noqa: S101 - it is a pipe
    try:
        _require(process.stdout, shell)
        with _heartbeat(process.stdin):
            yield
    finally:
        _let_go(process)


def _require(said: IO[bytes] | None, shell: Shell) -> None:
    """Return when the lock is ours; whatever else was said is the error."""
    lines = list[str]()
    for line in _lines(said):
        lines.append(line)
        if line == MINE:
            return
    if BUSY in lines:
        raise LockedError(
            "Unable to repair this cluster now: another repair of it goes on",
            details="\n".join(lines[lines.index(BUSY) + 1 :]).strip(),
            resolution="Wait until it has ended. Two repairs at once could cost the cluster its quorum.",
        )
    raise unreachable(shell.destination, "\n".join(lines))


def _lines(said: IO[bytes] | None) -> Iterator[str]:
    """The lines as they come, until the end, ``ANSWER_S`` or ``ANSWER_BYTES``."""
    if said is None:
        return
    deadline, rest, size = time.monotonic() + ANSWER_S, b"", 0
    with selectors.DefaultSelector() as selector:
        selector.register(said, selectors.EVENT_READ)
        while size < ANSWER_BYTES and selector.select(max(0.0, deadline - time.monotonic())):
            block = os.read(said.fileno(), ANSWER_BYTES)
            size += len(block)
            *whole, rest = (rest + block).split(b"\n")
            yield from (line.decode(errors="replace").strip() for line in whole)
            if not block:
                break
    if rest:
        yield rest.decode(errors="replace").strip()


@contextmanager
def _heartbeat(pipe: IO[bytes]) -> Iterator[None]:
    """A line now and then, from a thread; a pipe without a reader is no reason to stop what goes on."""
    ended = threading.Event()

    def beat() -> None:
        with suppress(BrokenPipeError):
            while not ended.wait(HEARTBEAT_S):
                pipe.write(b"\n")
                pipe.flush()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(CONNECT_TIMEOUT_S)  # it may hang in a pipe that nobody reads


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """End the session, and wait until it has ended: the lock is free then. What it says now is of no use."""
    with suppress(BrokenPipeError, subprocess.TimeoutExpired):
        if process.stdin is not None:
            process.stdin.close()
        process.wait(CONNECT_TIMEOUT_S)
    process.kill()
    process.wait(CONNECT_TIMEOUT_S)
    if process.stdout is not None:
        process.stdout.close()
