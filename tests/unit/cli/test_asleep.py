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
def asleep(world: World) -> World:
    """A lab that is up, whose engine is asleep."""
    assert world.command("up", "--yes").code == 0
    world.played.clear()
    world.units[ENGINE] = "asleep"
    world.rests[ENGINE] = REST
    return world


def checks(answer: Answer) -> dict[str, tuple[Any, ...]]:
    """What was said of each service."""
    return {one["target"]: (one["ok"], one["not_asked"], one["asleep"]) for one in answer.of("check")}


def test_it_is_no_drift_and_nothing_wakes_it(asleep: World) -> None:
    assert asleep.command("plan", "--detailed-exitcode").code == 0
    answer = asleep.command("up", "--yes")
    assert (answer.code, "No changes" in answer.out) == (0, True)
    assert asleep.command("verify").code == 0
    assert asleep.played == []


def test_status_says_since_when(asleep: World) -> None:
    answer = asleep.command("status")
    row = next(line.split() for line in answer.out.splitlines() if line.startswith("llama"))
    assert row[-3:] == ["asleep", "-", "-"]
    assert f"Asleep:\n  {ENGINE}: {WORDS}" in answer.out
    seen = {one["name"]: one for one in asleep.command("status", "--json").of("container")}
    (service,) = seen["llama"]["services"]
    assert (service["health"], service["healthy"], service["asleep"]) == ("asleep", True, WORDS)


def test_verify_says_so_and_asks_neither_it_nor_who_asks_it(asleep: World) -> None:
    answer = asleep.command("verify", "--json")
    assert answer.code == 0
    assert checks(answer) == {ENGINE: (None, True, True), "gateway/litellm": (None, True, True)}
    told = {one["target"]: one["message"] for one in answer.of("check")}
    assert told[ENGINE] == f"not asked: {WORDS}"
    assert told["gateway/litellm"] == f"not asked: it asks {ENGINE}, which is asleep"
    assert f"idle {ENGINE}: not asked: {WORDS}" in asleep.command("verify").out
    assert asleep.played == []


def test_verify_wakes_it_where_it_is_told_to(asleep: World) -> None:
    answer = asleep.command("verify", "--wake", "--json")
    assert answer.code == 0
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
    text = lab.read_text()
    assert "llama_cpp: {" in text
    lab.write_text(text.replace("llama_cpp: {", f"llama_cpp: {{ idle: 20s, queue: {queue},"))
    line = next(number for number, words in enumerate(text.splitlines(), 1) if "llama_cpp: {" in words)
    for verb in (("plan",), ("up", "--yes")):
        answer = asleep.command(*verb)
        assert answer.code == code, answer.err
        where = f"{line}: containers.llama.services.llama_cpp.queue: "
        words = f"its start took 3.2 s, and requests wait for it for {queue} at most"
        assert (f"{where}{words}" in answer.err) == bool(code)


def test_one_that_never_ends_may_have_a_short_queue(asleep: World, lab: Path) -> None:
    lab.write_text(lab.read_text().replace("llama_cpp: {", "llama_cpp: { queue: 3s,"))
    assert asleep.command("plan").code == 0


def test_without_a_queue_nobody_could_wake_it(world: World, lab: Path) -> None:
    lab.write_text(lab.read_text().replace("llama_cpp: {", "llama_cpp: { idle: 20s, queue: 0s,"))
    answer = world.command("validate")
    assert answer.code == 64
    assert "llama_cpp.idle: idle needs a queue: the request that starts it waits for it" in answer.err


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
    answer = asleep.command("plan")
    assert answer.code == code, answer.err
    words = (
        "llama_cpp.queue: its start took 3.2 s after the others of its group, who may hold the card for 60 s, "
        f"and requests wait for it for {queue} at most"
    )
    assert (words in answer.err) == bool(code)
