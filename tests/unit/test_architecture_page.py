"""docs/architecture.md gives each module its room, and answers where a change goes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
TASKS = yaml.safe_load((ROOT / "tests/cases/where_to_put_your_hand.yml").read_text(encoding="utf-8"))
PATH = re.compile(r"`((?:src|roles|playbooks|molecule|tests)/[^`]*)`")


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_module_has_exactly_one_room() -> None:
    rooms = [name for row in rows(section("The house")) for name in re.findall(r"`(\w+)`", row[2])]
    folder = ROOT / "src/provisioner"
    there = {path.stem for path in folder.glob("*.py")} | {path.name for path in folder.iterdir() if path.is_dir()}
    there -= {"__init__", "__pycache__", "share"}
    assert sorted(rooms) == sorted(there)


def test_every_place_that_the_page_names_is_there() -> None:
    named = PATH.findall(PAGE)
    assert len(named) >= 20
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("task", TASKS, ids=[task["task"] for task in TASKS])
def test_a_newcomer_finds_the_place_from_the_page_alone(task: dict[str, str]) -> None:
    (answer,) = [row[1] for row in rows(section("Where to put your hand")) if row[0] == task["row"]]
    assert task["place"] in PATH.findall(answer)
    place = ROOT / task["place"]
    assert place.exists()
    assert task.get("says", "") in (place.read_text(encoding="utf-8") if place.is_file() else "")


def test_there_are_ten_tasks_and_more() -> None:
    assert len({task["task"] for task in TASKS}) >= 10
