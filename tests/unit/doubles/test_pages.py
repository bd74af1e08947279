"""Each double has a page that says what it plays, what it does not, what it was held against, and its traps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import doubles

FOLDER = Path(str(doubles.__file__)).parent
ROOT = FOLDER.parents[1]
NAMES = sorted(path.name for path in FOLDER.iterdir() if (path / "__init__.py").is_file())
HEADINGS = [r"## What (it plays|they play)", r"## What (it does|they do) not play", "## Held against", "## Traps"]
MOST_LINES = 40


def test_there_are_doubles() -> None:
    assert {"corosync", "ollama", "openai", "proxmox"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_double_has_a_page_that_testing_links(name: str) -> None:
    lines = (FOLDER / name / "README.md").read_text(encoding="utf-8").splitlines()
    headings = [line for line in lines if line.startswith("## ")]
    assert len(headings) == len(HEADINGS)
    assert all(re.fullmatch(wanted, heading) for wanted, heading in zip(HEADINGS, headings, strict=True)), headings
    assert len(lines) <= MOST_LINES
    assert f"(../tests/doubles/{name}/README.md)" in (ROOT / "docs/testing.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_what_a_page_names_is_there(name: str) -> None:
    page = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:tests|molecule)/[\w./]+)`", page):
        assert (ROOT / path).exists(), path
