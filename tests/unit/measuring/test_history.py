"""Results of benchmarks: kept as they were, compared by what they were measured on, and refused where damaged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.measuring.history import (
    DamagedResultError,
    Result,
    Series,
    Setting,
    Trial,
    differences,
    keep,
    line_of,
    result_in,
    results_in,
)

SETTING = Setting("box", "EPYC", "H100", "580.95", "b11312", "ab" * 32, {"batch": "2048"})
RESULT = Result(
    "2026-11-28T01:00:00+00:00",
    "engine",
    "llama/llama_cpp",
    SETTING,
    (Series("pp512", "tokens/s", (Trial(1000.5, 0.01), Trial(999.0, 0.4))),),
)


def test_a_result_is_read_as_it_was_kept(tmp_path: Path) -> None:
    file = tmp_path / "folder/one.jsonl"
    assert results_in(file) == []
    newer = replace(RESULT, at="2026-11-29T01:00:00+00:00")
    keep(file, RESULT)
    keep(file, newer)
    assert results_in(file) == [RESULT, newer]
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


def test_what_differs_is_named() -> None:
    assert list(differences(SETTING, SETTING)) == []
    other = replace(SETTING, driver="590.12", options={"batch": "512", "threads": "4"})
    assert list(differences(SETTING, other)) == [
        "driver: 580.95 and 590.12",
        "batch: 2048 and 512",
        "threads: none and 4",
    ]


def damaged() -> list[Any]:
    """Lines that are nearly a result."""
    whole = json.loads(line_of(RESULT))
    without = [{name: value for name, value in whole.items() if name != left_out} for left_out in whole]
    series: list[Any] = [
        [],
        [{}],
        [{**whole["series"][0], "trials": []}],
        [{**whole["series"][0], "trials": [["x", 0]]}],
    ]
    settings: list[Any] = [None, {}, {**whole["setting"], "options": []}]
    changed = [*({**whole, "series": some} for some in series), *({**whole, "setting": one} for one in settings)]
    return [*map(json.dumps, [*without, *changed]), "", "{", "[]", "5", line_of(RESULT)[:-20]]


@pytest.mark.parametrize("line", damaged())
def test_a_damaged_one_is_refused_with_its_line(line: str, tmp_path: Path) -> None:
    with pytest.raises(DamagedResultError):
        result_in(line)
    file = tmp_path / "one.jsonl"
    file.write_text(f"{line_of(RESULT)}\n{line or '{}'}\n")
    with pytest.raises(DamagedResultError, match=r"one\.jsonl:2: no result of a benchmark"):
        results_in(file)
