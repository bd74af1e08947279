"""Of all runs of a lab one holds the lock, whatever the others have seen when; dead ones do not keep it."""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.hosts.base import Provider
from provisioner.hosts.fake import FakeProvider
from provisioner.hosts.fake.locks import Locks
from provisioner.hosts.incus.locks import Locks as ProfileLocks
from provisioner.hosts.proxmox.locks import Locks as PoolLocks
from provisioner.reconcile.lock import Holder, Lease, Terms, held, take, this_process, uptime
from provisioner.values.errors import ExitCode, LockedError, PreflightError, ProviderError
from tests.processes import awaited_at_end
from tests.waiting import wait_until

LAB = "homelab"
FIRST, SECOND = f"provisioner-lock-{LAB}-1", f"provisioner-lock-{LAB}-2"
HEARTBEAT_S, PATIENCE_S = 0.03, 0.4
ELSEWHERE = Holder("ann@laptop, pid 7, provision up", "laptop 1234", "pid:[1]", 7, "99")


def lock(*hosts: Provider, said: list[str] | None = None, **times: float) -> AbstractContextManager[Lease]:
    """The lab's lock on ``hosts``, by quick times."""
    say = (said if said is not None else []).append
    times = {"heartbeat_s": HEARTBEAT_S, "patience_s": PATIENCE_S, **times}
    return held({host.host: host for host in hosts}, LAB, "up", say=say, **times)


@pytest.fixture
def box() -> FakeProvider:
    return FakeProvider("box")


def left_by(holder: Holder, **more: str) -> dict[str, str]:
    """What stands on the lock of a run that is gone."""
    return holder.properties() | {"nonce": secrets.token_hex(4), "heartbeat": "3", **more}


@pytest.fixture
def ended() -> Holder:
    """A process of this machine that ran and ended."""
    with awaited_at_end(subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE)) as process:
        started = _start_of(process.pid)
    return replace(this_process("up"), pid=process.pid, start=started)


def _start_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]


@contextmanager
def beating(host: FakeProvider, name: str, written: Mapping[str, str]) -> Iterator[None]:
    """A run elsewhere that holds a lock and moves its heartbeat."""
    over = threading.Event()
    host.locks[name] = {**written, "heartbeat": "n0"}

    def beat() -> None:
        count = 0
        while not over.wait(HEARTBEAT_S):
            count += 1
            host.locks.renew(name, {**written, "heartbeat": f"n{count}"})

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def test_it_is_held_for_the_time_of_the_block_on_every_host(box: FakeProvider) -> None:
    rack = FakeProvider("rack")
    with lock(box, rack) as lease:
        assert (list(box.locks), list(rack.locks)) == ([FIRST], [FIRST])
        lease.check()
        before = box.locks[FIRST]["heartbeat"]
        wait_until(lambda: box.locks[FIRST]["heartbeat"] != before)
        found = box.locks[FIRST]
        assert found["holder"] == this_process("up").title
        assert f"pid {os.getpid()}, provision up" in found["holder"]
    assert (box.locks, rack.locks) == ({}, {})


def test_an_error_in_the_block_gives_it_back(box: FakeProvider) -> None:
    with pytest.raises(ZeroDivisionError), lock(box):
        raise ZeroDivisionError
    assert box.locks == {}


def test_a_run_on_this_machine_is_refused_at_once_and_told_who_has_it(box: FakeProvider) -> None:
    with lock(box, patience_s=60.0):
        began = time.monotonic()
        with pytest.raises(LockedError) as caught, lock(box, patience_s=60.0):
            pytest.fail("two hold it")
        assert time.monotonic() - began < 1
        found = box.locks[FIRST]
    assert caught.value.exit_code is ExitCode.LOCKED
    assert caught.value.message == f"Unable to up lab {LAB}: another run holds it"
    assert caught.value.details == f"{found['holder']} since {found['since']} (on host box)"
    assert "60 s" in caught.value.resolution


def test_labs_whose_names_look_alike_do_not_meet(box: FakeProvider) -> None:
    with ExitStack() as stack:
        for lab in ("a", "a-1", "a-1-1", "A"):
            stack.enter_context(held({"box": box}, lab, "up", say=print))
        assert len(box.locks) == 4


