"""A number of processors counts, or is asked for again, or the change fails: Incus may go by the number before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.hosts.incus import containers
from provisioner.values.errors import ProviderError
from provisioner.values.state import Execution, Instance, Status

BEFORE = Instance("box", "host", "lab", "debian/12", cpu=None, status=Status.RUNNING)
HOST_HAS = 4


class Scheduler:
    """Of an Incus that takes up only later changes of the number, and says what the container has."""

    def __init__(self, deaf_for: int, code: int = 0) -> None:
        self.deaf_for, self.code = deaf_for, code
        self.has = HOST_HAS
        self.written: list[int | None] = []

    def write(self, number: int | None) -> None:
        """A change of the number."""
        self.written.append(number)
        if self.deaf_for:
            self.deaf_for -= 1
        else:
            self.has = min(number or HOST_HAS, HOST_HAS)

    def run(self, _command: list[str]) -> Execution:
        """``nproc`` in the container."""
        return Execution(self.code, f"{self.has}\n".encode(), b"")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "SPREAD_S", 0.0)


def changed(scheduler: Scheduler, cpu: int | None = 1, before: Instance = BEFORE) -> None:
    scheduler.write(cpu)
    containers.keep_processors(before, replace(before, cpu=cpu), scheduler.run, scheduler.write, HOST_HAS)


def test_what_counts_is_written_once() -> None:
    scheduler = Scheduler(0)
    changed(scheduler)
    assert (scheduler.written, scheduler.has) == ([1], 1)


@pytest.mark.parametrize("deaf_for", [1, 2, 3, 6])
def test_what_does_not_count_is_written_again_by_way_of_the_number_before(deaf_for: int) -> None:
    scheduler = Scheduler(deaf_for)
    changed(scheduler, 2)
    assert scheduler.has == 2
    assert scheduler.written[:3] == [2, None, 2]


def test_what_never_counts_fails_the_change() -> None:
    scheduler = Scheduler(1000)
    with pytest.raises(ProviderError, match="Unable to give container box 1 processors") as raised:
        changed(scheduler)
    assert "still has 4" in raised.value.details
    assert "incus restart box" in raised.value.resolution
    assert len(scheduler.written) == 2 * containers.ROUNDS - 1


def test_more_than_the_host_has_are_all_that_it_has() -> None:
    scheduler = Scheduler(0)
    changed(scheduler, 64, replace(BEFORE, cpu=1))
    assert (scheduler.written, scheduler.has) == ([64], HOST_HAS)


@pytest.mark.parametrize(
    "before", [replace(BEFORE, status=Status.STOPPED), replace(BEFORE, cpu=1)], ids=["stopped", "the same number"]
)
def test_where_nothing_can_be_seen_nothing_is_asked(before: Instance) -> None:
    scheduler = Scheduler(1000)
    changed(scheduler, 1, before)
    assert scheduler.written == [1]


def test_one_that_does_not_say_is_left_as_it_is() -> None:
    scheduler = Scheduler(1000, code=127)
    changed(scheduler)
    assert scheduler.written == [1]
