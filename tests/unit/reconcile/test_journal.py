"""What a killed run leaves behind in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.reconcile.journal import KEPT, interrupted, recording, runs_in
from provisioner.values.errors import PlaybookError, ProviderError, ReadyTimeoutError, VerificationError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Event


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


def test_runs_are_told_the_newest_first_with_what_was_done_and_how_they_ended(tmp_path: Path) -> None:
    assert runs_in(tmp_path) == []
    with recording(tmp_path, "up", lambda _event: None) as emit:
        emit(ApplyComplete("a", "create", 1.0))
        emit(ApplyErrored("b", "configure", "no room"))
    with pytest.raises(ValueError, match="x"), recording(tmp_path, "down", lambda _event: None):
        raise ValueError("x")
    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path)
    with recording(tmp_path, "up", lambda _event: None):
        pass
    newest = max((tmp_path / "journal").iterdir())
    newest.write_bytes(newest.read_bytes().splitlines(keepends=True)[0])  # it was killed
    runs = runs_in(tmp_path)
    assert [(one.verb, one.outcome) for one in runs] == [
        ("up", "did not come to its end"),
        ("up", "interrupted"),
        ("down", "failed"),
        ("up", "done"),
    ]
    assert (runs[-1].done, runs[-1].failed) == (("create a",), ("configure b: no room",))
    assert runs[-1].began <= runs[-1].ended


def test_a_journal_of_an_earlier_version_ended_with_the_last_thing_that_it_tells(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    lines = [
        '{"type": "begin", "verb": "up", "at": "2026-01-01T00:00:00+00:00"}',
        '{"type": "ApplyStart", "target": "a", "action": "create", "at": "2026-01-01T00:00:07+00:00"}',
        '{"type": "end"}',
    ]
    (tmp_path / "journal/1.jsonl").write_text("\n".join(lines))
    assert [one.ended for one in runs_in(tmp_path)] == ["2026-01-01T00:00:07+00:00"]


def test_who_begins_is_told_how_long_it_took_the_last_time(tmp_path: Path) -> None:
    for elapsed_s in (371.0, 412.5):
        with recording(tmp_path, "up", lambda _event: None) as emit:
            emit(ApplyStart("llama_cpp", "build"))
            emit(ApplyComplete("llama_cpp", "build", elapsed_s))
    hostile = tmp_path / "journal" / "99990101T000000.000000-1.jsonl"
    lines = ['{"type": "begin", "verb": "up"}', '{"type": "ApplyComplete", "elapsed_s": "long", "target": ["x"]}', "{"]
    hostile.write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "journal" / "99990102T000000.000000-1.jsonl").mkdir()
    said: list[Event] = []
    with recording(tmp_path, "up", said.append) as emit:
        emit(ApplyStart("llama_cpp", "build"))
        emit(ApplyStart("llama", "create"))
    assert said == [ApplyStart("llama_cpp", "build", 412.5), ApplyStart("llama", "create")]


@pytest.mark.parametrize("error", [VerificationError, ProviderError, ReadyTimeoutError, PlaybookError, KeyError])
def test_how_a_run_ended_is_said_in_words(error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error), recording(tmp_path, "up", lambda _: None):
        raise error("Unable to go on")
    (run,) = runs_in(tmp_path)
    assert run.error == error.__name__  # the journal's own field stays
    assert "Error" not in run.outcome
    assert run.outcome != "done"