@pytest.mark.parametrize("written", [{}, {"note": "of ours"}, {"heartbeat": "3"}])
@pytest.mark.parametrize("number", [1, 3])
def test_what_only_bears_the_name_of_a_lock_is_named_and_never_deleted(
    box: FakeProvider, written: dict[str, str], number: int
) -> None:
    name = f"provisioner-lock-{LAB}-{number}"
    box.locks[name] = dict(written)
    with pytest.raises(PreflightError, match=f"entry {name} is no run lock of provision") as caught, lock(box):
        pytest.fail("held beside what may have been a lock")
    assert caught.value.resolution.endswith(f"delete it: remove {name} from its attribute `locks`")
    assert box.locks == {name: written}
    box.locks.clear()
    with lock(box):
        assert list(box.locks) == [FIRST]


def test_two_names_of_one_host_are_one_lock(box: FakeProvider) -> None:
    with held({"a": box, "b": box}, LAB, "up", say=print) as lease:
        assert list(box.locks) == [FIRST]
        lease.check()
    assert box.locks == {}


def test_a_refusal_by_the_second_host_gives_back_the_first(box: FakeProvider) -> None:
    rack = FakeProvider("rack")
    with lock(rack):
        with pytest.raises(LockedError, match="another run holds it"), lock(box, rack):
            pytest.fail("two hold it")
        assert box.locks == {}


def test_a_dead_process_of_this_machine_is_followed_at_once(box: FakeProvider, ended: Holder) -> None:
    box.locks.create(FIRST, left_by(ended))
    began = time.monotonic()
    with lock(box, patience_s=60.0, heartbeat_s=3.0):
        assert list(box.locks) == [SECOND]
    assert time.monotonic() - began < 2
    assert box.locks == {}


def test_a_process_id_that_was_given_again_is_not_its_holder(box: FakeProvider) -> None:
    box.locks.create(FIRST, left_by(replace(this_process("up"), start="1")))
    with lock(box, patience_s=60.0, heartbeat_s=3.0):
        assert list(box.locks) == [SECOND]


def test_a_process_that_has_ended_and_was_not_asked_for_is_dead(box: FakeProvider) -> None:
    with awaited_at_end(subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE)) as zombie:
        dead = replace(this_process("up"), pid=zombie.pid, start=_start_of(zombie.pid))
        box.locks.create(FIRST, left_by(dead))
        with pytest.raises(LockedError), lock(box):
            pytest.fail("it still runs")
        zombie.kill()
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        with lock(box, patience_s=60.0, heartbeat_s=3.0):
            assert list(box.locks) == [SECOND]


def test_process_ids_of_another_container_are_not_looked_up(box: FakeProvider, ended: Holder) -> None:
    """It shares the boot id, and its ids mean other processes: the one that is gone here may run there."""
    with beating(box, FIRST, left_by(replace(ended, namespace="pid:[1]"))), pytest.raises(LockedError), lock(box):
        pytest.fail("two hold it")


def test_a_living_run_elsewhere_is_refused_and_named(box: FakeProvider) -> None:
    with beating(box, FIRST, left_by(ELSEWHERE)):
        with pytest.raises(LockedError, match="another run holds it") as caught, lock(box):
            pytest.fail("two hold it")
        assert list(box.locks) == [FIRST]
    assert ELSEWHERE.title in caught.value.details


@pytest.mark.parametrize("since", ["2020-01-01T00:00:00+00:00", "2099-01-01T00:00:00+00:00", "noon"])
def test_a_dead_run_elsewhere_is_followed_after_patience_whatever_its_clock_says(box: FakeProvider, since: str) -> None:
    box.locks.create(FIRST, left_by(ELSEWHERE, since=since))
    began = time.monotonic()
    with lock(box):
        assert time.monotonic() - began >= PATIENCE_S
        assert list(box.locks) == [SECOND]
    assert box.locks == {}


def test_what_takes_long_is_said_once(box: FakeProvider) -> None:
    box.locks.create(FIRST, left_by(ELSEWHERE))
    said: list[str] = []
    with lock(box, said=said, patience_s=2.6):
        assert len(said) == 1
    assert ELSEWHERE.title in said[0]


