"""How long starts of an engine took, by what its switch and systemd say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ansible.switch_programs import program

UNIT = "engine.service"
NOW_S = 5000.0


starts = program("starts")


class Switch:
    """One that has run for ``uptime`` seconds, and whose slot is as it is since ``lastchg`` seconds."""

    def __init__(self) -> None:
        self.uptime, self.lastchg, self.status = 4000, 7, "UP"

    def about(self) -> dict[str, str]:
        """What it says of itself."""
        return {"Uptime_sec": str(self.uptime)}

    def slot(self, name: str) -> dict[str, str]:
        """Its line of the slot."""
        assert name == "a"
        return {"status": self.status, "lastchg": str(self.lastchg)}


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the switch's socket would be; an engine that began 20 s ago runs."""
    monkeypatch.setattr(starts, "starts_of", lambda _socket: tmp_path / "state" / "starts")
    monkeypatch.setattr(starts.time, "monotonic", lambda: NOW_S)
    began(monkeypatch, NOW_S - 20)
    return tmp_path / "switch" / "control.sock"


def began(monkeypatch: pytest.MonkeyPatch, moment_s: float) -> None:
    """Have the engine's process be started then."""
    said = {"ExecMainStartTimestampMonotonic": str(int(moment_s * 1e6))}
    monkeypatch.setattr(starts, "shown", lambda _unit, _property: said)


def noted(socket: Path) -> list[float]:
    """The starts that were written down."""
    file = starts.starts_of(socket)
    return [float(word) for word in file.read_text().split()] if file.exists() else []


def test_a_start_took_from_its_beginning_until_the_switch_saw_an_answer(socket: Path) -> None:
    starts.note_newest(Switch(), socket, UNIT)
    assert noted(socket) == [13.0]


def test_each_start_is_noted_once_and_the_last_five_are_kept(socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = Switch()
    for number in range(8):
        began(monkeypatch, NOW_S - 10 - number)
        for _ in range(3):
            starts.note_newest(switch, socket, UNIT)
    assert noted(socket) == [6.0, 7.0, 8.0, 9.0, 10.0]


@pytest.mark.parametrize(
    ("word", "value"),
    [("status", "DOWN"), ("status", "DRAIN"), ("status", "MAINT"), ("uptime", 20), ("uptime", 3)],
)
def test_what_the_switch_has_not_seen_is_not_measured(socket: Path, word: str, value: Any) -> None:
    switch = Switch()
    setattr(switch, word, value)
    starts.note_newest(switch, socket, UNIT)
    assert noted(socket) == []


def test_an_engine_that_never_started_has_no_start(socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began(monkeypatch, 0)
    starts.note_newest(Switch(), socket, UNIT)
    assert noted(socket) == []


def test_it_says_how_the_switch_stands_and_where_none_runs_that_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--socket", str(tmp_path / "control.sock"), "--unit", UNIT]
    assert starts.main(words) == 1
    assert "Unable to ask the switch" in capsys.readouterr().err
    monkeypatch.setattr(starts, "state", lambda _switch: {"may_wait": True})
    monkeypatch.setattr(starts, "note_newest", lambda *_arguments: None)
    assert starts.main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"may_wait": True}
