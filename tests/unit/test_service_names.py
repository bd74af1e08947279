"""Only its role, and its module of ``services/``, know a service by its name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.values import paths

NAMES = ("llama_cpp", "litellm", "kokoro", "tabbyapi", "desktop")
NAME = re.compile(rf"(?<![a-z])({'|'.join(NAMES)})(?![a-z])", re.IGNORECASE)
SHARED = ("services/__init__.py", "services/base.py")
"""What in the folder of the services' own modules is nobody's own."""
PAGES_OF_MODULES = frozenset({"DOCUMENTATION", "EXAMPLES", "RETURN"})
"""What Ansible shows people of a module; a text, though it is no docstring."""
ALLOWED = {
    ("cli/app.py", "desktop"): "the thing that `open` opens, whatever service shows it",
    ("cli/open.py", "desktop"): "ditto",
    ("page/clients.py", "desktop"): "ditto",
    ("reconcile/text.py", "desktop"): "what a picture of a screen shows",
    (
        "labfile/spec.py",
        "litellm",
    ): "a provider among those that LiteLLM knows by these names, and its words for models",
    ("wheels/known.py", "tabbyapi"): "a word of the stacks' pages",
    ("labfile/starter.py", "llama_cpp"): "the file that `init` writes is an example",
    ("suggest/text.py", "llama_cpp"): "what is suggested is written for the one engine that is looked at",
    ("labfile/starter.py", "litellm"): "ditto",
    **{
        ("labfile/advice.py", role): "what people write who mean that service, or whose files they have"
        for role in ("desktop", "kokoro", "litellm", "llama_cpp", "tabbyapi")
    },
}
"""Where a name may stand in code, and why."""


def texts_for_people(tree: ast.AST) -> set[ast.AST]:
    """Docstrings, those of values among them, and the pages of Ansible's modules."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.add(node.value)
        is_page = isinstance(node, ast.Assign) and {getattr(one, "id", "") for one in node.targets} & PAGES_OF_MODULES
        if is_page and isinstance(node, ast.Assign):
            found.add(node.value)
    return found


def words_of(node: ast.AST) -> Iterator[str]:
    """The texts and names that a node consists of."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.ImportFrom):
        yield node.module or ""
    elif isinstance(node, ast.alias | ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg | ast.keyword):
        yield node.arg or ""


def names_in(code: str) -> set[str]:
    """The names of services that stand in the code."""
    tree = ast.parse(code)
    told = texts_for_people(tree)
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in told:
            continue
        for word in words_of(node):
            found |= {match.lower() for match in NAME.findall(word)}
    return found


def test_no_other_code_knows_a_service_by_its_name() -> None:
    found = set()
    for file in sorted(paths.PACKAGE.rglob("*.py")):
        place = file.relative_to(paths.PACKAGE)
        if place.parts[0] == "services" and place.as_posix() not in SHARED:
            continue
        found |= {(place.as_posix(), name) for name in names_in(file.read_text(encoding="utf-8"))}
    assert found - ALLOWED.keys() == set(), "ask Knowledge or the role's page, or give a reason in ALLOWED"
    assert ALLOWED.keys() - found == set(), "no longer there"


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ('if role == "kokoro": pass', {"kokoro"}),
        ('x = f"{name}/llama_cpp"', {"llama_cpp"}),
        ("from provisioner.services.tabbyapi import Knowledge", {"tabbyapi"}),
        ("from provisioner.services import litellm", {"litellm"}),
        ("stack.tabbyapi.commit", {"tabbyapi"}),
        ("def kokoro() -> None: ...", {"kokoro"}),
        ("find(desktop=True)", {"desktop"}),
        ('"""Of kokoro and litellm."""\nX = 1\n"""As llama_cpp does."""', set()),
        ('EXAMPLES = "path: /opt/tabbyapi"', set()),
        ('x = "llamas and desktops"', set()),
    ],
)
def test_names_are_found_in_code_and_not_in_texts_for_people(code: str, names: set[str]) -> None:
    assert names_in(code) == names


def test_every_name_is_one_of_a_role() -> None:
    assert [name for name in NAMES if not Path(paths.roles() / name).is_dir()] == []
