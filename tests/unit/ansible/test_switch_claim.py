"""What an engine's unit waits for before each start where it shares a card."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ansible.switch_programs import program

claim = program("claim")
SOCKET = Path("/run/switch-engine/control.sock")
KEEPER = "switch-engine-keeper.service"


class World:
    """A keeper that answers as the test says, systemd, and a clock that runs while it is waited."""

    def __init__(self) -> None:
        self.now = 0.0
        self.is_booting = False
        self.answers: Iterator[bool | Exception] = iter([])
        self.keeper = ("active", False)
        self.wanted: list[bool] = []

    def posted(self, path: Path, route: str, content: dict[str, bool]) -> dict[str, bool]:
        """What the keeper says."""
        assert (path.name, path.parent.name, route) == ("turns.sock", "switch-engine-keeper", "/claim")
        self.wanted.append(content["wants"])
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return {"granted": answer}

    def unit_state(self, unit: str) -> tuple[str, bool]:
        """What systemd says of the keeper."""
        assert unit == KEEPER
        return self.keeper

    def monotonic(self) -> float:
        """The clock."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """One that has been started, with a keeper that runs."""
    made = World()
    for name in ("posted", "unit_state"):
        monkeypatch.setattr(claim, name, getattr(made, name))
    monkeypatch.setattr(claim, "starts_now", lambda: made.is_booting)
    monkeypatch.setattr(claim, "time", made)
    return made


def ends(within_s: float = 60.0) -> int:
    """The exit code."""
    code: int = claim.main(["--socket", str(SOCKET), "--within", str(within_s)])
    return code


def test_it_waits_for_its_turn(world: World) -> None:
    world.answers = iter([False, False, False, True])
    assert ends() == claim.GO_ON
    assert world.wanted == [True] * 4


def test_it_does_not_wait_without_an_end(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.answers = iter(lambda: False, None)
    assert ends(10.0) == claim.FAILED
    assert world.now == pytest.approx(10.0, abs=1)
    assert "those who share the card have kept it for 10 s" in capsys.readouterr().err


@pytest.mark.parametrize(("is_its_turn", "code"), [(True, claim.GO_ON), (False, claim.SKIPPED)])
def test_while_the_container_starts_nobody_asks_for_the_engine(world: World, is_its_turn: bool, code: int) -> None:
    world.is_booting, world.answers = True, iter([is_its_turn])
    assert ends() == code
    assert world.wanted == [False]


@pytest.mark.parametrize(
    ("keeper", "code"),
    [(("failed", False), claim.GO_ON), (("inactive", False), claim.SKIPPED)],
)
def test_without_a_keeper_it_starts_only_where_none_comes_back(
    world: World, keeper: tuple[str, bool], code: int
) -> None:
    world.keeper, world.answers = keeper, iter([claim.NotThereError("no socket")])
    assert ends() == code


@pytest.mark.parametrize("keeper", [("inactive", True), ("activating", True), ("activating", False), ("active", False)])
def test_one_that_is_about_to_come_is_waited_for(world: World, keeper: tuple[str, bool]) -> None:
    world.keeper = keeper
    world.answers = iter([claim.NotThereError("no socket"), claim.NotThereError("no socket"), True])
    assert ends() == claim.GO_ON


@pytest.mark.parametrize("error", [claim.RefusedError("it answers with HTTP 404"), PermissionError("not you")])
def test_a_keeper_that_says_something_else_is_no_permission(
    world: World, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    world.answers = iter([error])
    assert ends() == claim.FAILED
    assert str(error) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "is_booting"),
    [("initializing\n", True), ("starting\n", True), ("running\n", False), ("degraded\n", False), ("", False)],
)
def test_a_container_starts_until_systemd_says_that_it_has(
    monkeypatch: pytest.MonkeyPatch, said: str, is_booting: bool
) -> None:
    class Done:
        stdout = said

    def run(command: list[str], **_options: Any) -> Done:
        assert command[1:] == ["is-system-running"]
        return Done()

    monkeypatch.setattr(claim.subprocess, "run", run)
    assert claim.starts_now() is is_booting


keeper = program("keeper")


@pytest.mark.parametrize(
    ("said", "has"),
    [
        ({"ActiveState": "active", "SubState": "running"}, True),
        ({"ActiveState": "deactivating", "SubState": "stop"}, True),
        ({"ActiveState": "activating", "SubState": "start-pre"}, True),
        ({"ActiveState": "activating", "SubState": "auto-restart"}, True),
        ({"ActiveState": "activating", "SubState": "condition"}, False),
        ({"ActiveState": "inactive", "SubState": "dead"}, False),
        ({"ActiveState": "failed", "SubState": "failed"}, False),
    ],
)
def test_an_engine_that_only_asks_does_not_have_the_card(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], has: bool
) -> None:
    monkeypatch.setattr(keeper, "shown", lambda *_: said)
    assert keeper.has_the_card("engine.service") is has


DEAD = {"ActiveState": "inactive", "Job": "0", "Result": "success", "InactiveExitTimestampMonotonic": "7"}


@pytest.mark.parametrize(
    ("differs", "waits"),
    [
        ({}, False),
        ({"InactiveExitTimestampMonotonic": "0"}, True),
        ({"Result": "exec-condition"}, True),
        ({"Result": "exec-condition", "Job": "12"}, False),
        ({"Result": "exec-condition", "ActiveState": "activating"}, False),
        ({"ActiveState": "failed", "Result": "exit-code"}, False),
    ],
)
def test_only_one_that_nobody_has_started_yet_waits_for_its_first_start(
    monkeypatch: pytest.MonkeyPatch, differs: dict[str, str], waits: bool
) -> None:
    monkeypatch.setattr(keeper, "shown", lambda *_: DEAD | differs)
    assert keeper.waits_for_its_first_start("engine.service") is waits
