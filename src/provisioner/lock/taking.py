"""Take a lab's lock on one host: when nobody has it, or from a run that is dead.

What only bears the name of a lock was made by somebody's hand, or was written over: it is no dead run's, is never
deleted, and ends the run, because the data of a run that lives may have stood on it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from provisioner.lock.lease import Lease, Terms
from provisioner.providers.base import Provider
from provisioner.values.errors import LockedError, PreflightError

Locks = Mapping[str, Mapping[str, str]]
"""What is written on the locks of one lab on one host, by their names."""

ATTEMPTS = 20
"""How often the lock may slip away as it is reached for."""
SAY_AFTER_S = 2.0
_OF_A_HOLDER = frozenset({"holder", "machine", "nonce"})
"""What every run writes on its lock, since the first version; what has none of it was never a lock."""
_POLLS_PER_HEARTBEAT = 3
_POLL_S = 1.0
"""A lock that is given back is seen soon, however seldom its holder writes."""


def take(provider: Provider, terms: Terms, lease: Lease) -> None:
    """Take the lock on this host; ``LockedError`` when another run that lives has it.

    ``PreflightError`` when something that is no lock has the name of one.
    """
    prefix = f"provisioner-lock-{terms.lab}-"
    found: Locks = {}
    for _ in range(ATTEMPTS):
        found = _locks(provider, prefix)
        if any(one.get("nonce") == lease.nonce for one in found.values()):
            return  # Two names of the file may be one host.
        dead = _Watch(provider, terms, prefix).dead(found)
        name = f"{prefix}{1 + max(map(_number, dead), default=0)}"
        if not lease.claim(provider, name):
            continue
        found = _locks(provider, prefix)
        # By what is written, not by name: names are used again, and a heartbeat that has moved since is no dead one's.
        if all(key == name or dead.get(key) == one for key, one in found.items()):
            for key in dead:
                provider.delete_lock(key)
            return
        lease.give_back(name, provider)
    others = [one for one in found.values() if one.get("nonce") != lease.nonce]
    raise _refused(terms, provider, others[0] if others else {})


def _locks(provider: Provider, prefix: str) -> Locks:
    # The names of lab "a-1" begin as those of lab "a" do, and end in another number.
    form = re.compile(re.escape(prefix) + "[0-9]+")
    found = {name: one for name, one in provider.read_locks(prefix).items() if form.fullmatch(name)}
    made_by_hand = sorted(name for name, one in found.items() if _OF_A_HOLDER.isdisjoint(one))
    if made_by_hand:
        raise _no_lock(provider, made_by_hand)
    return found


def _no_lock(provider: Provider, names: Sequence[str]) -> PreflightError:
    """The error that something has the name of a lock and tells of no run."""
    thing = provider.lock_object
    commands = "; ".join(provider.lock_removal.format(name=name) for name in names)
    return PreflightError(
        f"Unable to lock the lab on host {provider.host}: {thing} {', '.join(names)} is no run lock of provision",
        details="It bears the name of one and says of no run that it holds it: somebody has made it by hand, or has "
        "written over it. It is left as it is.",
        resolution=f"If nobody needs it and no run is at work, delete it: {commands}",
    )


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _refused(terms: Terms, provider: Provider, other: Mapping[str, str]) -> LockedError:
    who = other.get("holder") or "a run that does not say who it is"
    since = f" since {other['since']}" if other.get("since") else ""
    return terms.refusal(
        "another run holds it",
        f"{who}{since} (on host {provider.host})",
        "Wait until it has ended. A dead run's lock is taken over by itself: at once on its own machine, "
        f"from another one after {terms.patience_on(provider):.0f} s.",
    )


@dataclass(slots=True)
class _Seen:
    """A lock that is watched: what was written on it, since when it is known to stand still, and until when."""

    written: Mapping[str, str]
    still_s: float
    until: float


class _Watch:
    """Tells dead locks from living ones, watching those of other machines for as long as it takes."""

    def __init__(self, provider: Provider, terms: Terms, prefix: str) -> None:
        self._provider = provider
        self._terms = terms
        self._prefix = prefix
        self._poll_s = min(terms.heartbeat_on(provider) / _POLLS_PER_HEARTBEAT, _POLL_S)
        self._patience_s = terms.patience_on(provider)
        self._seen: dict[str, _Seen] = {}
        self._began = self._asked = terms.clock()
        self._has_said = False

    def dead(self, found: Locks) -> Locks:
        """All locks that there are, once none of them is alive; ``LockedError`` as soon as one is."""
        while waiting := [one for name, one in found.items() if not self._is_dead(name, one)]:
            self._say(waiting[0])
            time.sleep(self._poll_s)
            self._asked = self._terms.clock()
            found = _locks(self._provider, self._prefix)
        return found

    def _is_dead(self, name: str, written: Mapping[str, str]) -> bool:
        alive = self._terms.holder.sees_alive(written)
        if alive:
            raise _refused(self._terms, self._provider, written)
        return alive is False or self._stands_still(name, written)

    def _stands_still(self, name: str, written: Mapping[str, str]) -> bool:
        seen = self._seen.get(name)
        if seen is None or seen.written.get("nonce") != written.get("nonce"):
            self._seen[name] = _Seen(written, 0.0, self._terms.clock())
            return False
        if seen.written != written:
            raise _refused(self._terms, self._provider, written)
        # From one answer to the next question, and no gap as more than two polls: while a host answers nobody, or this
        # machine sleeps, the holder cannot move its heartbeat either, or it cannot be seen.
        seen.still_s += max(0.0, min(self._asked - seen.until, 2 * self._poll_s))
        seen.until = self._terms.clock()
        return seen.still_s >= self._patience_s

    def _say(self, other: Mapping[str, str]) -> None:
        if self._has_said or self._terms.clock() - self._began < SAY_AFTER_S:
            return
        self._has_said = True
        who = other.get("holder") or "A run that does not say who it is"
        patience = f"{self._patience_s:.0f} s"
        self._terms.say(f"{who} has the lock on host {self._provider.host}: watching for {patience} whether it works")