def test_quick_things_are_not_said(box: FakeProvider) -> None:
    box.locks.create(FIRST, left_by(ELSEWHERE))
    said: list[str] = []
    with lock(box, said=said):
        pass
    assert said == []


@pytest.mark.parametrize(
    "written",
    [{}, {"nonce": "x"}, {"pid": "seven", "start": "", "heartbeat": "\x00"}, {"holder": "", "pid": "1" * 30}],
    ids=["empty", "no heartbeat", "garbage", "no such pid"],
)
def test_a_lock_that_somebody_edited_is_watched_and_followed(box: FakeProvider, written: Mapping[str, str]) -> None:
    here = this_process("up")
    box.locks.create(FIRST, {"machine": here.machine, "namespace": here.namespace, **written})
    with lock(box):
        assert list(box.locks) == [SECOND]


def test_one_that_is_edited_while_it_is_watched_is_alive(box: FakeProvider) -> None:
    box.locks.create(FIRST, {"holder": "y"})
    threading.Timer(PATIENCE_S / 4, lambda: box.locks.update({FIRST: {"holder": "x"}})).start()
    with pytest.raises(LockedError), lock(box):
        pytest.fail("it moved")


def test_one_that_vanishes_while_it_is_watched_is_free(box: FakeProvider) -> None:
    box.locks.create(FIRST, left_by(ELSEWHERE))
    began = time.monotonic()
    threading.Timer(0.1, lambda: box.locks.delete(FIRST)).start()
    with lock(box, patience_s=30.0):
        assert time.monotonic() - began < 5
        assert list(box.locks) == [FIRST]


def test_a_host_that_answers_nobody_for_a_while_proves_nothing_about_the_holder() -> None:
    """Its heartbeat stands still for that time, as nothing reaches the host."""

    class Late(Locks):
        hung = False

        def read(self, prefix: str) -> dict[str, dict[str, str]]:
            """List what is there, late."""
            found = super().read(prefix)
            if not self.hung and found:
                self.hung = True
                time.sleep(PATIENCE_S * 2)
            return found

    box = FakeProvider("box")
    box.locks = Late(box)
    box.locks.create(FIRST, left_by(ELSEWHERE))
    began = time.monotonic()
    with lock(box):
        assert time.monotonic() - began >= PATIENCE_S * 3


def test_a_lock_that_another_run_has_taken_over_is_lost(box: FakeProvider) -> None:
    with lock(box, patience_s=60.0) as lease:
        box.locks.create(SECOND, left_by(ELSEWHERE))
        box.locks.delete(FIRST)
        with pytest.raises(LockedError, match="its lock on host box was lost") as caught:
            until_lost(lease)
        assert "taken it over" in caught.value.details
        assert "Run the same command again" in caught.value.resolution
    assert list(box.locks) == [SECOND], "what is not ours is not given back"


def until_lost(lease: Lease) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        lease.check()
        time.sleep(0.005)


def test_a_name_that_somebody_else_has_by_now_is_neither_renewed_nor_deleted(box: FakeProvider) -> None:
    with lock(box, patience_s=60.0) as lease:
        box.locks.delete(FIRST)
        theirs = left_by(ELSEWHERE)
        box.locks.create(FIRST, theirs)
        with pytest.raises(LockedError, match="was lost"):
            until_lost(lease)
    assert box.locks == {FIRST: theirs}


class Broken(Locks):
    """Locks of a host whose daemon can be away."""

    away = False
    asked = 0

    def renew(self, name: str, properties: Mapping[str, str]) -> bool:
        """Write on it, if there is a daemon."""
        self.asked += 1
        if self.away:
            raise ProviderError("Unable to renew lock", details="connection refused")
        return super().renew(name, properties)


def test_a_daemon_that_restarts_is_waited_for() -> None:
    box = FakeProvider("box")
    box.locks = broken = Broken(box)
    with lock(box) as lease:
        broken.away = True
        time.sleep(PATIENCE_S / 2)
        broken.away = False
        before = box.locks[FIRST]["heartbeat"]
        wait_until(lambda: box.locks[FIRST]["heartbeat"] != before)
        lease.check()


