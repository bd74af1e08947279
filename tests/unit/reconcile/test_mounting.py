"""What stays mounted until the services of a container have gone over to what comes in its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.reconcile.apply import NO_LONGER_USED, last_step, undone, with_former_mounts
from provisioner.values.plan import Action, Change
from provisioner.values.state import Device, Instance, Status

PORT = Device("publish-engine", "publish", {"listen": "0.0.0.0:8080", "connect": "127.0.0.1:8080"})


def volume(digest: str, below: str = "/opt/engine/") -> Device:
    properties = {"volume": f"provision-engine-{digest}", "path": f"{below}{digest}", "readonly": "true"}
    return Device(f"engine-{digest}", "volume", properties)


OLD, NEW = volume("0ld"), volume("new")
BASE = Device("engine", "volume", {"volume": "provision-engine-0ld", "path": "/opt/engine", "readonly": "true"})


def update(before: tuple[Device, ...], after: tuple[Device, ...], status: Status = Status.RUNNING) -> Change:
    one = Instance("a", "box", "lab", "debian/12", status=status)
    there, wanted = replace(one, devices=before), replace(one, devices=after)
    return Change("update", "a", there, wanted, "devices differ from the file")


def devices(change: Change | None) -> tuple[tuple[str, ...], ...]:
    """The names of the devices before and after."""
    assert change is not None
    return tuple(
        tuple(device.name for device in one.devices)
        for one in (change.before, change.after)
        if isinstance(one, Instance)
    )


def test_what_goes_stays_beside_what_comes_until_the_last_step() -> None:
    change = update((OLD,), (NEW, PORT))
    first, last = with_former_mounts(change), last_step(change)
    assert devices(first) == (("engine-0ld",), ("engine-0ld", "engine-new", "publish-engine"))
    assert devices(last) == (("engine-0ld", "engine-new", "publish-engine"), ("engine-new", "publish-engine"))
    assert last is not None
    assert last.reason == NO_LONGER_USED


def test_a_published_port_leads_elsewhere_in_the_last_step() -> None:
    told = replace(PORT, properties={**PORT.properties, "connect": "127.0.0.2:8080", "proxy_protocol": "true"})
    first, last = with_former_mounts(update((PORT,), (told,))), last_step(update((PORT,), (told,)))
    assert isinstance(first.after, Instance)
    assert first.after.devices == (PORT,)
    assert last is not None
    assert isinstance(last.after, Instance)
    assert last.after.devices == (told,)


def test_another_port_of_the_host_is_let_go_at_once() -> None:
    """Another container may be about to get it."""
    moved = replace(PORT, properties={**PORT.properties, "listen": "0.0.0.0:8081"})
    assert last_step(update((PORT,), (moved,))) is None


def test_only_volumes_stay() -> None:
    change = update((OLD, PORT), (NEW,))
    assert devices(with_former_mounts(change))[1] == ("engine-0ld", "engine-new")


@pytest.mark.parametrize("before", [BASE, volume("new/deeper"), replace(NEW, name="engine")])
def test_what_is_mounted_above_below_or_at_the_folder_of_what_comes_goes_at_once(before: Device) -> None:
    change = update((before, OLD), (NEW,))
    assert devices(with_former_mounts(change))[1] == ("engine-0ld", "engine-new")


def test_a_folder_whose_name_only_begins_alike_is_not_above() -> None:
    change = update((volume("ne"),), (NEW,))
    assert devices(with_former_mounts(change))[1] == ("engine-ne", "engine-new")


def test_a_device_that_becomes_another_one_under_its_name_is_exchanged_at_once() -> None:
    change = update((replace(OLD, name=NEW.name),), (NEW,))
    assert with_former_mounts(change) == change
    assert last_step(change) is None


@pytest.mark.parametrize("status", [Status.STOPPED, Status.FROZEN, Status.ERROR])
def test_nothing_stays_where_nothing_runs(status: Status) -> None:
    change = update((OLD,), (NEW,), status)
    assert with_former_mounts(change) == change
    assert last_step(change) is None


@pytest.mark.parametrize("action", ["create", "replace", "start"])
def test_other_changes_are_left_as_they_are(action: Action) -> None:
    change = replace(update((OLD,), (NEW,)), action=action)
    assert with_former_mounts(change) == change
    assert last_step(change) is None


def test_a_run_that_was_killed_before_the_last_step_leaves_nothing_but_it() -> None:
    change = update((OLD, NEW), (NEW,))
    assert with_former_mounts(change).attributes() == {}
    assert devices(last_step(change)) == (("engine-0ld", "engine-new"), ("engine-new",))


def test_what_was_only_mounted_more_can_be_taken_away_again() -> None:
    change = update((OLD, PORT), (NEW, PORT))
    assert devices(undone(change)) == (("engine-0ld", "engine-new", "publish-engine"), ("engine-0ld", "publish-engine"))


@pytest.mark.parametrize(
    "change",
    [
        update((BASE,), (NEW,)),
        update((OLD,), (NEW, PORT)),
        update((OLD, PORT), (NEW,)),
        update((OLD,), (NEW,), Status.STOPPED),
        replace(update((OLD,), (NEW,)), action="replace"),
    ],
    ids=["one went at once", "a port was opened", "a port was closed", "nothing ran", "it was made anew"],
)
def test_what_was_changed_beside_that_cannot(change: Change) -> None:
    assert undone(change) is None


def test_a_container_that_was_changed_beside_its_mounts_cannot() -> None:
    change = update((OLD,), (NEW,))
    assert isinstance(change.after, Instance)
    assert undone(replace(change, after=replace(change.after, memory=1))) is None
