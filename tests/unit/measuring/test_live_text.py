"""The table of ``top``: as wide and as long as a terminal, and no name steers that."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.measuring.live import CardUse, Look, Rates, Row, State, cells_of, live_lines, live_text
from provisioner.report.style import Style
from provisioner.values.address import Address

GIB = 2**30
BUSY = Row(
    Address("llama/llama_cpp"),
    Look(State.ANSWERS, 5.0, "x", 2, 1, 0.254, 5 * GIB, ("qwen3-30b-a3b-instruct-2507-q4_k_m",)),
    Rates(481.94, 97.55),
)
SILENT = Row(Address("far/vllm"), Look(State.NO_ANSWER, problem="Unable to reach host far"))
ASLEEP = Row(Address("small/llama_cpp"), Look(State.ASLEEP))
CARD = CardUse("llama", "NVIDIA RTX 5090", 20 * GIB, 32 * GIB)
ROWS = (BUSY, SILENT, ASLEEP)


@pytest.mark.parametrize(("columns", "lines"), [(200, 24), (100, 24), (70, 24), (100, 4)])
def test_what_does_not_fit_is_cut_and_then_left_out(columns: int, lines: int, snapshot: SnapshotAssertion) -> None:
    assert live_text(ROWS, [CARD], columns, lines) == snapshot


@pytest.mark.parametrize("columns", [20, 30, 45, 60, 80, 100, 132])
@pytest.mark.parametrize("lines", [4, 6, 24])
def test_it_is_no_wider_and_no_longer_than_the_terminal(columns: int, lines: int) -> None:
    text = live_text(ROWS, [CARD], columns, lines).splitlines()
    assert max(map(cells_of, text)) <= columns
    assert len(text) <= lines
    assert "answers" in text[1] or columns < 30


def test_no_name_steers_the_terminal() -> None:
    hostile = Look(State.ANSWERS, models=("\x1b[2J\x1b]0;owned\x07evil\nsecond\u202etxt",), problem="\x1b[31mred\r")
    text = live_text([Row(Address("a/b"), hostile)], [CardUse("a", "\x1b[5mcard", 1, 2)], 300)
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\u202e" not in text
    assert len(text.splitlines()) == 5


def test_wide_characters_take_two_places() -> None:
    wide = Row(Address("a/b"), Look(State.ANSWERS, models=("模型" * 30,)))
    for columns in (90, 101, 120):
        assert max(map(cells_of, live_text([wide], [], columns).splitlines())) <= columns
    assert (cells_of("模型"), cells_of("e\u0301"), cells_of("abc")) == (4, 1, 3)


def test_colours_are_of_states_and_nothing_without_them() -> None:
    assert "\x1b" not in live_text(ROWS, [CARD], 80)
    painted = live_text(ROWS, [CARD], 120, style=Style(color=True))
    assert "\x1b[32manswers" in painted
    assert "\x1b[31mno answer" in painted


def test_programs_get_what_is_known_and_null_else() -> None:
    told = live_lines(ROWS, [CARD])
    busy, silent, _ = told["services"]
    assert busy["written_per_s"] == 97.55
    assert busy["cache"] == 0.254
    assert {silent[word] for word in ("running", "waiting", "read_per_s", "written_per_s", "cache", "vram")} == {None}
    assert told["cards"] == [{"container": "llama", "name": "NVIDIA RTX 5090", "used": 20 * GIB, "size": 32 * GIB}]
