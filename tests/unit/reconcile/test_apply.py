"""A plan applied to a host in memory: judged by what the host has afterwards, never by the calls that were made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.hosts.fake import FakeProvider
from provisioner.reconcile.apply import apply_instances
from provisioner.reconcile.plan import make_destroy_plan, make_plan, make_stop_plan
from provisioner.values.errors import ProviderError, ReadyTimeoutError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Event
from provisioner.values.plan import Change
from provisioner.values.state import Device, Fleet, Instance, Status

LAB = "lab"
NAMES = ("a", "b", "c")


def instance(name: str, host: str = "box", **attributes: object) -> Instance:
    return replace(Instance(name, host, LAB, "debian/12", cpu=2, memory=2**30), **attributes)  # type: ignore[arg-type]


class World:
    """Two hosts and what a run said about them."""

    def __init__(self) -> None:
        self.hosts = {"box": FakeProvider("box"), "rack": FakeProvider("rack")}
        self.events: list[Event] = []

    def apply(self, *changes: Change) -> tuple[Instance, ...]:
        """Carry out these changes."""
        return apply_instances(changes, self.hosts, self.events.append)

    def up(self, *wanted: Instance) -> tuple[Instance, ...]:
        """Plan and apply what is wanted."""
        return self.apply(*make_plan(Fleet(LAB, wanted), self.actual()).changes)

    def actual(self) -> Fleet:
        """What both hosts have."""
        seen = [host.observe(LAB) for host in self.hosts.values()]
        states = {name: state for fleet in seen for name, state in fleet.hosts.items()}
        return Fleet(LAB, tuple(one for fleet in seen for one in fleet.instances), hosts=states)

    def states(self) -> dict[str, Status | None]:
        """Every container of the lab and what it is doing."""
        return {one.name: one.status for one in self.actual().instances}


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_wanted_is_there_and_runs(world: World) -> None:
    wanted = [instance("a"), instance("b", "rack"), instance("c")]
    made = world.up(*wanted)
    assert [one.name for one in made] == ["a", "c", "b"]
    assert list(made) == [wanted[0], wanted[2], wanted[1]]
    assert all(one.status is Status.RUNNING and one.address for one in made)
    assert make_plan(Fleet(LAB, tuple(wanted)), world.actual()).is_empty


def test_nothing_to_do_is_nothing_done(world: World) -> None:
    assert world.apply() == ()
    assert world.events == []


def test_down_and_up_again(world: World) -> None:
    world.up(instance("a"), instance("b"))
    world.apply(*make_stop_plan(world.actual(), NAMES).changes)
    assert world.states() == {"a": Status.STOPPED, "b": Status.STOPPED}
    world.up(instance("a"), instance("b"))
    assert world.states() == {"a": Status.RUNNING, "b": Status.RUNNING}


def test_a_frozen_one_is_resumed_and_then_changed(world: World) -> None:
    world.up(instance("a"))
    box = world.hosts["box"].containers["a"]
    box.instance = replace(box.instance, status=Status.FROZEN)
    world.up(instance("a", cpu=4))
    assert world.states() == {"a": Status.RUNNING}
    assert world.hosts["box"].containers["a"].instance.cpu == 4
    done = [(event.action, event.target) for event in world.events if isinstance(event, ApplyComplete)]
    assert done[-2:] == [("start", "a"), ("update", "a")]


def test_destroy_leaves_nothing_of_ours_and_everything_of_others(world: World) -> None:
    other = replace(instance("theirs"), lab="another")
    world.hosts["box"].create(other)
    world.up(instance("a"))
    world.apply(*make_destroy_plan(world.actual(), NAMES).changes)
    assert set(world.hosts["box"].containers) == {"theirs"}


def test_events_tell_the_story(world: World) -> None:
    world.up(instance("a"))
    kinds = [type(event) for event in world.events]
    assert kinds == [ApplyStart, ApplyProgress, ApplyProgress, ApplyComplete]
    done = world.events[-1]
    assert isinstance(done, ApplyComplete)
    assert (done.target, done.action) == ("a", "create")


def test_a_full_pool_stops_the_run_and_says_what_was_done(world: World) -> None:
    world.hosts["box"].room = 2
    with pytest.raises(ProviderError) as caught:
        world.up(instance("a"), instance("b"), instance("c"))
    made = set(world.hosts["box"].containers)
    assert len(made) == 2
    missing = ({"a", "b", "c"} - made).pop()
    assert f"Unable to create container {missing}" in caught.value.message
    assert f"Not done: create {missing}" in caught.value.details
    assert all(f"create {name}" in caught.value.details for name in made)
    assert caught.value.resolution == "The pool is full: grow it."
    assert any(isinstance(event, ApplyErrored) and event.target == missing for event in world.events)


def test_after_a_failure_nothing_new_is_begun(world: World) -> None:
    world.hosts["box"].never_ready = {"a"}
    world.up(instance("b"))
    stop = Change("stop", "b", instance("b"), instance("b"), "down was asked for")
    later = Change("delete", "a", instance("a"), None, "destroy was asked for")
    create = Change("create", "a", None, instance("a"), "in the file")
    with pytest.raises(ReadyTimeoutError) as caught:
        world.apply(create, later)
    assert "Not done: create a, delete a" in caught.value.details
    assert "console" in caught.value.details, "that of the container which did not come up"
    assert "a" in world.hosts["box"].containers
    world.apply(stop)


def test_a_host_that_makes_something_else_is_not_believed(world: World) -> None:
    world.hosts["box"].alters = {"memory": 2**29}
    with pytest.raises(ProviderError) as caught:
        world.up(instance("a"))
    assert f"memory: wanted {2**30}, is {2**29}" in caught.value.details


def test_the_order_of_devices_is_no_difference(world: World) -> None:
    devices = [Device(f"p{n}", "publish", {"listen": f"127.0.0.1:{n}", "connect": "127.0.0.1:1"}) for n in (1, 2)]
    world.hosts["box"].alters = {"devices": tuple(devices)}
    made = world.up(instance("a", devices=tuple(reversed(devices))))
    assert made[0].status is Status.RUNNING


def test_an_image_that_went_away_is_named(world: World) -> None:
    change = make_plan(Fleet(LAB, (instance("a"),)), world.actual()).changes
    world.hosts["box"].images = {"debian/13"}
    with pytest.raises(ProviderError) as caught:
        world.apply(*change)
    assert "Images there: debian/13" in caught.value.details
    assert world.states() == {}


def test_a_change_in_place_is_made_and_read_back(world: World) -> None:
    world.up(instance("a"))
    world.up(instance("a", memory=2**31, nesting=True))
    there = world.actual().instance("a")
    assert there is not None
    assert (there.memory, there.nesting, there.status) == (2**31, True, Status.RUNNING)


def test_a_host_that_changes_something_else_is_not_believed(world: World) -> None:
    world.up(instance("a"))
    world.hosts["box"].alters = {"memory": 7}
    with pytest.raises(ProviderError, match="Unable to make container a as the file says"):
        world.up(instance("a", memory=2**31))


def test_a_replacement_begins_with_nothing(world: World) -> None:
    world.up(instance("a"))
    world.hosts["box"].containers["a"].files["/data"] = b"x"
    world.up(instance("a", image="debian/13"))
    assert world.hosts["box"].containers["a"].files == {}
    assert world.states() == {"a": Status.RUNNING}


def test_a_mistake_of_ours_is_not_dressed_up(world: World) -> None:
    world.hosts["box"].alters = {"no_such_attribute": 1}
    with pytest.raises(TypeError):
        world.up(instance("a"))


def test_deleting_twice_is_success(world: World) -> None:
    world.up(instance("a"))
    plan = make_destroy_plan(world.actual(), NAMES)
    world.apply(*plan.changes)
    world.apply(*plan.changes)
    assert world.states() == {}
