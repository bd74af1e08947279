"""The gate of the benchmarks: a missed goal is named, and every goal speaks of a row that is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import __main__ as command
from benchmarks import changed, cli, cluster, desktop, homes, looks, memory, noop, proxmox, speech, transports, up
from benchmarks.goals import GOALS, SIZES, Goal, misses
from benchmarks.labs import BenchLab, Labs
from benchmarks.measuring import Cost, Row, Way, in_turns, ratio_row
from benchmarks.spans import WHOLE
from provisioner.hosts.base import Provider
from provisioner.measuring.speech import FORMATS, Ask, Run, Series, Speaker
from provisioner.values.address import Address
from tests.processes import killed_at_end

GOAL = Goal("noop", "a / b", 0.5)


def row(*values: float, what: str = "a / b") -> Row:
    return Row(what, values, "x", why_not="" if values else "pip cannot reach its index")


def test_a_goal_that_is_reached_is_no_miss() -> None:
    assert misses([row(0.1, 0.2, 0.5, 9.0, 0.3)], ["noop"], [GOAL]) == []


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(0.6, 0.6, 0.6, 0.1, 0.1)], "a / b: 0.600 x, the goal is 0.5"),
        ([row(0.1, 0.1)], "2 runs are too few, 5 are needed"),
        ([row()], "not measured (pip cannot reach its index)"),
        ([row(0.1, what="other")], "there is no such row"),
    ],
)
def test_what_misses_a_goal_is_named(rows: list[Row], words: str) -> None:
    (line,) = misses(rows, ["noop"], [GOAL])
    assert words in line
    assert "issue 3" in line


def test_goals_of_benchmarks_that_were_not_asked_for_are_not_judged() -> None:
    assert misses([], ["memory"], [GOAL]) == []


@pytest.mark.parametrize(("value", "code"), [(0.04, 0), (0.06, 1)])
def test_the_gate_ends_with_1_when_a_goal_is_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: float, code: int
) -> None:
    rows = [row(*[value] * 5, what=one.row) for one in GOALS if one.benchmark == "noop"]
    monkeypatch.setattr(command, "BENCHMARKS", {"noop": lambda _labs, _rounds: rows})
    assert command.main(["--gate", "noop"]) == code
    said = capsys.readouterr().err
    assert said.count("missed: no-op, 1: up / ansible-playbook") == code
    assert "up / pyinfra" not in said


def test_without_the_gate_it_measures_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "BENCHMARKS", {"noop": lambda _labs, _rounds: [row(7.0, what="something")]})
    assert command.main(["noop"]) == 0
    assert "| something | 7.000 |" in capsys.readouterr().out


def test_ways_take_turns_and_ratios_are_of_the_same_round() -> None:
    order: list[str] = []

    def way(name: str, rounds: int) -> Way:
        return Way(name, lambda: order.append(name) or Cost(float(len(order)), 1.0), rounds)  # type: ignore[func-returns-value]

    taken = in_turns([way("a", 3), way("b", 1)])
    assert order == ["a", "b", "a", "a"]
    assert ratio_row("a / b", taken["a"], taken["b"]).values == [0.5]


def test_every_goal_speaks_of_a_row_that_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # the folder of a lab of no containers
    measured = {"noop": _noop_rows(monkeypatch), "changed": _changed_rows(monkeypatch)}
    monkeypatch.setattr(memory, "_peak", lambda *_: 100.0)
    measured["memory"] = memory.rows(cast(Labs, SimpleNamespace(of=_FakeLab)), 5)
    measured["proxmox"] = _proxmox_rows(monkeypatch)
    measured["speech"] = speech.rows_of("two sentences", {form: [Run(1.0, 3.0, 2)] for form in FORMATS})
    measured["looks"] = looks.rows_of(dict.fromkeys((looks.INCUS, looks.ONE, looks.EACH), [1.0] * 5))
    costs = {what: [Cost(1.0, 0.5)] * 5 for what in (homes.NEAR, homes.FAR, homes.TASKS_NEAR, homes.TASKS_FAR)}
    measured["homes"] = homes.rows_of(costs, [(1, 20)] * 5)
    measured["cluster"] = cluster.rows_of([Cost(1.0, 0.5)] * 5)
    measured["desktop"] = desktop.rows_of([dict.fromkeys(desktop.MEASURED, 2.0)])
    measured["transports"] = _transports_rows(monkeypatch)
    for module, command_cost in ((cli, "cost"), (up, "_provision")):
        monkeypatch.setattr(module, command_cost, lambda *_: Cost(1.0, 0.5))
    measured |= {"cli": cli.rows(), "up": up.rows()}
    for goal in GOALS:
        assert [one.what for one in measured[goal.benchmark] if one.what == goal.row] == [goal.row]


def _transports_rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Where each connection is at hand."""
    for prepare in ("_ours", "_community", "_mitogen"):
        monkeypatch.setattr(transports, prepare, lambda _lab: ({}, {}))
    monkeypatch.setattr(transports, "_way", lambda _lab, what, *_: Way(what, lambda: Cost(1.0, 0.5), 5))
    return transports.rows(cast(Labs, SimpleNamespace(of=_FakeLab)), 5)


def _proxmox_rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """With a plan that takes a second, and one more for each hundred of ours."""
    monkeypatch.setattr(proxmox, "_world", lambda *_: nullcontext(Path()))
    monkeypatch.setattr(proxmox, "_planned", lambda _folder, owned: Cost(1 + owned / 100, 0.5))
    return proxmox.rows(cast(Labs, SimpleNamespace()), 5)


