"""``bench --kind engine``: what is measured is kept, held against what was accepted, and the engine serves again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provisioner.measuring import engine, pause
from provisioner.measuring.history import MOST_TRIALS
from provisioner.values.state import Execution
from tests.snapshots import case_name
from tests.unit.cli.conftest import FILE, World
from tests.unit.cli.test_bench_llm import kept

BENCH = ("bench", "llama", "--kind", "engine", "--yes", "--trials", "10")
UNIT = "llama-server.service"


@pytest.fixture
def up(up: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The lab, brought up; between two trials nobody waits."""
    monkeypatch.setattr(engine, "SPREAD_S", 0.0)
    monkeypatch.setattr(pause, "POLL_S", 0.01)
    return up


def change_answers(world: World, monkeypatch: pytest.MonkeyPatch, field: str, change: Callable[[Any], Any]) -> None:
    """Let what measures in a container say something else in this field of its answers."""
    asked = world._benching

    def changed(question: dict[str, Any]) -> Execution:
        answer = json.loads(asked(question).stdout)
        answer |= {name: change(value) for name, value in answer.items() if name == field}
        return Execution(0, json.dumps(answer).encode(), b"")

    monkeypatch.setattr(world, "_benching", changed)


def test_it_is_measured_with_the_words_that_it_is_served_with(up: World, tmp_path: Path) -> None:
    answer = up.done(*BENCH, "--tokens", "256", "64")
    assert len(up.questions) == 11, "ten, and a first one that does not count"
    command = up.questions[0]["command"]
    assert command[0] == "/opt/bin/llama-bench"
    told = dict(zip(command[1::2], command[2::2], strict=True))
    assert told == {"-t": "2", "-m": "/srv/m.gguf", "-b": "2048", "-p": "256", "-n": "64", "-r": "1", "-o": "jsonl"}
    assert answer.printed == up.snapshot
    (result,) = kept(tmp_path, "llama.llama_cpp")
    assert [len(series.trials) for series in result.series] == [10, 10]
    assert result.setting.model == "e" * 64
    assert result.setting.options == {"t": "2", "b": "2048", "p": "256", "n": "64"}


def test_scripts_are_told_where_it_was_measured_and_what_served(up: World, tmp_path: Path) -> None:
    up.card = "RTX 3060"
    (result,) = up.command(*BENCH, "--json").of("result")
    (measured,) = result["results"]
    (where,) = (one.setting for one in kept(tmp_path, "llama.llama_cpp"))
    assert measured["setting"] == {
        "host": where.host,
        "processor": "EPYC, 2 of them",
        "card": "RTX 3060",
        "driver": "",
        "build": "b" * 64,
        "model": "e" * 64,
    }
    assert where.host


def test_the_engine_is_stopped_for_it_and_serves_again(up: World) -> None:
    up.active.add(UNIT)
    up.command(*BENCH)
    verbs = [verb for verb, unit in up.told if unit == UNIT]
    assert verbs[0] == "stop"
    assert verbs[-1] == "start"
    assert UNIT in up.active
    stops = [number for number, told in enumerate(up.told) if told == ("stop", UNIT)]
    held = ("hold", "/run/switch-llama-server/control.sock")
    assert all(up.told[number - 1] == held for number in stops), "else nobody would wait for what is stopped"


def test_who_waits_is_answered_between_two_trials(up: World) -> None:
    up.waiting = [0, 0, 2, 1, 0]
    up.command(*BENCH)
    verbs = [verb for verb, unit in up.told if unit == UNIT]
    assert verbs[:4] == ["stop", "stop", "start", "stop"]


