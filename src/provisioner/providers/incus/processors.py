"""See that a running container has the number of processors that Incus has written down.

Incus spreads its containers when it hears of a new number, which may be before it has written that down; it then goes
by the old one, and nothing has it look again (lxc/incus issue 1936).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from provisioner.inside.file_systems import Run
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance, Status

COUNT = ["nproc"]
ROUND_S = 3.0
"""So long Incus has to spread its containers; it takes some tenths of a second."""
POLL_S = 0.1
ROUNDS = 5


def kept(before: Instance, wanted: Instance, run: Run, change: Callable[[int | None], None], host_has: int) -> None:
    """After a change: have it made again until it counts; ``ProviderError`` where it never does.

    ``change`` makes another number the container's. One that cannot be asked for its processors is left as it is.
    """
    if before.status is not Status.RUNNING or wanted.cpu is None or wanted.cpu == before.cpu:
        return
    number = min(wanted.cpu, host_has)
    counted = _counted(run, number)
    for _ in range(ROUNDS - 1):
        if counted in (number, None):
            return
        change(before.cpu)
        change(wanted.cpu)
        counted = _counted(run, number)
    if counted not in (number, None):
        raise ProviderError(
            f"Unable to give container {wanted.name} {number} processors",
            details=f"Incus has written that down, and the container still has {counted}.",
            resolution=f"Restart it: incus restart {wanted.name}",
        )


def _counted(run: Run, number: int) -> int | None:
    """How many processors the container has, as soon as that is ``number``; None where it does not say."""
    deadline = time.monotonic() + ROUND_S
    while True:
        done = run(COUNT)
        said = done.stdout.decode(errors="replace").strip()
        if done.returncode != 0 or not said.isdecimal():
            return None
        if int(said) == number or time.monotonic() > deadline:
            return int(said)
        time.sleep(POLL_S)
