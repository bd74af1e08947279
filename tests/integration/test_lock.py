"""The run lock on a real Incus, among real processes."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.reconcile.lock import held
from provisioner.values.errors import LockedError, PreflightError
from tests.processes import killed_at_end

TIMEOUT_S = 120
pytestmark = [pytest.mark.incus, pytest.mark.guarantee("locks")]

CONTENDERS = 16
HEARTBEAT_S, PATIENCE_S = 0.3, 2.0
ELSEWHERE = {
    "holder": "ann@laptop, pid 7, provision up",
    "since": "2099-01-01T00:00:00+00:00",  # its clock is wrong, which must not matter
    "machine": "laptop 1234",
    "namespace": "pid:[1]",
    "pid": "7",
    "start": "99",
    "nonce": "n",
}
CONTENDER = """
import sys
from provisioner.values.errors import LockedError
from provisioner.reconcile.lock import held
from provisioner.hosts import provider_for

host = provider_for("box", "incus")
host.check_available()
print("ready", flush=True)
sys.stdin.readline()
try:
    with held({"box": host}, sys.argv[1], "up", say=print) as lease:
        print("held", flush=True)
        sys.stdin.readline()
        lease.check()
        print("done", flush=True)
except LockedError as error:
    print("refused", error.message, error.details, flush=True)
"""


@dataclass(frozen=True)
class Contender:
    """A process that takes the lock when told to, and ends when told to."""

    process: subprocess.Popen[str]

    def says(self) -> str:
        """Its next line."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        """Let it take the lock, or end."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def contender(lab: str) -> Iterator[Contender]:
    """A process that waits for the word to take the lock; it is gone after the block."""
    command = (sys.executable, "-c", CONTENDER, lab)
    with killed_at_end(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) as process:
        started = Contender(process)
        assert started.says() == "ready"
        yield started


@pytest.fixture
def box(incus_lab: object) -> IncusProvider:
    """The lab's Incus."""
    assert incus_lab
    return IncusProvider("box")


@pytest.fixture
def lab(box: IncusProvider) -> Iterator[str]:
    """The name of a lab of which no lock is left afterwards."""
    name = f"t{secrets.token_hex(4)}"
    yield name
    for lock in box.locks.read(f"provisioner-lock-{name}-"):
        box.locks.delete(lock)


@pytest.fixture
def contenders(lab: str) -> Iterator[list[Contender]]:
    """Processes that want the lock, and wait for the word to take it."""
    with ExitStack() as stack:
        yield [stack.enter_context(contender(lab)) for _ in range(CONTENDERS)]


def names(box: IncusProvider, lab: str) -> list[str]:
    return sorted(box.locks.read(f"provisioner-lock-{lab}-"))


@pytest.mark.parametrize("is_dead_one_there", [False, True], ids=["free", "left by a dead run"])
def test_of_sixteen_at_once_one_wins(
    box: IncusProvider, lab: str, contenders: list[Contender], is_dead_one_there: bool
) -> None:
    if is_dead_one_there:
        with contender(lab) as dead:
            dead.go_on()
            assert dead.says() == "held"
    for one in contenders:
        one.go_on()
    said = {one.process.pid: one.says() for one in contenders}
    winners = [pid for pid, words in said.items() if words == "held"]
    assert len(winners) == 1, said
    refused = [words for words in said.values() if words.startswith("refused")]
    assert len(refused) == CONTENDERS - 1, said
    assert all(f"pid {winners[0]}, provision up" in words for words in refused)
    winner = next(one for one in contenders if one.process.pid == winners[0])
    assert names(box, lab) == [f"provisioner-lock-{lab}-{2 if is_dead_one_there else 1}"]
    winner.go_on()
    assert winner.says() == "done"
    winner.process.wait(timeout=30)
    assert names(box, lab) == []


def test_a_killed_run_is_followed_at_once_and_nothing_is_left(box: IncusProvider, lab: str) -> None:
    with contender(lab) as killed:
        killed.go_on()
        assert killed.says() == "held"
        with pytest.raises(LockedError), held({"box": box}, lab, "up", say=print):
            pytest.fail("two hold it")
    assert names(box, lab) == [f"provisioner-lock-{lab}-1"]
    began = time.monotonic()
    with held({"box": box}, lab, "up", say=print) as lease:
        assert time.monotonic() - began < 3
        lease.check()
        assert names(box, lab) == [f"provisioner-lock-{lab}-2"]
    assert names(box, lab) == []


def test_a_dead_run_of_another_machine_is_followed_after_patience(box: IncusProvider, lab: str) -> None:
    box.locks.create(f"provisioner-lock-{lab}-1", ELSEWHERE)
    said: list[str] = []
    began = time.monotonic()
    with held({"box": box}, lab, "up", say=said.append, heartbeat_s=HEARTBEAT_S, patience_s=PATIENCE_S + 1):
        assert time.monotonic() - began >= PATIENCE_S + 1
        assert names(box, lab) == [f"provisioner-lock-{lab}-2"]
    assert names(box, lab) == []
    assert len(said) == 1
    assert ELSEWHERE["holder"] in said[0]


def test_a_living_run_of_another_machine_is_refused(box: IncusProvider, lab: str) -> None:
    """Its heartbeat comes from a process that says to be elsewhere."""
    name = f"provisioner-lock-{lab}-1"
    box.locks.create(name, ELSEWHERE)
    code = f"""
import time
from provisioner.hosts import provider_for
host, count = provider_for("box", "incus"), 0
while host.locks.renew({name!r}, {ELSEWHERE!r} | {{"heartbeat": str(count)}}):
    count += 1
    print(count, flush=True)
    time.sleep({HEARTBEAT_S})
"""
    with killed_at_end(subprocess.Popen((sys.executable, "-c", code), stdout=subprocess.PIPE, text=True)) as other:
        assert other.stdout
        other.stdout.readline()
        with (
            pytest.raises(LockedError) as caught,
            held({"box": box}, lab, "up", say=print, heartbeat_s=HEARTBEAT_S, patience_s=30),
        ):
            pytest.fail("two hold it")
        assert ELSEWHERE["holder"] in caught.value.details
        assert names(box, lab) == [name]


def test_the_heartbeat_moves_and_says_who_it_is_to_people(box: IncusProvider, lab: str) -> None:
    with held({"box": box}, lab, "up", say=print, heartbeat_s=HEARTBEAT_S):
        name = f"provisioner-lock-{lab}-1"
        beats: set[str] = set()
        deadline = time.monotonic() + 20
        while len(beats) < 3 and time.monotonic() < deadline:
            beats.add(box.locks.read(name)[name]["heartbeat"])
            time.sleep(0.05)
        assert len(beats) >= 3
        shown = subprocess.run(
            ("incus", "profile", "show", name), capture_output=True, text=True, check=True, timeout=TIMEOUT_S
        ).stdout
        assert "Run lock of provision" in shown
        assert f"pid {os.getpid()}" in shown


def test_a_profile_that_people_made_is_named_and_left(box: IncusProvider, lab: str) -> None:
    name = f"provisioner-lock-{lab}-1"
    subprocess.run(
        ("incus", "profile", "create", name, "--description", "ours"),
        capture_output=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    with (
        pytest.raises(PreflightError, match=f"profile {name} is no run lock") as caught,
        held({"box": box}, lab, "up", say=print),
    ):
        pytest.fail("a profile of people was taken for a lock")
    shown = subprocess.run(
        ("incus", "profile", "show", name), capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout
    assert "description: ours" in shown
    assert f"incus profile delete {name}" in caught.value.resolution
