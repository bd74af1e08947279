"""Verbs that are killed at each of their steps: the same command brings them to their end, or says truly what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.fake import FakeProvider
from provisioner.values.state import Instance, Status
from tests.unit.cli.conftest import World


class Killed(BaseException):
    """What no part of the program catches: after it nothing is done any more."""


@dataclass
class Death:
    """When the run is killed: after the step of that number; from then on its host hears nothing of it."""

    at: int
    step: int = 0
    dead: bool = False

    def __call__(self, work: Callable[[], Any]) -> Any:
        """Do one step, unless the run is dead."""
        if self.dead:
            raise Killed
        self.step += 1
        done = work()
        if self.step == self.at:
            self.dead = True
            raise Killed
        return done


class Mortal(FakeProvider):
    """A host whose driver goes back as those of real hosts do: stop, restore, start."""

    death = Death(0)

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self._restore = self.snapshots.rollback
        for part, names in STEPS.items():
            owner = getattr(self, part, self)
            for name in names:
                setattr(owner, name, self._one_step(getattr(owner, name)))
        self.snapshots.rollback = self._rollback  # type: ignore[method-assign]

    def _one_step(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the driver as one step, before or after which the run may be killed."""
        return lambda *arguments, **named: self.death(lambda: method(*arguments, **named))

    def _rollback(self, instance: Instance, name: str) -> Instance:
        """Three steps, between any of which the run may be killed."""
        ran = self.containers[instance.name].instance.status is Status.RUNNING
        self.stop(instance)
        self.death(lambda: self._restore(instance, name))
        if ran:
            self.start(instance)
        return self.containers[instance.name].instance


STEPS = {
    "itself": ("clone", "start", "stop", "delete"),
    "snapshots": ("take",),
    "locks": ("create", "delete"),
    "volumes": ("delete",),
}
"""What is one step each, by the part of the driver that does it."""


@pytest.fixture
def mortal(world: World) -> World:
    """The lab up on such a host, with a snapshot of everything."""
    world.host = Mortal("box")
    world.host.programs["python3"] = world._agent
    assert world.command("up", "--yes").code == 0
    assert world.command("snapshot", "--name", "good").code == 0
    world.host.containers["llama"].files["/broken"] = b"x"
    return world


def killed(world: World, at: int, *words: str) -> bool:
    """Run the command and kill it at that step; False when it came to its end before."""
    assert isinstance(world.host, Mortal)
    world.host.death = death = Death(at)
    try:
        ended = world.command(*words)
    except Killed:
        ended = None
    world.host.death = Death(0)
    # Its process is gone, which the next run sees: in a test both are one process.
    for name in [name for name in world.host.locks if name.startswith("provisioner-lock-")]:
        del world.host.locks[name]
    for written in world.host.locks.values():
        if "pid" in written:
            written["pid"] = str(2**22 + 1)  # more than Linux counts to
    assert death.dead == (ended is None or ended.code != 0), ended
    return death.dead


def until_it_ends(world: World, *words: str, put_back: Callable[[], None]) -> list[tuple[int, str]]:
    """Kill the command at each step and run it again; the steps after which that did not end as it ought to."""
    wrong: list[tuple[int, str]] = []
    for step in range(1, 40):
        if not killed(world, step, *words):
            assert step > 1
            return wrong
        again = world.command(*words)
        if again.code != 0:
            wrong.append((step, again.err))
        put_back()
    raise AssertionError("it never came to its end")


def is_running(world: World, name: str) -> bool:
    return world.host.containers[name].instance.status is Status.RUNNING


def leaves_nothing(world: World) -> bool:
    return world.host.locks == {}


def test_a_killed_rollback_ends_with_everything_running(mortal: World) -> None:
    def check() -> None:
        assert is_running(mortal, "llama")
        assert is_running(mortal, "gateway")
        assert "/broken" not in mortal.host.containers["llama"].files
        assert leaves_nothing(mortal)
        mortal.host.containers["llama"].files["/broken"] = b"x"

    assert until_it_ends(mortal, "rollback", "--to", "good", "--yes", put_back=check) == []


def test_what_was_stopped_before_a_rollback_stays_stopped(mortal: World) -> None:
    assert mortal.command("down", "llama", "--yes").code == 0

    def check() -> None:
        assert not is_running(mortal, "llama")
        assert leaves_nothing(mortal)

    assert until_it_ends(mortal, "rollback", "llama", "--to", "good", "--yes", put_back=check) == []


@pytest.mark.parametrize("between", [("down", "--yes"), pytest.param(("up", "--yes"), marks=pytest.mark.slow)])
def test_what_was_done_between_counts(mortal: World, between: tuple[str, ...]) -> None:
    rollback = ("rollback", "llama", "--to", "good", "--yes")
    for step in range(1, 40):
        if not killed(mortal, step, *rollback):
            return
        assert mortal.command(*between).code == 0
        assert mortal.command("down", "--yes").code == 0
        mortal.done(*rollback)
        assert not is_running(mortal, "llama"), step
        assert mortal.command("up", "--yes").code == 0
    raise AssertionError("it never came to its end")


