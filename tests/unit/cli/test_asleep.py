"""A service that has ended because nobody asked it is as it should be, and of all verbs ``verify --wake`` starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Answer, World

ENGINE = "llama/llama_cpp"
REST = {"since": 1764064800, "proved": 1764061200, "start_s": 3.2}
WORDS = "asleep since 2025-11-25 10:00:00 UTC, proved 2025-11-25 09:00:00 UTC, starts in 3.2 s"


@pytest.fixture
def asleep(up: World) -> World:
    """A lab that is up, whose engine is asleep."""
    up.units[ENGINE] = "asleep"
    up.rests[ENGINE] = REST
    return up


def checks(answer: Answer) -> dict[str, tuple[Any, ...]]:
    """What was said of each service."""
    return {one["target"]: (one["ok"], one["not_asked"], one["asleep"]) for one in answer.of("check")}


def test_it_is_no_drift_and_nothing_wakes_it(asleep: World) -> None:
    assert asleep.command("plan", "--detailed-exitcode").code == 0
    assert asleep.command("up", "--yes").ended(0) == asleep.snapshot
    assert asleep.command("verify").code == 0
    assert asleep.played == []


def test_status_says_since_when(asleep: World) -> None:
    assert asleep.command("status").printed == asleep.snapshot
    seen = {one["name"]: one for one in asleep.command("status", "--json").of("container")}
    (service,) = seen["llama"]["services"]
    assert (service["health"], service["healthy"], service["asleep"]) == ("asleep", True, WORDS)


def test_verify_says_so_and_asks_neither_it_nor_who_asks_it(asleep: World) -> None:
    answer = asleep.done("verify", "--json")
    assert checks(answer) == {ENGINE: (None, True, True), "gateway/litellm": (None, True, True)}
    told = {one["target"]: one["message"] for one in answer.of("check")}
    assert told[ENGINE] == f"not asked: {WORDS}"
    assert told["gateway/litellm"] == f"not asked: it asks {ENGINE}, which is asleep"
    assert asleep.command("verify").printed == asleep.snapshot
    assert asleep.played == []


def test_verify_wakes_it_where_it_is_told_to(asleep: World) -> None:
    answer = asleep.done("verify", "--wake", "--json")
    assert checks(answer) == {ENGINE: (True, False, False), "gateway/litellm": (True, False, False)}
    assert asleep.played


@pytest.mark.parametrize(("unit", "health"), [("inactive", 200), ("asleep", 503)])
def test_what_only_looks_so_is_a_finding(asleep: World, unit: str, health: int) -> None:
    """It was stopped by somebody; or its switch does not say that it is asleep."""
    asleep.units[ENGINE], asleep.healths[ENGINE] = unit, health
    assert asleep.command("plan", "--detailed-exitcode").code == 2
    assert asleep.command("verify").code == 3


@pytest.mark.parametrize(("queue", "code"), [("3s", 64), ("4s", 0)])
def test_a_queue_below_the_start_that_was_measured_is_refused_with_its_line(
    asleep: World, lab: Path, queue: str, code: int
) -> None:
    lab.write_text(lab.read_text().replace("llama_cpp: {", f"llama_cpp: {{ idle: 20s, queue: {queue},"))
    assert asleep.command("plan").ended(code) == asleep.snapshot
    assert asleep.command("up", "--yes").code == code


def test_one_that_never_ends_may_have_a_short_queue(asleep: World, lab: Path) -> None:
    lab.write_text(lab.read_text().replace("llama_cpp: {", "llama_cpp: { queue: 3s,"))
    assert asleep.command("plan").code == 0


def test_without_a_queue_nobody_could_wake_it(world: World, lab: Path) -> None:
    lab.write_text(lab.read_text().replace("llama_cpp: {", "llama_cpp: { idle: 20s, queue: 0s,"))
    assert world.command("validate").ended(64) == world.snapshot


@pytest.mark.parametrize(("queue", "code"), [("62s", 64), ("63s", 64), ("64s", 0)])
def test_one_that_takes_turns_needs_a_queue_for_its_start_after_the_others(
    asleep: World, lab: Path, monkeypatch: pytest.MonkeyPatch, queue: str, code: int
) -> None:
    monkeypatch.setenv("PROVISION_SECRET_SHARE_BOX", "key-of-the-members")
    text = lab.read_text().replace("incus: local", f"incus: local, share: [[{ENGINE}, code/llama_cpp]]")
    text = text.replace("llama_cpp: {", f"llama_cpp: {{ queue: {queue},")
    lab.write_text(
        f"{text.rstrip()}\n  code: {{ services: {{ llama_cpp: {{ model: MODEL }} }} }}\n".replace("MODEL", "tiny")
    )
    assert asleep.command("plan").ended(code) == asleep.snapshot