class Hanging(Locks):
    """Locks of a host that answers no renewal for as long as the test lasts."""

    def __init__(self, host: FakeProvider) -> None:
        super().__init__(host)
        self.asked, self.go_on = threading.Event(), threading.Event()

    def renew(self, name: str, properties: Mapping[str, str]) -> bool:
        """Hang."""
        self.asked.set()
        self.go_on.wait(60)
        return super().renew(name, properties)


def test_a_host_that_hangs_costs_no_lock_of_another(box: FakeProvider) -> None:
    far = FakeProvider("far")
    far.locks = hanging = Hanging(far)
    with lock(far, box, heartbeat_s=0.02):
        assert hanging.asked.wait(10)
        (name,) = box.locks
        beats = int(box.locks[name]["heartbeat"])
        wait_until(lambda: int(box.locks[name]["heartbeat"]) > beats + 2)
        hanging.go_on.set()
    assert box.locks == far.locks == {}


def test_a_lock_that_cannot_be_renewed_is_lost_and_stays_so() -> None:
    """Even when the host lets us renew it later: others may have had it and gone since."""
    box = FakeProvider("box")
    box.locks = broken = Broken(box)
    with lock(box) as lease:
        broken.away = True
        began = time.monotonic()
        with pytest.raises(LockedError, match="was lost") as caught:
            until_lost(lease)
        assert time.monotonic() - began <= PATIENCE_S + 1
        assert "connection refused" in caught.value.details
        broken.away = False
        before = box.locks[FIRST]["heartbeat"]
        time.sleep(HEARTBEAT_S * 4)
        assert box.locks[FIRST]["heartbeat"] == before
        with pytest.raises(LockedError):
            lease.check()
    assert box.locks == {}


def test_what_cannot_be_given_back_is_said_and_masks_nothing(box: FakeProvider) -> None:
    class Stuck(Locks):
        def delete(self, name: str) -> None:
            """Delete it, or not."""
            raise ProviderError(f"Unable to delete lock {name}", details="no route to host")

    said: list[str] = []
    box.locks = Stuck(box)
    with pytest.raises(ZeroDivisionError), lock(box, said=said):
        raise ZeroDivisionError
    assert len(said) == 1
    assert "no route to host" in said[0]


def test_a_creation_of_which_no_answer_came_is_undone(box: FakeProvider) -> None:
    class Deaf(Locks):
        def create(self, name: str, properties: Mapping[str, str]) -> bool:
            """Make it, sooner or later."""
            super().create(name, properties)
            raise ProviderError("Unable to make lock", details="the connection broke")

    box.locks = Deaf(box)
    with pytest.raises(ProviderError), lock(box):
        pytest.fail("it is not known to be held")
    assert box.locks == {}


class Between(Locks):
    """Calls ``then`` once, after the first list of locks was read and before a lock is created: a slow contender."""

    then: Callable[[], object] | None = None

    def create(self, name: str, properties: Mapping[str, str]) -> bool:
        """Make it, sooner or later."""
        if self.then is not None:
            then, self.then = self.then, None
            then()
        return super().create(name, properties)


def test_a_contender_with_an_old_list_does_not_join_a_holder_of_another_number() -> None:
    """It knows of no lock and creates 1, while the holder has 2, taken over from a dead 1."""
    box = FakeProvider("box")
    box.locks = between = Between(box)
    between.then = lambda: box.locks.update({SECOND: left_by(this_process("up"))})
    with pytest.raises(LockedError, match="another run holds it"), lock(box):
        pytest.fail("two hold it")
    assert list(box.locks) == [SECOND]


def test_a_dead_lock_is_known_by_what_is_written_on_it_not_by_its_name(ended: Holder) -> None:
    """The dead 1 was taken over, that run has ended, and the next one has made a 1 of its own."""
    box = FakeProvider("box")
    box.locks = between = Between(box)
    box.locks.create(FIRST, left_by(ended))
    theirs = left_by(this_process("up"))
    between.then = lambda: box.locks.update({FIRST: theirs})
    with pytest.raises(LockedError, match="another run holds it"), lock(box):
        pytest.fail("two hold it")
    assert box.locks == {FIRST: theirs}


