"""What a run holds while it works: its locks, moved by a heartbeat, and the knowledge of whether they are still its."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from provisioner.lock.holder import Holder
from provisioner.providers.base import Provider
from provisioner.values.errors import LockedError, ProvisionError

LOOK_S = 3.0
"""How often a holder looks whether its locks are still its."""
_TAKEN_OVER = "Another run has taken it over, or somebody has deleted it."


def uptime() -> float:
    """Seconds since boot, also those in which the machine was suspended: closing a laptop must not stop this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Terms:
    """What one run asks for, and by which times it goes: its own, or where it has none those of each host."""

    lab: str
    verb: str
    holder: Holder
    say: Callable[[str], None]
    heartbeat_s: float | None = None
    patience_s: float | None = None
    clock: Callable[[], float] = uptime

    def heartbeat_on(self, provider: Provider) -> float:
        """How often a holder writes on its lock there."""
        return provider.heartbeat_s if self.heartbeat_s is None else self.heartbeat_s

    def patience_on(self, provider: Provider) -> float:
        """For how long a lock there must stand still to be a dead run's."""
        return provider.patience_s if self.patience_s is None else self.patience_s

    def refusal(self, why: str, details: str, resolution: str) -> LockedError:
        """The error that ends this run."""
        message = f"Unable to {self.verb} lab {self.lab}: {why}"
        return LockedError(message, details=details, resolution=resolution)


@dataclass(slots=True, eq=False)
class _Lock:
    """One lock of ours; ``renewed`` is when the last successful renewal was asked for, ``asked`` the last of all."""

    provider: Provider
    name: str
    renewed: float
    asked: float
    lost: str = ""
    trouble: str = ""
    beats: int = 0


class Lease:
    """The right to work on the lab; ask ``check`` before each step that changes something."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.nonce = secrets.token_hex(16)
        self._properties = terms.holder.properties() | {"nonce": self.nonce}
        self._claimed: list[_Lock] = []
        self._held: list[_Lock] = []
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def check(self) -> None:
        """Return while the lab is ours; ``LockedError`` once another run may have it."""
        for lock in self._held:
            self._note_age(lock)
            if lock.lost:
                raise self._terms.refusal(
                    f"its lock on host {lock.provider.host} was lost",
                    "\n".join(filter(None, (lock.lost, lock.trouble))),
                    "Nothing more was begun. Run the same command again: it goes on from what is there.",
                )

    def claim(self, provider: Provider, name: str) -> bool:
        """Create the lock ``name`` and keep it alive from now on; False when the name is taken."""
        now = self._terms.clock()
        lock = _Lock(provider, name, now, now)
        # Noted first: a host that breaks off may have created it all the same.
        self._claimed.append(lock)
        if provider.create_lock(name, self._written(lock)):
            self._held.append(lock)
            self._keep_alive(lock)
            return True
        self._claimed.remove(lock)
        return False

    def give_back(self, name: str, provider: Provider) -> None:
        """Delete a lock that was claimed, if it is still ours."""
        for lock in [one for one in self._claimed if (one.name, one.provider) == (name, provider)]:
            if lock in self._held:
                self._held.remove(lock)
            found = provider.read_locks(name).get(name)
            if found is not None and found.get("nonce") == self.nonce:
                provider.delete_lock(name)
            self._claimed.remove(lock)

    def release(self) -> None:
        """Give all back; what cannot be is said, and taken over by the next run."""
        self._ended.set()
        for thread in self._threads:
            thread.join(LOOK_S)
        for lock in reversed(self._claimed.copy()):
            try:
                self.give_back(lock.name, lock.provider)
            except ProvisionError as error:
                words = f"{error.message}: {error.details}. The next run takes it over by itself."
                self._terms.say(words)

    def _keep_alive(self, lock: _Lock) -> None:
        # A thread for each: a host that hangs must not cost us the locks of the others.
        thread = threading.Thread(target=self._beat, args=(lock,), name=f"heartbeat of {lock.name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _beat(self, lock: _Lock) -> None:
        heartbeat_s = self._terms.heartbeat_on(lock.provider)
        while not self._ended.wait(min(heartbeat_s, LOOK_S)) and lock in self._held:
            # After a failure it is not waited for the next beat: a daemon that restarts is back in a moment.
            if lock.trouble or self._terms.clock() - lock.asked >= heartbeat_s - LOOK_S / 2 or heartbeat_s <= LOOK_S:
                lock.beats += 1
                self._renew(lock)
            else:
                self._look(lock)

    def _look(self, lock: _Lock) -> None:
        """Find out whether the lock is still ours, and write nothing."""
        self._note_age(lock)
        if lock.lost:
            return
        try:
            found = lock.provider.read_locks(lock.name).get(lock.name)
        except ProvisionError:
            return  # what that means is found out by the next heartbeat
        if found is None or found.get("nonce") != self.nonce:
            lock.lost = lock.lost or _TAKEN_OVER

    def _renew(self, lock: _Lock) -> None:
        asked = lock.asked = self._terms.clock()
        self._note_age(lock)
        if lock.lost:
            return
        try:
            is_there = lock.provider.renew_lock(lock.name, self._written(lock))
        except ProvisionError as error:
            # Perhaps the host's daemon restarts: asked again at the next beat, until the patience of others ends.
            lock.trouble = str(error)
            return
        self._note_age(lock)
        if not is_there:
            lock.lost = lock.lost or _TAKEN_OVER
        elif not lock.lost:
            lock.renewed, lock.trouble = asked, ""

    def _note_age(self, lock: _Lock) -> None:
        # Once too old it stays lost: others may have taken it over since, even if the host still lets us renew it.
        patience_s = self._terms.patience_on(lock.provider)
        if self._terms.clock() - lock.renewed >= patience_s:
            lock.lost = lock.lost or f"It could not be renewed for {patience_s:.0f} s."

    def _written(self, lock: _Lock) -> Mapping[str, str]:
        return self._properties | {"heartbeat": str(lock.beats)}
