"""What module `provision_journal` finds in lines, and that it reads them from a program as they are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from provisioner.ansible.modules import provision_journal


def test_each_line_with_a_secret_counts_once() -> None:
    lines = ["key one and two", "nothing", "one one", "On"]
    assert provision_journal.leaking(lines, ["one", "two"]) == 2


@pytest.mark.parametrize("secrets", [[], [""]])
def test_no_secret_is_in_no_line(secrets: list[str]) -> None:
    assert provision_journal.leaking(["", "a line"], secrets) == 0


def test_phrases_are_told_in_their_own_order_and_once() -> None:
    lines = ["the second", "the first", "the second"]
    assert provision_journal.said(lines, ["first", "second", "third"]) == ["first", "second"]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in place of journalctl."""
    path = tmp_path / "journal"
    monkeypatch.setattr(provision_journal, "JOURNAL", (str(path),))
    return path


def test_what_is_no_text_hides_no_line(program: Path) -> None:
    program.write_text("#!/bin/sh\nprintf '\\377\\033[1mkey\\n'\n", encoding="utf-8")
    program.chmod(0o755)
    assert provision_journal.leaking(provision_journal.lines_of("--boot"), ["key"]) == 1


def test_a_journal_that_cannot_be_read_is_no_empty_one(program: Path) -> None:
    program.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(subprocess.CalledProcessError):
        provision_journal.leaking(provision_journal.lines_of("--boot"), ["key"])