def test_a_lock_that_moved_after_all_is_not_taken_over() -> None:
    box = FakeProvider("box")
    box.locks = between = Between(box)
    written = left_by(ELSEWHERE)
    box.locks.create(FIRST, written)
    with ExitStack() as stack:
        between.then = lambda: stack.enter_context(beating(box, FIRST, written))
        with pytest.raises(LockedError, match="another run holds it"), lock(box):
            pytest.fail("it lives")
        assert list(box.locks) == [FIRST]


class Jittery(Locks):
    """Answers as fast or slowly as a seed says, so that each seed is another interleaving."""

    def __init__(self, host: FakeProvider, seed: int) -> None:
        super().__init__(host)
        self._random = random.Random(seed)  # noqa: S311 - for variety

    def _wait(self) -> None:
        time.sleep(self._random.choice((0, 0, 0.0002, 0.001, 0.004)))

    def create(self, name: str, properties: Mapping[str, str]) -> bool:
        """Make it, sooner or later."""
        for _ in range(3):  # so that what it has listed is often old by now
            self._wait()
        made = super().create(name, properties)
        self._wait()
        return made

    def read(self, prefix: str) -> dict[str, dict[str, str]]:
        """List what is there, late."""
        self._wait()
        found = super().read(prefix)
        self._wait()
        return found

    def delete(self, name: str) -> None:
        """Delete it, or not."""
        self._wait()
        super().delete(name)
        self._wait()


