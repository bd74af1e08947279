"""When an engine is put to sleep and woken, by a switch and a systemd of ours; its scenario has the real ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ansible.switch_programs import program

UNIT = "engine.service"
IDLE_S = 60.0


keeper = program("keeper")


class World:
    """A switch with an engine behind it, systemd, and a clock that runs only while the keeper waits."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked, self.waiting = 7, 0
        self.slot, self.asleep = "UP", "MAINT"
        self.unit, self.job = "active", False
        self.never_started = False
        self.did: list[str] = []
        """What the switch and systemd were told, in its order."""
        self.on: dict[str, Callable[[], None]] = {}
        """What happens as soon as they were told something."""

    def rows(self) -> dict[tuple[str, str], dict[str, str]]:
        """What the switch says."""
        return {
            ("answers", "BACKEND"): {"stot": str(self.asked), "scur": str(self.waiting), "status": "UP"},
            ("answers", "a"): {"status": self.slot},
            ("answers", "hold"): {"status": "no check"},
            ("asleep", "asleep"): {"status": self.asleep},
        }

    def alone(self) -> AbstractContextManager[None]:
        """Nobody else is there."""
        return nullcontext()

    def servers(self) -> dict[str, dict[str, str]]:
        """The lines of what has the engine compute."""
        return {name: row for (place, name), row in self.rows().items() if place == "answers" and name != "BACKEND"}

    def tell(self, command: str) -> None:
        """Take a command."""
        words = command.removeprefix("set server ")
        self.did.append(words)
        if words.startswith("asleep/asleep state "):
            self.asleep = {"ready": "no check", "maint": "MAINT"}[words.split()[-1]]
        if words == "answers/a state drain":
            self.slot = "DRAIN"
        if words == "answers/a state ready":
            self.slot = "UP"
        self.on.get(words, lambda: None)()

    def begin_to(self, verb: str, unit: str) -> None:
        """What systemd does."""
        assert unit == UNIT
        self.did.append(verb)
        self.unit = {"stop": "inactive", "start": "active"}[verb]
        self.slot = {"stop": "DOWN", "start": "UP"}[verb]
        self.on.get(verb, lambda: None)()

    def monotonic(self) -> float:
        """The clock."""
        return self.now

    def time(self) -> float:
        """The clock of people."""
        return 1_800_000_000 + self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """One whose engine is there and at rest."""
    made = World()
    monkeypatch.setattr(keeper, "time", made)
    monkeypatch.setattr(keeper, "begin_to", made.begin_to)
    monkeypatch.setattr(keeper, "forget_starts", lambda unit: made.did.append(f"forget {unit}"))
    monkeypatch.setattr(keeper, "unit_state", lambda _unit: (made.unit, made.job))
    monkeypatch.setattr(keeper, "Switch", lambda _path: made)
    monkeypatch.setattr(keeper, "waits_for_its_first_start", lambda _unit: made.never_started)
    return made


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the switch's socket would be; the keeper's folders are beside it."""
    (tmp_path / "switch-keeper").mkdir()
    monkeypatch.setattr(keeper.starts, "starts_of", lambda _socket: tmp_path / "starts")
    return tmp_path / "switch" / "control.sock"


@pytest.fixture
def keeping(world: World, socket: Path) -> Any:
    """The keeper of that engine; each test asks for the same world."""
    assert world.did == []
    return keeper.Keeper(socket, UNIT, IDLE_S, world.now)


def marker(socket: Path) -> Path:
    """The file that says that it is asleep."""
    return Path(keeper.marker_of(socket))


def passes(keeping: Any, world: World, seconds: float) -> None:
    """Have the keeper do what is due for so long."""
    until = world.now + seconds
    while world.now < until:
        world.sleep(max(float(keeping.step()), 0.01))


def test_it_ends_once_nobody_has_asked_it_for_as_long_as_was_said(keeping: Any, world: World, socket: Path) -> None:
    passes(keeping, world, IDLE_S - 1)
    assert world.did == []
    there: list[bool] = []
    world.on["stop"] = lambda: there.append(marker(socket).exists())
    passes(keeping, world, 8)
    told = ["answers/hold state ready", "answers/a state drain", "asleep/asleep state ready", "stop"]
    assert world.did[: len(told)] == told
    assert there == [True]
    assert json.loads(marker(socket).read_text())["since"] == pytest.approx(1_800_001_060, abs=10)


@pytest.mark.parametrize("word", ["asked", "waiting", "slot", "stay"])
def test_it_stays_while_it_is_used(keeping: Any, world: World, socket: Path, word: str) -> None:
    for _ in range(5):
        passes(keeping, world, IDLE_S - 10)
        if word == "asked":
            world.asked += 1
        elif word == "waiting":
            world.waiting = 1
        elif word == "slot":
            world.slot = "DOWN"
        else:
            keeper.stay_of(socket).write_text(str(world.now + 1000))
    assert world.did == []
    assert not marker(socket).exists()


@pytest.mark.parametrize("came", ["asked", "waiting", "stay"])
def test_a_request_of_the_last_moment_keeps_it(keeping: Any, world: World, socket: Path, came: str) -> None:
    def comes() -> None:
        del world.on["answers/a state drain"]  # once
        if came == "stay":
            keeper.stay_of(socket).write_text(str(world.now + 1000))
        else:
            setattr(world, came, getattr(world, came) + 1)

    world.on["answers/a state drain"] = comes
    passes(keeping, world, IDLE_S + 6)
    assert "stop" not in world.did
    assert world.slot == "UP"
    assert not marker(socket).exists()


def test_who_tells_it_to_stay_while_it_is_being_stopped_has_it_started_again(
    keeping: Any, world: World, socket: Path
) -> None:
    """A proof that begins at that moment has found it running, and started nothing."""
    world.on["stop"] = lambda: keeper.stay_of(socket).write_text(str(world.now + 1000)) and None
    passes(keeping, world, IDLE_S + 6)
    assert world.did[world.did.index("stop") :][:3] == ["stop", f"forget {UNIT}", "start"]
    assert (world.unit, world.slot) == ("active", "UP")
    assert not marker(socket).exists()


@pytest.mark.parametrize(("word", "job"), [("active", True), ("deactivating", False), ("inactive", False)])
def test_what_somebody_else_does_to_it_is_left_alone(
    keeping: Any, world: World, socket: Path, word: str, job: bool
) -> None:
    world.unit, world.job = word, job
    passes(keeping, world, IDLE_S + 10)
    assert world.did == []
    assert not marker(socket).exists()


def test_who_asks_wakes_it_and_what_that_took_is_noted(
    keeping: Any, world: World, socket: Path, tmp_path: Path
) -> None:
    for number in range(7):
        passes(keeping, world, IDLE_S + 10)
        assert world.unit == "inactive"
        world.waiting = 1
        world.on["start"] = marker(socket).unlink
        keeping.step()
        assert world.did[-2:] == [f"forget {UNIT}", "start"]
        assert world.unit == "active"
        world.waiting, world.asked = 0, world.asked + 1
        assert len((tmp_path / "starts").read_text().split()) == min(number + 1, 5)
    assert {float(word) for word in (tmp_path / "starts").read_text().split()} == {keeper.ASLEEP_POLL_S}


def test_one_that_was_stopped_by_somebody_is_not_started(keeping: Any, world: World) -> None:
    world.unit, world.slot, world.waiting = "inactive", "DOWN", 3
    passes(keeping, world, 100)
    assert world.did == []


def test_nobody_waits_for_one_that_cannot_start(
    keeping: Any, world: World, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(keeper, "gone", lambda _switch, slot, _unit: told.append(slot))
    passes(keeping, world, IDLE_S + 10)
    world.waiting = 1

    def fails() -> None:
        world.unit, world.slot = "failed", "DOWN"

    world.on["start"] = fails
    keeping.step()
    assert told == ["a"]
    assert not marker(socket).exists()


def test_a_switch_that_was_started_anew_is_told_that_it_is_asleep(keeping: Any, world: World) -> None:
    passes(keeping, world, IDLE_S + 10)
    world.asleep = "MAINT"
    keeping.step()
    assert world.asleep == "no check"
    assert world.unit == "inactive"


def test_a_note_without_a_stop_is_taken_back(keeping: Any, world: World, socket: Path) -> None:
    """Its keeper was killed between both."""
    marker(socket).write_text("{}")
    world.slot = "DRAIN"
    keeping.step()
    assert world.slot == "UP"
    assert not marker(socket).exists()


@pytest.mark.parametrize("was", ["awake", "asleep", "on its way"])
def test_to_wake_is_to_start_what_is_asleep_and_nothing_else(
    world: World, socket: Path, monkeypatch: pytest.MonkeyPatch, was: str
) -> None:
    """``on its way``: the engine still runs, so that nothing of a start takes the note away."""
    started: list[list[str]] = []

    def systemctl(command: list[str], **_options: object) -> None:
        started.append(command)
        if was == "asleep":
            marker(socket).unlink()

    monkeypatch.setattr(keeper.subprocess, "run", systemctl)
    if was != "awake":
        marker(socket).write_text("{}")
        world.slot = "DRAIN"
    keeper.wake(socket, UNIT, 30)
    assert started == ([] if was == "awake" else [["/usr/bin/systemctl", "start", "--", UNIT]])
    assert float(keeper.stay_of(socket).read_text()) == world.now + 30
    assert not marker(socket).exists()
    assert world.slot == ("DRAIN" if was == "asleep" else "UP"), "an engine that starts says by itself that it is ready"


def test_starts_are_forgotten_of_an_engine_that_is_well_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a pattern systemd takes only those units that have failed."""
    asked: list[list[str]] = []
    monkeypatch.setattr(keeper.subprocess, "run", lambda command, **_options: asked.append(command))
    keeper.forget_starts(UNIT)
    assert asked == [["/usr/bin/systemctl", "reset-failed", "--", UNIT]]


