"""Promises to users: those of docs/testing.md have marked tests, and sentences with "all" or "never" have tests."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from provisioner.cli.app import app
from tests.case_files import read_case

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


# Sentences that promise something with one of these words. tests/data/promises.yml has each of the strict pages, and
# those of other pages that promise the most.

WORD = re.compile(r"\b(?:every|all|nothing|never|always|nobody)\b", re.IGNORECASE)
END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[(])")
BEGINS = re.compile(r"#+ |[*-] |\d+\. ")
HELP = "--help"
STRICT = (
    "README.md",
    "docs/changes.md",
    "docs/day-two.md",
    "docs/getting-started.md",
    "docs/security.md",
    "docs/tour.md",
    "docs/verbs.md",
    HELP,
)
MOST_SILENT_WORDS = 3
"""A reason has more words."""
LIST = read_case(ROOT / "tests/data/promises.yml")
PROMISES: list[tuple[str, dict[str, str]]] = [
    (page, promise) for page, promises_of in LIST["promises"].items() for promise in promises_of
]


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences and cells of tables of a page that have one of the words; blocks of code have none."""
    for part in _parts(re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)):
        yield from (sentence for sentence in END.split(part) if WORD.search(sentence))


def _parts(text: str) -> Iterator[str]:
    """Yield paragraphs, items of lists and cells, each as one line."""
    part = ""
    for line in (*text.splitlines(), ""):
        stripped = line.strip()
        begins = BEGINS.match(stripped)
        if begins or not stripped or stripped.startswith("|"):
            yield part
            yield from (cell.strip() for cell in stripped.split("|") if stripped.startswith("|"))
            part = "" if stripped.startswith("|") else stripped[begins.end() if begins else 0 :]
        else:
            part = f"{part} {stripped}".strip()


def _helps(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield what a command, its options and the commands below it say of themselves."""
    yield inspect.cleandoc(command.help or "")
    for parameter in command.get_params(context):
        yield getattr(parameter, "help", None) or ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _helps(below, click.Context(below, info_name=name, parent=context))


@cache
def text_of(page: str) -> str:
    """Return the text of a page, or that of all help."""
    if page == HELP:
        return "\n\n".join(_helps(app, click.Context(app, info_name="provision")))
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def collected_in(file: str) -> frozenset[str]:
    """Return the names of a module's tests."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("page", STRICT)
def test_no_sentence_of_a_strict_page_is_missing_from_the_list(page: str) -> None:
    promised = {promise["says"] for of, promise in PROMISES if of == page}
    listed = promised.union(LIST["plain"].get(page, ()))
    assert sorted(set(sentences_of(text_of(page))) - listed) == []


@pytest.mark.parametrize("page", sorted({*LIST["promises"], *LIST["plain"]}))
def test_what_is_listed_stands_in_its_page(page: str) -> None:
    promised = [promise["says"] for of, promise in PROMISES if of == page]
    there = set(sentences_of(text_of(page)))
    assert [sentence for sentence in (*promised, *LIST["plain"].get(page, ())) if sentence not in there] == []


@pytest.mark.parametrize(("page", "promise"), PROMISES)
def test_a_promise_has_a_test_or_says_its_exception(page: str, promise: dict[str, str]) -> None:
    (kind,) = set(promise) - {"says"}
    file, _, name = promise.get("test", "").partition("::")
    shown = {
        "test": lambda: file.rpartition("/")[2].startswith("test_") and name in collected_in(file),
        "except": lambda: promise["except"] in promise["says"],
        "because": lambda: len(promise["because"].split()) > MOST_SILENT_WORDS,
    }
    assert shown[kind](), f"{page}: {promise}"


def test_sentences_are_found_wherever_they_stand() -> None:
    page = "# All\n\nIt is. Nothing\n  is *never* so. (All.)\n\n* an item\n  of every kind\n\n| a | nobody |\n"
    page += "\n```sh\nall\n```\n"
    found = ["All", "Nothing is *never* so.", "(All.)", "an item of every kind", "nobody"]
    assert list(sentences_of(page)) == found
