"""Text that others chose: it can steer nothing, and it has an end."""

from __future__ import annotations

import io
import json

import pytest

from provisioner.cli.console import Console
from provisioner.report.html import page, table_html
from provisioner.values.events import Diagnostic
from provisioner.values.plain_data import LONGEST, Foreign, foreign
from tests.unit.cli.conftest import Terminal

STEERING = "\x1b]0;title\x07\x1b[2J\x9b31m\u202edrow\ud800\r\x00"
SIGNS = frozenset(STEERING) - frozenset("]0;title[2Jm31drow")


@pytest.mark.parametrize("text", [STEERING, f"a\tb\n{STEERING}", "plain … é"])
def test_what_cannot_be_printed_is_written_out(text: str) -> None:
    made = Foreign(text)
    assert SIGNS.isdisjoint(made)
    assert made == text or "\\x1b" in made
    assert Foreign(made) == made


@pytest.mark.parametrize("length", [LONGEST, LONGEST + 1, 10 * LONGEST])
def test_of_a_long_text_the_middle_is_left_out(length: int) -> None:
    made = Foreign(f"begin{'x' * (length - 8)}end")
    assert len(made) <= LONGEST
    assert made.startswith("begin")
    assert made.endswith("end")
    assert ("…" in made) == (length > LONGEST)


def test_a_line_of_many_is_there_whole_or_not_at_all() -> None:
    lines = [f"password={number:04}" for number in range(1000)]
    assert set(Foreign("\n".join(lines)).splitlines()) - {" … "} <= set(lines)


def test_every_text_of_an_answer_is_harmless_and_keys_stay() -> None:
    made = foreign({"key": [STEERING, {"inner": STEERING}], "number": 1, "none": None})
    assert made == {"key": [Foreign(STEERING), {"inner": Foreign(STEERING)}], "number": 1, "none": None}


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_console_lets_nothing_through_that_steers_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    screen = Terminal(is_terminal=is_terminal)
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}", screen)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    console = Console({})
    console.say(f"{console.style.paint('ours', 'green')} {STEERING}")
    console.ask(STEERING)
    console.emit(Diagnostic("note", "a note", STEERING))
    printed = screen.getvalue()
    for code in ("\x1b[32m", "\x1b[36m", "\x1b[1m", "\x1b[0m"):
        assert (code in printed) == is_terminal
        printed = printed.replace(code, "")
    assert SIGNS.isdisjoint(printed)


def test_a_line_of_the_stream_steers_nothing_and_has_the_whole_text(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console({})
    console.configure(verb="plan", json=True, no_color=True, verbose=False)
    console.result("", said=STEERING)
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["said"] == STEERING


def test_a_page_has_no_text_of_others_but_escaped() -> None:
    made = page("<b>", [table_html(("<b>",), [(f"<script>{STEERING}",)])])
    assert "<b>" not in made
    assert "<script>" not in made
    assert SIGNS.isdisjoint(made)
