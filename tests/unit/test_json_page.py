"""The page of ``--json`` names every type of line that a verb writes, and each field of an event."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from provisioner.generate import STREAMED
from provisioner.report.messages import event_type
from provisioner.values.events import Event

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/json.md").read_text(encoding="utf-8")
LINE = re.compile(r'console\.line\(\s*"(\w+)"')


def test_no_type_of_line_is_forgotten() -> None:
    written = {event_type(event) for event in get_args(Event)}
    for module in sorted((ROOT / "src/provisioner/cli").glob("*.py")):
        written |= {*LINE.findall(module.read_text(encoding="utf-8"))}
    assert {"log", "container", "endpoint", "summary"} < written
    named = {*re.findall(r"^### (\w+)$", PAGE, re.MULTILINE), *re.findall(r"`(\w+)`", PAGE)}
    assert sorted(written - named) == []


@pytest.mark.parametrize("name", STREAMED)
def test_each_field_stands_there(name: str) -> None:
    _, _, part = PAGE.partition(f"### {name}\n")
    table = re.findall(r"^\| `(\w+)` \| [a-z].* \|$", part.partition("### ")[0], re.MULTILINE)
    assert table == [field.name for field in fields(STREAMED[name])]