def test_an_engine_that_never_ends_has_no_keeper(socket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be stopped at once, and again after each start."""
    assert keeper.main(["--socket", str(socket), "--unit", UNIT, "keep", "--idle", "0"]) == 1
    assert "an engine that never ends has no keeper" in capsys.readouterr().err


class Others:
    """Those who share the card with it, as the test says: who waits for it, and whether they permit it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.holds, self.permits, self.claimed = True, True, False
        self.wait_for: list[str] = []
        self.did: list[str] = []

    def waiting(self) -> list[str]:
        """Who waits for the card."""
        return self.wait_for if self.holds else []

    def seek(self) -> bool:
        """Ask for the turn."""
        assert self.world.unit in ("inactive", "activating"), "who has the card asks nobody for it"
        self.did.append("seek")
        self.holds = self.holds or self.permits
        return self.holds

    def let_go(self, *, wants: bool = False) -> None:
        """Give it back."""
        self.did.append("wants" if wants else "let go")
        self.holds, self.wait_for = False, []

    def compare(self) -> None:
        """Ask whether somebody else has it, too."""
        self.did.append("compare")

    def is_claimed(self) -> bool:
        """Whether a start asks for it."""
        return self.claimed


HOLD_S = 30.0


@pytest.fixture
def others(world: World) -> Others:
    return Others(world)


@pytest.fixture
def sharing(world: World, socket: Path, others: Others) -> Any:
    """The keeper of an engine that shares its card, and never ends by itself."""
    return keeper.Keeper(socket, UNIT, 0.0, HOLD_S, others, world.now)


def test_it_stays_for_its_time_and_then_lets_another_one_have_the_card(
    sharing: Any, world: World, socket: Path, others: Others
) -> None:
    passes(sharing, world, 500)
    assert world.did == [], "nobody waits for it"
    others.wait_for = ["code/llama_cpp"]
    sharing._serves_since = None  # it has just begun to serve
    others.permits, world.waiting, world.asked, began = False, 2, 9, world.now
    while "stop" not in world.did and world.now < began + 100:
        world.sleep(max(float(sharing.step()), 0.01))
    assert world.now - began == pytest.approx(HOLD_S, abs=1)
    assert marker(socket).exists()
    assert others.holds, "the card is its own until it has ended"
    sharing.step()
    assert not others.holds
    assert others.did[-2:] == ["wants", "seek"], "two still ask it"


def test_it_comes_back_with_its_next_turn(sharing: Any, world: World, others: Others, socket: Path) -> None:
    others.wait_for = ["code/llama_cpp"]
    passes(sharing, world, HOLD_S + 1)
    assert world.unit == "inactive"
    others.permits, world.waiting = False, 1
    passes(sharing, world, 20)
    assert "start" not in world.did
    others.permits = True
    world.on["start"] = marker(socket).unlink
    sharing.step()
    assert world.did[-2:] == [f"forget {UNIT}", "start"]
    others.wait_for = ["code/llama_cpp"]
    began = world.now
    world.did.clear()
    while "stop" not in world.did and world.now < began + 100:
        world.sleep(max(float(sharing.step()), 0.01))
    assert world.now - began == pytest.approx(HOLD_S, abs=1), "each stay is as long"


def test_nobody_asks_for_the_card_of_an_engine_that_nobody_asks(sharing: Any, world: World, others: Others) -> None:
    others.wait_for = ["code/llama_cpp"]
    passes(sharing, world, HOLD_S + 1)
    others.did.clear()
    passes(sharing, world, 60)
    assert set(others.did) == {"let go"}


def test_one_that_is_proved_stays_and_goes_at_once_afterwards(
    sharing: Any, world: World, socket: Path, others: Others
) -> None:
    keeper.stay_of(socket).write_text(str(world.now + 10_000))
    others.wait_for = ["code/llama_cpp"]
    passes(sharing, world, 5 * HOLD_S)
    assert world.did == []
    keeper.stay_of(socket).unlink()
    sharing._serves_since = world.now
    passes(sharing, world, 1)
    assert "stop" in world.did


@pytest.mark.parametrize("word", ["activating", "deactivating"])
def test_an_engine_that_begins_or_ends_keeps_the_card(sharing: Any, world: World, others: Others, word: str) -> None:
    others.wait_for = ["code/llama_cpp"]
    world.unit, world.slot = word, "DOWN"
    passes(sharing, world, 5 * HOLD_S)
    assert others.holds
    assert world.did == []


def test_one_that_somebody_stops_lets_the_card_go(sharing: Any, world: World, others: Others) -> None:
    others.wait_for = ["code/llama_cpp"]
    world.unit, world.slot = "inactive", "DOWN"
    sharing.step()
    assert not others.holds
    assert world.did == []


def test_a_start_by_somebody_asks_for_the_turn(sharing: Any, world: World, others: Others) -> None:
    world.unit, world.slot = "inactive", "DOWN"
    passes(sharing, world, 12)
    assert "seek" not in others.did
    world.unit, world.job, others.claimed = "activating", True, True
    sharing.step()
    assert others.did[-1] == "seek"


def test_one_that_was_not_started_with_its_container_is_asleep(
    sharing: Any, world: World, socket: Path, others: Others
) -> None:
    world.unit, world.slot, world.never_started, others.holds = "inactive", "DOWN", True, False
    passes(sharing, world, 3)
    assert marker(socket).exists()
    assert world.asleep == "no check"
    assert "start" not in world.did


def test_who_has_the_card_asks_from_time_to_time_whether_another_one_has_it_too(
    sharing: Any, world: World, others: Others
) -> None:
    passes(sharing, world, 60)
    assert others.did.count("compare") in range(4, 9)