@pytest.mark.parametrize("seed", range(25))
def test_never_two_hold_it(seed: int, ended: Holder) -> None:
    """Ten contenders, each several times; some die and leave their lock, which others find at any moment."""
    box = FakeProvider("box")
    box.locks = Jittery(box, seed)
    inside: list[int] = []
    most: list[int] = []
    won = threading.Semaphore(0)

    def contend(number: int) -> None:
        choice = random.Random(seed * 100 + number)  # noqa: S311
        for _ in range(6):
            try:
                with lock(box, heartbeat_s=3.0, patience_s=20.0) as lease:
                    inside.append(number)
                    most.append(len(inside))
                    time.sleep(choice.choice((0, 0.001, 0.003)))
                    most.append(len(inside))
                    inside.remove(number)
                    lease.check()
                    won.release()
                    if choice.random() < 0.4:  # it dies: its lock is left as a dead process's
                        _die(box, ended)
            except LockedError:
                time.sleep(choice.choice((0, 0.001, 0.005)))

    threads = [threading.Thread(target=contend, args=(number,), daemon=True) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert max(most) == 1
    assert won.acquire(blocking=False), "somebody held it"


def _die(box: FakeProvider, ended: Holder) -> None:
    """Make what the holder has left the lock of a process that is gone, so that its own end does not delete it."""
    for name in list(box.locks):
        with box.mutex:
            if name in box.locks and box.locks[name]["start"] == this_process("up").start:
                box.locks[name] = left_by(ended)
                return


def test_the_time_for_which_this_machine_slept_proves_nothing(
    box: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw the heartbeat before and after: whether it moved in between, only more looks can tell."""
    asleep = [0.0]
    looks: list[float] = []
    sleep = time.sleep

    def nap(seconds: float) -> None:
        looks.append(seconds)
        asleep[0] += 3600
        sleep(seconds)

    monkeypatch.setattr("provisioner.reconcile.lock.time.sleep", nap)
    box.locks.create(FIRST, left_by(ELSEWHERE))
    terms = Terms(LAB, "up", this_process("up"), print, HEARTBEAT_S, PATIENCE_S, lambda: uptime() + asleep[0])
    lease = Lease(terms)
    take(box, terms, lease)
    lease.release()
    assert len(looks) >= PATIENCE_S / (2 * HEARTBEAT_S / 3) - 1


class Seldom(Locks):
    """Locks of a host on which each write costs much: they are written every half minute."""

    heartbeat_s = PoolLocks.heartbeat_s
    patience_s = PoolLocks.patience_s
    writes = 0

    def renew(self, name: str, properties: Mapping[str, str]) -> bool:
        """Count it."""
        self.writes += 1
        return super().renew(name, properties)


class Time:
    """A clock that goes on by what is slept, and what happens at certain times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.every: list[tuple[float, Callable[[int], None]]] = []
        monkeypatch.setattr("provisioner.reconcile.lock.time.sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        """Go on, and let happen what happens meanwhile."""
        before, self.now = self.now, self.now + seconds
        for interval, work in self.every:
            for count in range(int(before / interval) + 1, int(self.now / interval) + 1):
                work(count)

    def terms(self) -> Terms:
        """What a run goes by that has this clock, and the times of each host."""
        return Terms(LAB, "up", this_process("up"), print, clock=lambda: self.now)


def test_locks_that_are_replicated_are_written_seldom_and_the_others_as_before() -> None:
    assert (ProfileLocks.heartbeat_s, ProfileLocks.patience_s) == (3.0, 20.0)
    assert PoolLocks.heartbeat_s == 30.0
    assert PoolLocks.patience_s >= 100.0


@pytest.mark.parametrize("interval", [3.0, 30.0], ids=["the version before", "this one"])
def test_nobody_takes_over_from_a_holder_that_beats_once_per_interval(
    monkeypatch: pytest.MonkeyPatch, interval: float
) -> None:
    box, time_ = FakeProvider("box"), Time(monkeypatch)
    box.locks = Seldom(box)
    box.locks[FIRST] = left_by(ELSEWHERE)

    def beat(count: int) -> None:
        box.locks[FIRST]["heartbeat"] = str(count)

    time_.every.append((interval, beat))
    for _ in range(3):
        terms = time_.terms()
        with pytest.raises(LockedError, match="another run holds it"):
            take(box, terms, Lease(terms))
        assert list(box.locks) == [FIRST]
        time_.sleep(7.0)
    assert time_.now >= 2 * interval


def test_a_lock_that_was_written_by_the_version_before_is_judged_by_the_longer_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It beat every 3 s and stands still for longer than 20 s: its host may have been busy for a while."""
    box, time_ = FakeProvider("box"), Time(monkeypatch)
    box.locks = Seldom(box)
    box.locks[FIRST] = left_by(ELSEWHERE)
    beats = iter([(60.0, "4")])

    def late(count: int) -> None:
        del count
        at, beat = next(beats, (0.0, ""))
        if beat:
            assert time_.now >= at
            box.locks[FIRST]["heartbeat"] = beat

    time_.every.append((60.0, late))
    terms = time_.terms()
    with pytest.raises(LockedError):
        take(box, terms, Lease(terms))
    terms, began = time_.terms(), time_.now
    lease = Lease(terms)
    take(box, terms, lease)
    assert time_.now - began >= PoolLocks.patience_s
    assert list(box.locks) == [SECOND]
    lease.release()


def test_a_holder_writes_once_per_interval_and_sees_soon_that_its_lock_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.reconcile.lock.LOOK_S", 0.02)
    box = FakeProvider("box")
    box.locks = seldom = Seldom(box)
    with held({"box": box}, LAB, "up", say=print, heartbeat_s=0.4) as lease:
        began = time.monotonic()
        wait_until(lambda: seldom.writes >= 2)
        assert time.monotonic() - began >= 0.7
        lease.check()
        writes = seldom.writes
        box.locks.delete(FIRST)
        with pytest.raises(LockedError, match="was lost"):
            until_lost(lease)
        assert seldom.writes - writes <= 1


def test_a_failed_renewal_is_asked_for_again_before_the_next_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.reconcile.lock.LOOK_S", 0.02)
    box = FakeProvider("box")
    box.locks = broken = Broken(box)
    with held({"box": box}, LAB, "up", say=print, heartbeat_s=0.3, patience_s=60.0):
        broken.away = True
        asked = broken.asked
        wait_until(lambda: broken.asked > asked)
        broken.away = False
        before, began = box.locks[FIRST]["heartbeat"], time.monotonic()
        wait_until(lambda: box.locks[FIRST]["heartbeat"] != before)
        assert time.monotonic() - began < 0.25