@pytest.mark.parametrize("seconds", [0.001, 1.5, 9.0, 100.0])
def test_as_many_trials_are_made_as_time_allows(up: World, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    change_answers(up, monkeypatch, "took_s", lambda _took_s: seconds)
    up.done("bench", "llama", "--kind", "engine", "--yes")
    assert len(up.questions) - 1 == {0.001: MOST_TRIALS, 1.5: MOST_TRIALS, 9.0: 30, 100.0: 10}[seconds]


def test_the_way_to_the_container_counts_for_what_a_trial_takes(up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, now_s = up._benching, [0.0]

    def on_the_way(question: dict[str, Any]) -> Execution:
        now_s[0] += 9.0
        return asked(question)

    monkeypatch.setattr(up, "_benching", on_the_way)
    monkeypatch.setattr(engine, "monotonic", lambda: now_s[0])
    assert up.command("bench", "llama", "--kind", "engine", "--yes").code == 0
    assert len(up.questions) - 1 == 30


def test_a_sweep_measures_all_combinations_in_turns(up: World, tmp_path: Path) -> None:
    answer = up.done(*BENCH, "--sweep", "batch=512,1024", "--sweep", "threads=1,2")
    words = [dict(zip(one["command"][1::2], one["command"][2::2], strict=True)) for one in up.questions]
    told = [(one["-b"], one["-t"]) for one in words]
    assert told[:4] == told[4:8] == [("512", "1"), ("512", "2"), ("1024", "1"), ("1024", "2")]
    assert len(kept(tmp_path, "llama.llama_cpp")) == 4
    assert answer.printed == up.snapshot


def test_it_is_drawn_where_there_is_a_place_for_it(up: World, tmp_path: Path) -> None:
    assert up.command(*BENCH, "--plot", str(tmp_path / "nowhere/x.svg")).code == 64
    assert up.questions == []
    assert up.command(*BENCH, "--plot", str(tmp_path / "x.svg")).code == 0
    assert "as it is served" in (tmp_path / "x.svg").read_text()
    up.command(*BENCH)
    up.command("bench", "llama", "--history", "--plot", str(tmp_path / "kept.svg"))
    up.command("bench", "llama", "--compare", "1", "2", "--plot", str(tmp_path / "two.svg"))
    assert (tmp_path / "kept.svg").read_text() == (tmp_path / "two.svg").read_text()


@pytest.mark.parametrize("text", ["batch", "batch=", "colour=red", "=5", "-m=/etc/passwd"], ids=case_name)
def test_what_cannot_be_swept_is_refused(up: World, text: str) -> None:
    assert up.command(*BENCH, "--sweep", text).ended(64) == up.snapshot
    assert up.questions == []


def test_the_gate_ends_with_3_where_it_has_become_slower_and_only_there(up: World) -> None:
    assert up.command(*BENCH, "--accept").code == 0
    assert up.command(*BENCH, "--gate").code == 0
    up.per_s = 90
    assert up.command(*BENCH, "--gate").ended(3) == up.snapshot
    assert up.command(*BENCH).code == 0, "without --gate it is only told"
    assert up.command(*BENCH, "--gate", "--threshold", "20").code == 0
    up.per_s = 97
    assert up.command(*BENCH, "--gate").code == 0, "within the threshold"


def test_a_figure_that_is_missing_now_is_no_pass(up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    up.command(*BENCH, "--accept")
    change_answers(up, monkeypatch, "lines", lambda lines: lines[:1])
    answer = up.command(*BENCH, "--gate")
    assert answer.code == 4
    assert answer.err == up.snapshot


def test_what_is_accepted_anew_is_what_later_ones_are_held_against(up: World) -> None:
    up.command(*BENCH, "--accept")
    up.per_s = 90
    assert up.command(*BENCH, "--gate", "--accept").code == 3
    assert up.command(*BENCH, "--gate").code == 0


def test_a_gate_that_has_nothing_to_be_held_against_measures_nothing(up: World) -> None:
    assert up.command(*BENCH, "--gate").ended(4) == up.snapshot
    assert up.questions == []
    up.command(*BENCH, "--accept")
    up.questions.clear()
    assert up.command(*BENCH, "--gate", "--tokens", "64", "64").ended(4) == up.snapshot
    assert up.questions == []


def test_results_of_another_card_are_refused_before_anything_is_measured(up: World) -> None:
    up.command(*BENCH, "--accept")
    up.questions.clear()
    up.card = "H100"
    assert up.command(*BENCH, "--gate").ended(4) == up.snapshot
    assert up.questions == []


def test_a_gate_on_a_machine_that_is_busy_now_alone_says_nothing(up: World) -> None:
    up.command(*BENCH, "--accept")
    up.per_s, up.waited = 50, 0.6
    assert up.command(*BENCH, "--gate").ended(4) == up.snapshot


def test_what_ends_for_want_of_memory_is_told_and_the_engine_serves(up: World) -> None:
    up.active.add(UNIT)
    up.crashes = True
    assert up.command(*BENCH).ended(3) == up.snapshot
    assert UNIT in up.active


def test_it_is_asked_first(up: World) -> None:
    words = [word for word in BENCH if word != "--yes"]
    assert up.command(*words).ended(4) == up.snapshot
    assert up.questions == []
    assert up.command(*words, typed="n\n").code == 4
    assert up.questions == []
    assert up.command(*words, typed="y\n").code == 0


def test_what_takes_longer_than_requests_wait_is_refused_unless_asked_for(up: World, lab: Path) -> None:
    lab.write_text(FILE.replace("llama_cpp: {", "llama_cpp: { queue: 1s,"))
    assert up.command("up", "--yes").code == 0
    assert up.command(*BENCH).ended(4) == up.snapshot
    assert up.command(*BENCH, "--refuse").code == 0


@pytest.mark.parametrize("words", [("gateway",), ("nobody",), (), ("llama", "gateway")])
def test_what_is_no_engine_is_refused(up: World, words: tuple[str, ...]) -> None:
    assert (up.command("bench", *words, "--kind", "engine", "--yes").code, up.questions) == (64, [])


@pytest.mark.parametrize(
    "line",
    [
        *("--sweep batch=1", "--depth 5", "--yes"),
        *("--gate", "--accept", "--trials 5"),
        *(f"--kind engine --yes --trials 10 {word}" for word in ("--runs 3", "--long 0")),
        *(f"--kind engine --yes --trials 9 {word}" for word in ("--gate", "--accept")),
    ],
)
def test_what_says_nothing_of_what_is_measured_is_refused(up: World, line: str) -> None:
    """Left out silently, a gate would never fail; ``--kind`` has to be said of an engine, which does not speak."""
    assert up.command("bench", "llama", *line.split()).ended(64) == up.snapshot
    assert up.questions == []


def test_of_an_engine_that_ends_when_nobody_asks_it_only_what_was_kept_is_shown(up: World, lab: Path) -> None:
    up.command(*BENCH)
    lab.write_text(FILE.replace("llama_cpp: {", "llama_cpp: { idle: 10m,"))
    assert up.command(*BENCH).ended(64) == up.snapshot
    assert up.command("bench", "llama", "--history").printed == up.snapshot


def test_what_was_kept_is_shown_and_compared(up: World, tmp_path: Path) -> None:
    assert up.command("bench", "llama", "--history").printed == up.snapshot
    up.command(*BENCH, "--accept")
    up.per_s = 80
    up.command(*BENCH)
    shown = up.done("bench", "llama", "--history")
    assert [line.split()[0] for line in shown.out.splitlines()] == ["NUMBER", "1", "2"]
    for words in (("1", "2"), ("accepted", "last")):
        assert up.command("bench", "llama", "--compare", *words).ended(0) == up.snapshot
    other = tmp_path / "other.jsonl"
    line = json.loads((next((tmp_path / "state").rglob("llama.llama_cpp.jsonl"))).read_text().splitlines()[0])
    line["setting"]["driver"] = "590\x1b[31m"
    other.write_text(json.dumps(line) + "\n")
    assert up.command("bench", "llama", "--compare", "1", str(other)).printed == up.snapshot


@pytest.mark.parametrize("word", ["0", "3", "last", "accepted", "nowhere.jsonl", "-1"])
def test_a_result_that_is_not_there_is_refused(up: World, word: str) -> None:
    assert up.command("bench", "llama", "--compare", word, word).code == 64


def test_damaged_results_are_refused_with_their_line(up: World, tmp_path: Path) -> None:
    up.command(*BENCH, "--accept")
    for file in (tmp_path / "state").rglob("benchmarks/*.jsonl"):
        file.write_text("{}\n")
    assert up.command("bench", "llama", "--history").code == 64
    up.questions.clear()
    assert up.command(*BENCH, "--gate").ended(64) == up.snapshot
    assert up.questions == []


@pytest.mark.parametrize("lines", [[], ["{}"], ["{"], ['{"n_prompt": 1}'], ["[]"]])
def test_what_is_no_figure_is_no_result(
    up: World, lines: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    change_answers(up, monkeypatch, "lines", lambda _lines: lines)
    answer = up.command(*BENCH)
    assert answer.code != 0
    assert "Traceback" not in answer.err
    assert "does not foresee" not in answer.err
    assert not [*(tmp_path / "state").rglob("benchmarks/*.jsonl")]
