"""The promises of docs/testing.md: each has a test that `make test` runs, and each marked test shows one of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Marked = list[tuple[str, frozenset[str], frozenset[str]]]
ROW = re.compile(r"^\| `([\w ]+)` \|", re.MULTILINE)


def promises() -> set[str]:
    """Return the names in the page's table of promises."""
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    return set(ROW.findall(page.partition("## Promises")[2].partition("\n## ")[0]))


def marks_of(source: str) -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
    """Yield each test of a module with its markers' names and the promises that it shows."""
    tree = ast.parse(source)
    module = [node.value for node in tree.body if isinstance(node, ast.Assign) and _target(node) == "pytestmark"]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = [part for value in (*module, *node.decorator_list) for part in _marks(value)]
            yield node.name, frozenset(name for name, _ in marks), frozenset(shown for _, shown in marks if shown)


def _target(node: ast.Assign) -> str:
    return ast.unparse(node.targets[0])


def _marks(value: ast.expr) -> list[tuple[str, str]]:
    """Return the name of each ``pytest.mark.NAME``, with the first argument of a guarantee."""
    if isinstance(value, ast.List):
        return [mark for element in value.elts for mark in _marks(element)]
    called = value.func if isinstance(value, ast.Call) else value
    name = ast.unparse(called).removeprefix("pytest.mark.")
    is_promise = name == "guarantee" and isinstance(value, ast.Call) and value.args
    return [(name, ast.literal_eval(value.args[0]) if is_promise and isinstance(value, ast.Call) else "")]


@pytest.fixture(scope="module")
def marked() -> Marked:
    """The tests of all modules that have a guarantee, with their marks and the promises that they show."""
    sources = {file: file.read_text(encoding="utf-8") for file in sorted((ROOT / "tests").rglob("test_*.py"))}
    return [
        (f"{file.relative_to(ROOT)}::{name}", marks, shown)
        for file, source in sources.items()
        if "mark.guarantee(" in source
        for name, marks, shown in marks_of(source)
    ]


def test_each_promise_has_a_test_that_is_always_run(marked: Marked) -> None:
    shown = {promise for _, marks, promises_of in marked if "slow" not in marks for promise in promises_of}
    assert promises()
    assert promises() - shown == set()


def test_a_test_shows_a_promise_of_the_page_and_is_never_slow(marked: Marked) -> None:
    unknown = [name for name, _, shown in marked if not shown <= promises()]
    slow = [name for name, marks, _ in marked if {"guarantee", "slow"} <= marks]
    assert (unknown, slow) == ([], [])


@pytest.mark.parametrize(
    ("source", "marks", "shown"),
    [
        ("def test_a(): ...", set(), set()),
        ("@pytest.mark.guarantee('locks')\ndef test_a(): ...", {"guarantee"}, {"locks"}),
        ("pytestmark = pytest.mark.slow\n@pytest.mark.guarantee('a')\ndef test_a(): ...", {"guarantee", "slow"}, {"a"}),
        (
            "pytestmark = [pytest.mark.incus, pytest.mark.guarantee('a')]\ndef test_a(): ...",
            {"guarantee", "incus"},
            {"a"},
        ),
    ],
)
def test_marks_are_read_from_modules_and_tests(source: str, marks: set[str], shown: set[str]) -> None:
    assert list(marks_of(source)) == [("test_a", frozenset(marks), frozenset(shown))]
