"""Which snapshots are named, kept and gone back to."""

from __future__ import annotations

import pytest

from provisioner.reconcile.snapshots import bound_together, is_ours, latest, next_name, surplus
from provisioner.values.state import Instance, Snapshot


def kept(*names: str) -> Instance:
    return Instance("a", "box", "lab", "debian/12", snapshots=tuple(map(Snapshot, names)))


@pytest.mark.parametrize(
    ("there", "name"),
    [((), "provision-1"), (("provision-9", "provision-10-failed"), "provision-11"), (("mine-99",), "provision-1")],
)
def test_a_new_name_was_never_used(there: tuple[str, ...], name: str) -> None:
    assert next_name(kept(*there)) == name
    assert next_name(kept(*there), "failed") == f"{name}-failed"


def test_the_oldest_of_ours_go_and_the_users_stay() -> None:
    there = kept("mine", "provision-1", "provision-2-unproved", "provision-3-failed", "provision-10", "provision-4")
    assert [one.name for one in surplus(there, 2)] == ["provision-1", "provision-2-unproved"]
    assert [one.name for one in surplus(there, 3)] == ["provision-1"]
    assert [one.name for one in surplus(there, 0)] == [
        "provision-1",
        "provision-2-unproved",
        "provision-4",
        "provision-10",
        "provision-3-failed",
    ]


def test_a_rollback_goes_to_the_newest_that_had_proved_itself() -> None:
    assert latest(kept("provision-1", "mine", "provision-2-failed", "provision-3-replaced")) == Snapshot("mine")
    assert latest(kept("mine", "provision-4", "provision-5-unproved")) == Snapshot("provision-4")
    assert latest(kept("provision-2-failed", "provision-3-unproved")) is None


def test_names_that_are_ours() -> None:
    assert is_ours("provision-x")
    assert not is_ours("before-upgrade")


def test_who_asks_whom_goes_back_together() -> None:
    needs = {"gateway": {"a", "b"}, "app": {"gateway"}, "other": {"c"}}
    everything = {"gateway", "a", "b", "app", "other", "c"}
    assert bound_together(["a"], everything, needs) == {"a", "gateway", "b", "app"}
    assert bound_together(["a"], {"a", "app"}, needs) == {"a"}
    assert bound_together(["gateway"], {"a", "c", "other"}, needs) == set()
    assert bound_together(["c"], everything, needs) == {"c", "other"}
