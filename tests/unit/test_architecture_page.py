"""docs/architecture.md gives each module its room, and answers where a change goes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

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


def test_the_house_is_the_contract_of_the_layers() -> None:
    layers = next(one for one in contracts() if one["id"] == "layers")
    rooms = [re.findall(r"`(\w+)`", row[0]) for row in rows(section("The house"))]
    assert rooms == [re.findall(r"\w+", layer) for layer in layers["layers"]]


def contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(settings["tool"]["importlinter"]["contracts"])


def test_every_symbol_that_the_page_names_is_in_its_file() -> None:
    """A row names a symbol and then the file that has it."""
    named = [
        (symbol, path)
        for row in rows(section("Where is …"))
        for symbol, path in re.findall(r"`(\w+)` in `([^`]+)`", row[1])
    ]
    assert len(named) >= 5
    assert [one for one in named if not re.search(rf"\b{one[0]}\b", (ROOT / one[1]).read_text(encoding="utf-8"))] == []


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
