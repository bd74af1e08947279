"""What a killed run leaves behind in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.journal import KEPT, interrupted, recording
from provisioner.values.events import ApplyComplete, ApplyProgress, ApplyStart, Event


def test_a_run_that_ended_is_not_told(tmp_path: Path) -> None:
    said: list[Event] = []
    with recording(tmp_path, "up", said.append) as emit:
        emit(ApplyStart("a", "create"))
        emit(ApplyProgress("a", "x"))
        emit(ApplyComplete("a", "create", 1.0))
    assert len(said) == 3
    assert interrupted(tmp_path) == ""


def test_no_run_is_not_told(tmp_path: Path) -> None:
    assert interrupted(tmp_path) == ""


def test_a_run_that_failed_said_so_itself(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="x"), recording(tmp_path, "up", lambda _event: None):
        raise ValueError("x")
    assert interrupted(tmp_path) == ""


def interrupt(folder: Path, *events: Event) -> None:
    with recording(folder, "up", lambda _event: None) as emit:
        for event in events:
            emit(event)
        raise KeyboardInterrupt


def test_an_interrupted_run_is_told_with_what_it_was_doing(tmp_path: Path) -> None:
    events = (ApplyStart("a", "create"), ApplyStart("b", "configure"), ApplyComplete("a", "create", 1.0))
    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path, *events)
    assert interrupted(tmp_path).startswith("up of ")
    assert interrupted(tmp_path).endswith("did not come to its end, while at: configure b")


def test_an_interrupted_run_is_told_with_the_step_at_which_it_was(tmp_path: Path) -> None:
    events = (
        ApplyStart("a", "configure"),
        ApplyProgress("a", "install | Install HAProxy"),
        ApplyProgress("a", "verify | Wait until it answers"),
        ApplyProgress("a", "3 of 10", goes_on=True),
        ApplyStart("b", "configure"),
        ApplyProgress("b", "preflight | Look at the unit"),
        ApplyProgress("b", ""),
    )
    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path, *events)
    doing = "configure a (verify | Wait until it answers), configure b"
    assert interrupted(tmp_path).endswith(f"did not come to its end, while at: {doing}")


@pytest.mark.parametrize("cut", [1, 20, 10_000])
def test_a_killed_run_whose_last_line_is_cut_is_told(tmp_path: Path, cut: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path, ApplyStart("a", "create"))
    (journal,) = (tmp_path / "journal").iterdir()
    text = journal.read_text(encoding="utf-8")
    journal.write_text(text[:-cut], encoding="utf-8")
    assert interrupted(tmp_path) == "" if cut > len(text) else "create a" in interrupted(tmp_path)


def test_old_journals_go(tmp_path: Path) -> None:
    for _ in range(KEPT + 3):
        with recording(tmp_path, "up", lambda _event: None):
            pass
    assert len(list((tmp_path / "journal").iterdir())) == KEPT
