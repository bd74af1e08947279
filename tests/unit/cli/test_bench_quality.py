"""``bench --kind quality``: the models of one engine are held against their parent, and nothing is left of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.measuring import pause
from provisioner.measuring.history import result_in
from provisioner.measuring.quality import Judged, Quality, warnings
from provisioner.models.header import Header
from tests.case_files import read_cases
from tests.snapshots import case_name
from tests.unit.cli.conftest import World
from tests.unit.cli.test_bench_engine import change_answers

CASES = read_cases("cli/bench_quality")

FILE: str = CASES["file"]
UNIT = "llama-server.service"


@pytest.fixture
def up(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The lab, brought up; between two models nobody waits."""
    monkeypatch.setattr(pause, "POLL_S", 0.01)
    (tmp_path / "homelab.yml").write_text(FILE)
    (tmp_path / "text.txt").write_text("The kettle has boiled.\n" * 1000)
    assert world.command("up", "--yes").code == 0
    world.questions.clear()
    world.told.clear()
    return world


def bench(tmp_path: Path, *more: str, parent: str = "parent") -> tuple[str, ...]:
    text = str(tmp_path / "text.txt")
    return ("bench", "judge", "--kind", "quality", "--parent", parent, "--text", text, "--yes", *more)


def test_a_quant_is_held_against_its_parent(up: World, tmp_path: Path) -> None:
    answer = up.done(*bench(tmp_path, "--chunks", "4"))
    base, judged = up.questions
    assert base["command"][0] == judged["command"][0] == "/opt/bin/llama-perplexity"
    assert base["command"][base["command"].index("--model") + 1].endswith("/parent/tiny.gguf")
    assert judged["command"][judged["command"].index("--model") + 1].endswith("/quant/tiny.gguf")
    assert base["command"][-6:] == [
        "--file",
        "/run/provision-trial.text",
        "--chunks",
        "4",
        "--kl-divergence-base",
        "/var/lib/provision-trial/logits",
    ]
    assert base["text"].startswith("The kettle")
    assert base["most_bytes"] > 775_252
    assert judged["text"] == ""
    assert answer.printed == up.snapshot
    assert up.forgets == 2, "what a killed run has left, and what this one has"
    (file,) = (tmp_path / "state").rglob("benchmarks/judge.llama_cpp.jsonl")
    (result,) = [result_in(line) for line in file.read_text().splitlines()]
    assert result.kind == "quality"
    assert result.setting.options["model"] == "quant"
    assert {series.name: series.middle for series in result.series}["same_top"] == 85.49
    assert up.command("bench", "judge", "--history").printed == up.snapshot
    verbs = [verb for verb, unit in up.told if unit == UNIT]
    assert (verbs[0], verbs[-1]) == ("stop", "start")


def test_where_it_fails_nothing_is_kept_and_the_engine_serves(up: World, tmp_path: Path) -> None:
    up.crashes = True
    assert up.command(*bench(tmp_path)).ended(3) == up.snapshot
    assert not list((tmp_path / "state").rglob("benchmarks/*"))
    assert up.told[-1] == ("start", UNIT)
    assert up.forgets == 2


def test_one_that_ends_well_without_figures_is_a_failure(
    up: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_answers(up, monkeypatch, "lines", lambda lines: [line for line in lines if "KLD" not in line])
    assert up.command(*bench(tmp_path)).ended(3) == up.snapshot


def test_too_little_disk_is_refused_before_anything_is_stopped(up: World, tmp_path: Path) -> None:
    up.free = 2**28
    assert up.command(*bench(tmp_path)).ended(4) == up.snapshot
    assert up.told == []


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("perplexity: true, ", "", 64),
        ("models: [quant, parent]", "models: [parent]", 64),
        ("models: [quant, parent]", "model: parent", 64),
        ("models: [quant, parent]", "models: [other, parent]", 64),
        ("queue: 10m", "queue: 0s", 4),
    ],
    ids=case_name,
)
def test_an_engine_that_cannot_be_judged_is_refused(up: World, tmp_path: Path, old: str, new: str, code: int) -> None:
    assert old in FILE
    (tmp_path / "homelab.yml").write_text(FILE.replace(old, new))
    assert up.command("up", "--yes").code == 0
    up.told.clear()
    assert up.command(*bench(tmp_path)).ended(code) == up.snapshot
    assert up.told == []


@pytest.mark.parametrize("content", [b"", b"  \n", b"a\0b", b"\xff\xfe"], ids=["empty", "blank", "NUL", "no UTF-8"])
def test_what_is_no_text_is_refused(up: World, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "text.txt").write_bytes(content)
    assert up.command(*bench(tmp_path)).ended(64) == up.snapshot
    assert up.told == []


@pytest.mark.parametrize(
    "more",
    [
        *("--gate", "--accept", "--tokens 5 5", "--trials 10"),
        *("--depth 5", "--sweep batch=1", "--chunks 0", "--runs 2"),
    ],
)
def test_options_of_others_are_refused(up: World, tmp_path: Path, more: str) -> None:
    assert up.command(*bench(tmp_path, *more.split())).code == 64
    assert up.told == []


def test_a_parent_and_a_text_are_wanted(up: World, tmp_path: Path) -> None:
    assert up.command("bench", "judge", "--kind", "quality", "--yes").code == 64
    assert up.command("bench", "judge", "--kind", "quality", "--yes", "--parent", "parent").code == 64
    assert up.command(*bench(tmp_path, parent="nobody")).code == 64
    assert up.command("bench", "judge", "--kind", "engine", "--parent", "parent").code == 64


def test_nothing_is_done_unasked(up: World, tmp_path: Path) -> None:
    words = [word for word in bench(tmp_path) if word != "--yes"]
    assert up.command(*words).ended(4) == up.snapshot
    assert up.told == []


def judged(bits: float) -> Judged:
    return Judged("q", "/q", Header("llama", parameters=1000, tensors={"a": round(bits * 125)}), "d")


@pytest.mark.parametrize(
    ("bits", "median", "words"),
    [
        (4.9, 0.05, ""),
        (4.9, 0.25, "no longer says what its parent says: median 0.250, the same token in 65.0 % of all cases"),
        (3.4, 0.05, "has 3.40 bits a weight, fewer than Q4_K_M: median 0.050"),
        (2.6, 0.387, "no longer says what its parent says: median 0.387"),
    ],
)
def test_whoever_serves_less_than_q4_k_m_is_told_what_it_has_lost(bits: float, median: float, words: str) -> None:
    """As the seeds have it: past 0.2 the distributions have parted, and Q4_K_M is where one stops."""
    told = list(warnings(judged(bits), Quality(median, median, 1.0, 65.0, 37.8, 33.0)))
    assert len(told) == bool(words)
    assert all(words in one for one in told)
