"""The run lock: of all runs of one lab, on whatever machines, one works.

It lies on every host of the lab, as an object ``provisioner-lock-<lab>-<n>`` that the host lets one create. Its holder
moves a heartbeat on it. A dead holder's lock is taken over by creating n + 1: by a run on the same machine at once,
which sees that the process is gone; by any other when the heartbeat has stood still for the host's ``patience_s``,
which is several times its ``heartbeat_s``. A holder of the version before beats more often than that. No clocks are
compared: each run measures on its own for how long it saw nothing move.

Two never hold it at once. Who has created a lock then lists all of them, and holds only if there are no others than the
dead ones that it knew, unchanged: of two who create, the one who lists later sees the other's. And a holder takes its
lock for lost when it was not renewed within that time since the last one: not later than anybody may take it over.
Between two heartbeats it looks every ``LOOK_S`` whether the lock is still its, which writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from provisioner.lock.holder import Holder, this_process
from provisioner.lock.lease import LOOK_S, Lease, Terms
from provisioner.lock.taking import take
from provisioner.providers.base import Provider

__all__ = ["LOOK_S", "Holder", "Lease", "held", "this_process"]


@contextmanager
def held(
    providers: Mapping[str, Provider],
    lab: str,
    verb: str,
    *,
    say: Callable[[str], None],
    heartbeat_s: float | None = None,
    patience_s: float | None = None,
) -> Iterator[Lease]:
    """The lab's lock on all of its hosts, for as long as the block runs; ``LockedError`` when another run has one.

    ``UnavailableError`` when a host cannot be reached.

    Hosts are locked in the order of their names. ``say`` is told what takes long. ``heartbeat_s`` and ``patience_s``
    stand in for those of each host.
    """
    for host in sorted(providers):  # one that is away is no failure of a lock: nothing was touched
        providers[host].check_available()
    terms = Terms(lab, verb, this_process(verb), say, heartbeat_s, patience_s)
    lease = Lease(terms)
    try:
        for host in sorted(providers):
            take(providers[host], terms, lease)
        lease.check()
        yield lease
    finally:
        lease.release()