def test_what_is_spoken_takes_turns_and_is_measured_as_bench_does(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measure(_speaker: object, _provider: object, asks: Sequence[Ask], *, runs: int, **_: object) -> Any:
        asked.extend(ask.format for ask in asks)
        run = Run(len(asked), 10.0, 2)
        return SimpleNamespace(series=[Series(one, (run,) * runs) for one in asks])

    monkeypatch.setattr(speech, "measure", measure)
    speaker = Speaker(Address("voice/kokoro"), "kokoro.service", 8880, ("af_sky",), "speak.py")
    taken = speech.spoken(speaker, cast(Provider, None), speech.TWO, 2)
    assert asked == ["pcm", "wav", "mp3"] * 2
    shares = [row for row in speech.rows_of("two sentences", taken) if row.unit == "x"]
    assert [row.values for row in shares] == [[0.1, 0.4], [0.2, 0.5], [0.3, 0.6]]
    assert len(speech.TWO) == 300


def test_the_proof_of_a_desktop_is_timed_from_its_own_line_to_the_next() -> None:
    steps = [{"type": "apply_start"}, *({"type": "apply_progress", "message": one} for one in ("a", "b", "b", "", "c"))]
    assert desktop.length_of("b", steps, iter((10.0, 17.0)).__next__) == 7.0
    with pytest.raises(RuntimeError, match="Unable to measure d: the run did not tell it"):
        desktop.length_of("d", steps, iter((10.0,)).__next__)


def test_a_desktops_packages_and_their_size_are_read_from_apts_own_words() -> None:
    history = """
Start-Date: 2026-11-21  15:14:06
Commandline: apt-get install -y python3-apt
Commandline: /usr/bin/apt-get -y -o Dpkg::Use-Pty=0 install xrdp=0.9.21.1-1+deb12u2 marco -o APT::Quiet=1
Commandline: apt-get remove one two three four
"""
    assert desktop.packages_of(history) == ["xrdp", "marco"]
    said = "0 to remove\nNeed to get 1,297 MB/1,300 MB of archives.\nAfter this operation, 949.5 MB of additional disk"
    assert desktop.sizes_of(said) == (1297.0, 949.5)
    with pytest.raises(ValueError, match="apt does not say"):
        desktop.sizes_of("xrdp is already the newest version")


def test_what_a_proof_takes_is_not_counted_beside_the_packages() -> None:
    taken = dict.fromkeys(desktop.MEASURED, 1.0) | {desktop.UP: 30.0, desktop.PROVED: 7.0, desktop.ALONE: 20.0}
    ratio = next(row for row in desktop.rows_of([taken]) if row.unit == "x")
    assert ratio.values == [1.15]


def test_what_is_linear_in_ours_has_a_ratio_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ratio = next(row for row in _proxmox_rows(monkeypatch) if "last 50" in row.what)
    assert ratio.median == pytest.approx(1.0)


def test_memory_is_that_of_the_whole_tree_of_processes() -> None:
    child = "x = bytearray(60_000_000); print(1, flush=True); input()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with killed_at_end(
        subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        tree = memory._tree(running.pid)
        held = sum(map(memory._pss_mb, tree))
        running.communicate("\n", timeout=60)
    assert len(tree) == 2
    assert 60 < held < 200


def test_what_is_sent_is_counted() -> None:
    root = Path(__file__).resolve().parents[2]
    program = [sys.executable, "-m", "benchmarks.sent", "--version"]
    told = subprocess.run(program, cwd=root, capture_output=True, text=True, check=True, timeout=60).stdout
    assert told.splitlines()[-1] == "0"


def test_every_part_of_a_noop_is_a_function_that_there_is() -> None:
    root = Path(__file__).resolve().parents[2]
    program = [sys.executable, "-m", "benchmarks.spans", "--version"]
    told = subprocess.run(program, cwd=root, capture_output=True, text=True, check=True, timeout=60).stdout
    assert list(json.loads(told.splitlines()[-1])) == [WHOLE]


def _noop_rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    monkeypatch.setattr(noop._Bench, "ways", lambda bench, _rounds: [Way(name, _cost, 1) for name in _names(bench)])
    monkeypatch.setattr(noop, "cost", lambda *_: Cost(1.0, 1.0, "No changes\n4000\n"))
    return noop.rows(cast(Labs, SimpleNamespace(of=_FakeLab)), 5, SIZES)


def _names(bench: noop._Bench) -> list[str]:
    return [bench._key(way) for way in (noop.UP, noop.ANSIBLE, noop.TRUE, noop.START, noop.PYINFRA)]


def _changed_rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    monkeypatch.setattr(
        changed, "ByHand", lambda _lab: SimpleNamespace(render=lambda: None, play=lambda *_: Cost(1.0, 1.0))
    )
    return changed.rows(cast(Labs, SimpleNamespace(of=_FakeLab)), 5)


def _cost() -> Cost:
    return Cost(1.0, 1.0, "0.1")


class _FakeLab(BenchLab):
    """A lab of no containers at all."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.folder = Path()
        self.containers = [f"c{number}" for number in range(size)]

    def write(self, parallel: int = 1) -> None:
        """Nothing is written."""

    def settle(self) -> None:
        """Nothing is to be settled."""

    def inside(self, *_: Any) -> bytes:
        """Nothing is inside."""
        return b""

    def provision(self, *_: str) -> Cost:
        """What one container's configuration says."""
        return Cost(1.0, 1.0, json.dumps({"type": "apply_start", "action": "configure", "target": "c0"}))
