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

import os
import pwd
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from provisioner.hosts.base import Provider
from provisioner.values.errors import LockedError, PreflightError, ProvisionError


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


# The taking of a lab's lock on one host: when nobody has it, or from a run that is dead.
#
# What only bears the name of a lock was made by somebody's hand, or was written over: it is no dead run's, is never
# deleted, and ends the run, because the data of a run that lives may have stood on it.

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
    prefix = terms.prefix
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
                provider.locks.delete(key)
            return
        lease.give_back(name, provider)
    others = [one for one in found.values() if one.get("nonce") != lease.nonce]
    raise _refused(terms, provider, others[0] if others else {})


def _locks(provider: Provider, prefix: str) -> Locks:
    # The names of lab "a-1" begin as those of lab "a" do, and end in another number.
    form = re.compile(re.escape(prefix) + "[0-9]+")
    found = {name: one for name, one in provider.locks.read(prefix).items() if form.fullmatch(name)}
    made_by_hand = sorted(name for name, one in found.items() if _OF_A_HOLDER.isdisjoint(one))
    if made_by_hand:
        raise _no_lock(provider, made_by_hand)
    return found


def _no_lock(provider: Provider, names: Sequence[str]) -> PreflightError:
    """The error that something has the name of a lock and tells of no run."""
    thing = provider.locks.kind
    commands = "; ".join(provider.locks.removal.format(name=name) for name in names)
    return PreflightError(
        f"Unable to lock the lab on host {provider.host}: {thing} {', '.join(names)} is no run lock of provision",
        details="It bears the name of one and says of no run that it holds it: somebody has made it by hand, or has "
        "written over it. It is left as it is.",
        resolution=f"If nobody needs it and no run is at work, delete it: {commands}",
    )


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


class HeldError(LockedError):
    """Another run holds the lock; ``written`` is what stands on it."""

    def __init__(self, refusal: LockedError, written: Mapping[str, str]) -> None:
        super().__init__(refusal.message, details=refusal.details, resolution=refusal.resolution)
        self.written = written


def _refused(terms: Terms, provider: Provider, other: Mapping[str, str]) -> HeldError:
    who = other.get("holder") or "a run that does not say who it is"
    since = f" since {other['since']}" if other.get("since") else ""
    refusal = terms.refusal(
        "another run holds it",
        f"{who}{since} (on host {provider.host})",
        "Wait until it has ended. A dead run's lock is taken over by itself: at once on its own machine, "
        f"from another one after {terms.patience_on(provider):.0f} s.",
    )
    return HeldError(refusal, other)


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


# The holder of a lock: a process, told from all others, so that one on its own machine can see whether it still runs.

_ENDED = frozenset({"Z", "X"})
"""States of a process that has ended and that nobody has asked about yet."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process: ``title`` names it to people, the rest tells it from every other one, here and elsewhere."""

    title: str
    machine: str
    namespace: str
    """Of process ids: containers share their machine's boot id and count processes on their own."""
    pid: int
    start: str
    """When the process started, in ticks since boot: a process id is given again, both together are not."""

    def properties(self) -> dict[str, str]:
        """What it writes on its lock; ``since`` is by its own clock and only to be read by people."""
        return {
            "holder": self.title,
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": self.machine,
            "namespace": self.namespace,
            "pid": str(self.pid),
            "start": self.start,
        }

    def sees_alive(self, properties: Mapping[str, str]) -> bool | None:
        """Whether the holder of that lock still runs; None when that cannot be seen from here."""
        pid, start = properties.get("pid", ""), properties.get("start", "")
        is_here = (properties.get("machine"), properties.get("namespace")) == (self.machine, self.namespace)
        if not is_here or not pid.isdecimal() or not start.isdecimal():
            return None
        found = _process(int(pid))
        if found is None:
            # A system may hide the processes of other users; whether there is one can still be asked.
            return None if _exists(int(pid)) else False
        return found == ("running", start)


def this_process(verb: str) -> Holder:
    """The holder that this process is, running ``provision <verb>``."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    name, pid = socket.gethostname(), os.getpid()
    process = _process(pid)
    return Holder(
        title=f"{_user()}@{name}, pid {pid}, provision {verb}",
        machine=f"{name} {boot}",
        namespace=str(Path("/proc/self/ns/pid").readlink()),
        pid=pid,
        start=process[1] if process else "",
    )


def _process(pid: int) -> tuple[str, str] | None:
    """Whether the process is running or has ended, and its start; None when there is nothing to be seen of it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses, in which anything may stand.
    fields = text.rpartition(")")[2].split()
    return "ended" if fields[0] in _ENDED else "running", fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


# The lease of a run while it works: its locks, moved by a heartbeat, and whether they are still its.

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

    @property
    def prefix(self) -> str:
        """The beginning of the names of the locks; a number follows."""
        return f"provisioner-lock-{self.lab}-"

    @property
    def written(self) -> Mapping[str, str]:
        """What stands on the lock beside its holder."""
        return {}

    def heartbeat_on(self, provider: Provider) -> float:
        """How often a holder writes on its lock there."""
        return provider.locks.heartbeat_s if self.heartbeat_s is None else self.heartbeat_s

    def patience_on(self, provider: Provider) -> float:
        """For how long a lock there must stand still to be a dead run's."""
        return provider.locks.patience_s if self.patience_s is None else self.patience_s

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
        self._properties = {**terms.holder.properties(), **terms.written, "nonce": self.nonce}
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

    @property
    def is_lost(self) -> bool:
        """Whether another run may have the lock by now."""
        try:
            self.check()
        except LockedError:
            return True
        return False

    def claim(self, provider: Provider, name: str) -> bool:
        """Create the lock ``name`` and keep it alive from now on; False when the name is taken."""
        now = self._terms.clock()
        lock = _Lock(provider, name, now, now)
        # Noted first: a host that breaks off may have created it all the same.
        self._claimed.append(lock)
        if provider.locks.create(name, self._written(lock)):
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
            found = provider.locks.read(name).get(name)
            if found is not None and found.get("nonce") == self.nonce:
                provider.locks.delete(name)
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
            found = lock.provider.locks.read(lock.name).get(lock.name)
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
            is_there = lock.provider.locks.renew(lock.name, self._written(lock))
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