def test_a_killed_snapshot_is_brought_to_its_end_under_its_name(mortal: World) -> None:
    names = iter(f"set-{number}" for number in range(80))

    def taken(name: str) -> set[str]:
        boxes = mortal.host.containers.values()
        return {one.instance.name for one in boxes if name in {kept.name for kept in one.instance.snapshots}}

    for step in range(1, 40):
        name = next(names)
        died = killed(mortal, step, "snapshot", "--name", name)
        before = {key: len(one.states) for key, one in mortal.host.containers.items() if key in taken(name)}
        was_done = len(before) == len(mortal.host.containers) and leaves_nothing(mortal)
        again = mortal.command("snapshot", "--name", name)
        if not died:
            assert again.code == 4, "it came to its end: the name is taken"
            return
        if was_done:
            continue
        assert again.code == 0, (step, again.err)
        assert taken(name) == {"llama", "gateway"}
        assert all(len(mortal.host.containers[key].states) == count for key, count in before.items())
        assert leaves_nothing(mortal)
    raise AssertionError("it never came to its end")


def test_a_name_that_another_snapshot_has_is_refused_as_before(mortal: World) -> None:
    assert mortal.command("snapshot", "llama", "--name", "mine").code == 0
    assert killed(mortal, 3, "snapshot", "--name", "other")
    answer = mortal.command("snapshot", "--name", "mine")
    assert answer.code == 4
    assert "llama: it has a snapshot mine" in answer.err


def test_a_killed_clone_is_brought_to_its_end_by_the_same_command(mortal: World) -> None:
    original = mortal.host.containers["llama"].instance
    for step in range(1, 40):
        if not killed(mortal, step, "clone", "llama", "spare"):
            assert step > 3, "there were steps at which it was killed"
            return
        was_done = "spare" in mortal.host.containers and leaves_nothing(mortal)
        answer = mortal.command("clone", "llama", "spare")
        assert (answer.code, "The name is taken" in answer.err) == ((1, True) if was_done else (0, False)), answer.err
        assert mortal.command("destroy", "spare", "--yes", "--lab", "homelab").code == 0
        assert leaves_nothing(mortal)
        assert mortal.host.containers["llama"].instance == original
    raise AssertionError("it never came to its end")


def left_by_a_killed_clone(world: World) -> None:
    """Leave a copy as a run does that is killed as soon as it is made."""
    for step in range(1, 40):
        assert killed(world, step, "clone", "llama", "spare")
        if "spare" in world.host.containers:
            return
        world.host.locks.clear()


@pytest.mark.parametrize("more", [(), ("--set", "services.llama_cpp.parallel=2", "--yes")])
def test_a_left_copy_that_somebody_has_started_is_named_with_what_to_do(mortal: World, more: tuple[str, ...]) -> None:
    left_by_a_killed_clone(mortal)
    mortal.host.start(mortal.host.containers["spare"].instance)
    answer = mortal.command("clone", "llama", "spare", *more)
    assert (answer.code, "Delete it (provision destroy spare)" in answer.err) == (4, True), answer.err
    assert "spare" in mortal.host.containers


def test_a_killed_clone_with_other_options_is_brought_to_its_end_by_the_same_command(mortal: World, lab: Path) -> None:
    mortal.host.programs["sh"] = mortal._shell
    command = ("clone", "llama", "spare", "--set", "services.llama_cpp.parallel=2", "--yes")
    before = lab.read_text()
    original = mortal.host.containers["llama"].instance
    for step in range(1, 60):
        if not killed(mortal, step, *command):
            assert step > 5, "there were steps at which it was killed"
            return
        answer = mortal.done(*command)
        assert "spare is a copy of llama" in answer.out
        assert is_running(mortal, "spare")
        assert "parallel: 2" in lab.read_text()
        assert mortal.command("plan", "--detailed-exitcode").code == 0
        assert mortal.command("destroy", "spare", "--yes", "--lab", "homelab").code == 0
        assert (lab.read_text(), leaves_nothing(mortal)) == (before, True)
        assert mortal.host.containers["llama"].instance == original
    raise AssertionError("it never came to its end")


def test_a_copy_that_another_command_wrote_is_refused_and_one_that_is_gone(mortal: World, lab: Path) -> None:
    mortal.host.programs["sh"] = mortal._shell
    command = ("clone", "llama", "spare", "--yes", "--set")
    assert mortal.command(*command, "services.llama_cpp.parallel=2").code == 0
    written = lab.read_text()
    answer = mortal.command(*command, "services.llama_cpp.parallel=3")
    assert (answer.code, "the file has a container spare" in answer.err) == (64, True)
    assert mortal.command("down", "spare", "--yes").code == 0
    mortal.host.delete(mortal.host.containers["spare"].instance)
    answer = mortal.command(*command, "services.llama_cpp.parallel=2")
    assert (answer.code, "the file has it, and its host does not" in answer.err) == (4, True)
    assert lab.read_text() == written


def test_a_killed_down_is_brought_to_its_end(mortal: World) -> None:
    def check() -> None:
        assert not is_running(mortal, "llama")
        assert not is_running(mortal, "gateway")
        assert mortal.command("up", "--yes").code == 0

    assert until_it_ends(mortal, "down", "--yes", put_back=check) == []


def test_a_killed_destroy_is_brought_to_its_end(mortal: World) -> None:
    def check() -> None:
        assert mortal.host.containers == {}
        assert mortal.host.volumes == {}
        assert leaves_nothing(mortal)
        assert mortal.command("up", "--yes").code == 0

    assert until_it_ends(mortal, "destroy", "--yes", "--lab", "homelab", put_back=check) == []


def test_a_killed_proof_after_a_restart_leaves_nothing_stopped(mortal: World) -> None:
    def check() -> None:
        assert is_running(mortal, "llama")
        assert is_running(mortal, "gateway")
        assert leaves_nothing(mortal)

    assert until_it_ends(mortal, "verify", "--after-reboot", put_back=check) == []
