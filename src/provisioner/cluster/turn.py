"""One repair of a cluster at a time: a lock that an ssh session holds on every node that has quorum, and ends with it.

On every one, because whoever asks another node has another lead; two majorities always share a node.
"""

from __future__ import annotations

import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

from provisioner.cluster.reaching import Reach
from provisioner.errors import LockedError
from provisioner.providers.proxmox.shell import CONNECT_TIMEOUT_S, Shell, ssh_environment
from provisioner.providers.proxmox.ssh_failures import unreachable
from provisioner.repair.facts import ClusterFacts

LOCK = "/run/lock/provisioner-repair"
HEARTBEAT_S = 20.0
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
    names = sorted(one.name for one in facts.nodes if one.quorum and one.quorum.is_quorate and one.name != without)
    with ExitStack() as held:
        for name in names:
            found = facts.node(name)
            at = asked.at(found.address, name) if found and name != facts.asked else asked
            held.enter_context(turn(at.shell, words))
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
        text=True,
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


def _require(said: IO[str] | None, shell: Shell) -> None:
    """Return when the lock is ours; whatever else was said is the error."""
    noise: list[str] = []
    for line in said or ():
        if line.strip() == MINE:
            return
        if line.strip() == BUSY:
            raise LockedError(
                "Unable to repair this cluster now: another repair of it goes on",
                details="".join(said or ()).strip(),
                resolution="Wait until it has ended. Two repairs at once could cost the cluster its quorum.",
            )
        noise.append(line)
    raise unreachable(shell.destination, "".join(noise))


@contextmanager
def _heartbeat(pipe: IO[str]) -> Iterator[None]:
    """A line now and then, from a thread; a pipe without a reader is no reason to stop what goes on."""
    ended = threading.Event()

    def beat() -> None:
        with suppress(BrokenPipeError):
            while not ended.wait(HEARTBEAT_S):
                print(file=pipe, flush=True)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _let_go(process: subprocess.Popen[str]) -> None:
    """End the session, and wait until it has ended: the lock is free then."""
    with suppress(BrokenPipeError, subprocess.TimeoutExpired):
        process.communicate(timeout=CONNECT_TIMEOUT_S)
    process.kill()
    process.wait()
