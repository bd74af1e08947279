"""What a scenario copies into its container runs there with what it imports."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COPIED = re.compile(r"playbook_dir }}/\.\./\.\./(tests/[\w/]+\.py)")
PAGES = [page for page in sorted(ROOT.glob("molecule/*/*.yml")) if COPIED.search(page.read_text(encoding="utf-8"))]


def imported(file: str) -> set[str]:
    """Return the files of ``tests`` that a module imports."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return {f"{name.replace('.', '/')}.py" for name in names if name.startswith("tests.")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_what_is_copied_comes_with_all_that_it_imports(page: Path) -> None:
    copied = set(COPIED.findall(page.read_text(encoding="utf-8")))
    assert {name for file in copied for name in imported(file)} <= copied
