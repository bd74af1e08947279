"""The verb ``probe``: the longest context that really answers, and an engine that serves again afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner.measuring import pause
from provisioner.values.state import Execution
from tests.unit.cli.conftest import FILE, World


@pytest.mark.parametrize("ceiling", [4096, 20_000, 131_072])
def test_the_longest_context_that_answers_is_found(up: World, ceiling: int) -> None:
    up.ceiling = ceiling
    assert up.command("probe", "llama", "--to", "131072", "--yes").ended(0) == up.snapshot
    assert len(up.questions) <= 10


def test_who_drops_a_part_of_its_prompt_answers_nothing(up: World) -> None:
    up.drops = True
    assert up.command("probe", "llama", "--to", "8192", "--yes").ended(3) == up.snapshot


def test_the_engine_serves_again_afterwards(up: World) -> None:
    up.active.add("llama-server.service")
    up.command("probe", "llama", "--to", "8192", "--yes")
    assert "llama-server.service" in up.active
    assert up.command("plan", "--detailed-exitcode").code == 0


@pytest.mark.parametrize("name", ["gateway", "nobody"])
def test_what_cannot_be_tried_is_refused(up: World, name: str) -> None:
    assert up.command("probe", name).code == 64
    assert up.questions == []


def test_what_ends_by_itself_is_refused(up: World, lab: Path) -> None:
    """Whatever starts it again when somebody asks would end the trial."""
    lab.write_text(FILE.replace("llama_cpp: {", "llama_cpp: { idle: 10m,"))
    assert up.command("probe", "llama", "--to", "8192", "--yes").ended(64) == up.snapshot
    assert up.questions == []


def test_what_was_tried_before_is_not_tried_again(up: World) -> None:
    up.ceiling = 20_000
    up.command("probe", "llama", "--to", "131072", "--yes")
    up.questions.clear()
    assert up.command("probe", "llama", "--to", "131072").ended(0) == up.snapshot
    assert up.questions == []


def test_a_run_that_was_killed_goes_on(up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    up.ceiling = 20_000
    up.active.add("llama-server.service")
    asked = up._trying
    number = 0

    def killed(question: dict[str, Any]) -> Execution:
        nonlocal number
        number += 1
        if number == 4:
            raise KeyboardInterrupt
        return asked(question)

    monkeypatch.setattr(up, "_trying", killed)
    assert up.command("probe", "llama", "--to", "131072", "--yes").code == 130
    assert "llama-server.service" in up.active
    before = {question["shows"][1] for question in up.questions}
    up.questions.clear()
    assert up.command("probe", "llama", "--to", "131072", "--yes").code == 0
    assert before.isdisjoint(question["shows"][1] for question in up.questions)


def test_it_is_asked_first_and_told_how_long_it_may_take(up: World) -> None:
    assert up.command("probe", "llama", "--to", "131072").ended(4) == up.snapshot
    assert up.command("probe", "llama", "--to", "131072", typed="n\n").code == 4
    assert up.questions == []
    assert up.command("probe", "llama", "--to", "8192", typed="y\n").code == 0


def test_another_option_makes_another_engine_of_it(up: World, lab: Path) -> None:
    up.command("probe", "llama", "--to", "8192", "--yes")
    up.questions.clear()
    lab.write_text(FILE.replace("llama_cpp: {", "llama_cpp: { threads: 1,"))
    up.command("probe", "llama", "--to", "8192", "--yes")
    assert up.questions


def test_a_range_without_contexts_is_refused(up: World) -> None:
    assert up.command("probe", "llama", "--from", "9000", "--to", "8000", "--yes").ended(64) == up.snapshot


def test_who_waits_is_answered_between_two_tries(up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pause, "POLL_S", 0.01)
    up.waiting = [0, 3, 1, 0]  # nobody after the first try; after the second some, until they are answered
    up.told.clear()
    assert up.command("probe", "llama", "--to", "65536", "--yes").code == 0
    verbs = [verb for verb, unit in up.told if unit == "llama-server.service"]
    assert verbs[:4] == ["stop", "stop", "start", "stop"]
    assert verbs[-1] == "start"
    stops = [number for number, told in enumerate(up.told) if told == ("stop", "llama-server.service")]
    held = ("hold", "/run/switch-llama-server/control.sock")
    assert all(up.told[number - 1] == held for number in stops), "else nobody would wait for what is stopped"


def test_what_was_found_is_written_into_the_file_and_drawn(up: World, lab: Path, tmp_path: Path) -> None:
    up.ceiling = 20_000
    picture = tmp_path / "contexts.svg"
    wrote = up.done("probe", "llama", "--to", "65536", "--yes", "--write", "--plot", str(picture))
    assert lab.read_text() == FILE.replace("llama_cpp: {", "llama_cpp: { context: 19968,")
    assert wrote.printed == up.snapshot
    assert "llama/llama_cpp answered 19,968 tokens at most" in picture.read_text()
    assert up.command("probe", "llama", "--to", "65536", "--write").printed == up.snapshot


def test_where_none_answers_nothing_is_written(up: World, lab: Path) -> None:
    up.ceiling = 1
    before = lab.read_text()
    assert up.command("probe", "llama", "--to", "8192", "--yes", "--write").code == 3
    assert lab.read_text() == before


def test_a_picture_without_a_place_is_refused_before_anything_is_tried(up: World) -> None:
    answer = up.command("probe", "llama", "--to", "8192", "--yes", "--plot", "/nothing/there.svg")
    assert (answer.code, up.questions) == (64, [])


def test_a_try_that_takes_longer_than_requests_wait_is_refused(up: World, lab: Path) -> None:
    lab.write_text(FILE.replace("llama_cpp: {", "llama_cpp: { queue: 0s,"))
    up.active.add("llama-server.service")
    assert "they wait for 0 s" in up.command("probe", "llama", "--to", "8192", "--yes").ended(4)
    assert up.questions == []
    assert "llama-server.service" in up.active
    assert up.command("probe", "llama", "--to", "8192", "--yes", "--refuse").code == 0
