"""``load_in_container``: what waits on a host, and how many requests a switch has led to its service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provisioner.inside import cpu_waits, trial_unit
from provisioner.inside import interference as program
from provisioner.inside.answers import DamagedAnswerError, load_answer
from provisioner.inside.bundle import program_of
from tests.unit.inside.test_live_in_container import switch

STATISTICS = """# pxname,svname,scur,stot,status,
answers,BACKEND,1,{answers},UP,
looks-engine,BACKEND,0,99,UP,
release,BACKEND,0,1,UP,

"""
"""As HAProxy 2.6 writes it, with fewer columns."""


def test_requests_that_were_led_to_the_service_are_counted_and_no_looks(tmp_path: Path) -> None:
    with switch(tmp_path / "s", {"show stat": STATISTICS.format(answers=41)}) as asked:
        assert program.answered(str(tmp_path / "s")) == 41
    assert asked == [program.ASKED]


@pytest.mark.parametrize("said", ["", "Unknown command\n", "# pxname,svname,scur,stot\nother,BACKEND,1,2\n"])
def test_a_switch_that_does_not_say_it_counts_nothing(tmp_path: Path, said: str) -> None:
    with switch(tmp_path / "s", {"show stat": said}):
        assert program.answered(str(tmp_path / "s")) == program.NOBODY_COUNTS


def test_where_there_is_no_switch_nobody_counts(tmp_path: Path) -> None:
    assert program.answered("") == program.NOBODY_COUNTS
    assert program.answered(str(tmp_path / "nowhere")) == program.NOBODY_COUNTS


def test_it_runs_where_nothing_is_installed() -> None:
    text = program_of(program, cpu_waits, trial_unit)
    asked = json.dumps({"do": "load", "socket": ""})
    done = subprocess.run(
        [sys.executable, "-IS", "-c", text], input=asked.encode(), capture_output=True, timeout=60, check=True
    )
    answer = load_answer(json.loads(done.stdout))
    assert answer["at_s"] > 0
    assert answer["answered"] == program.NOBODY_COUNTS


@pytest.mark.parametrize(
    "change",
    [
        {"at_s": -1},
        {"at_s": "now"},
        {"waited_us": -2},
        {"answered": 1.5},
        {"answered": 2**61},
        {"throttled_us": None},
        {"more": 1},
    ],
)
def test_an_answer_of_another_kind_is_damaged(change: dict[str, Any]) -> None:
    with pytest.raises(DamagedAnswerError):
        load_answer({"at_s": 10.0**8, "waited_us": -1, "throttled_us": 0, "answered": -1, **change})


def test_a_host_that_runs_for_years_is_believed() -> None:
    assert load_answer({"at_s": 10.0**8, "waited_us": -1, "throttled_us": 0, "answered": -1})
