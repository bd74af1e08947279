"""How densely packed functions are: branches per 100 of their lines, and comprehensions per 100 statements.

A branch is an if, elif, for, while, except, with or case, each further part of an ``and`` or ``or``, a conditional
expression, and each loop and each condition of a comprehension. Imports are no statements here: two modules made one
have fewer of them. ``python -m tests.lint.density`` prints the densest.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LARGE = 40
"""Lines inside functions from which on a module is judged by itself: of fewer, one branch says too much."""
SHOWN = 40
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.With, ast.IfExp, ast.match_case)


@dataclass(frozen=True, slots=True)
class Density:
    """What was counted in one module, or in several together."""

    function_lines: int = 0
    branches: int = 0
    statements: int = 0
    comprehensions: int = 0

    @property
    def branches_per_100_lines(self) -> float:
        """Branches per 100 lines inside functions."""
        return 100 * self.branches / max(self.function_lines, 1)

    @property
    def comprehensions_per_100_statements(self) -> float:
        """Comprehensions per 100 statements."""
        return 100 * self.comprehensions / max(self.statements, 1)


def density_of(source: str) -> Density:
    """The density of a module with this text."""
    tree = ast.parse(source)
    lines = branches = 0
    for function in _functions(tree):
        lines += (function.end_lineno or function.lineno) - function.lineno + 1
        branches += _branches(function)
    statements = comprehensions = 0
    for node in ast.walk(tree):
        statements += isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom)
        comprehensions += isinstance(node, _COMPREHENSIONS)
    return Density(lines, branches, statements, comprehensions)


def densities_below(folder: Path) -> dict[str, Density]:
    """The density of every module below a folder, by its path there."""
    found: dict[str, Density] = {}
    for path in sorted(folder.rglob("*.py")):
        found[path.relative_to(folder).as_posix()] = density_of(path.read_text(encoding="utf-8"))
    return found


def together(densities: Iterable[Density]) -> Density:
    """Several modules counted as one."""
    lines = branches = statements = comprehensions = 0
    for density in densities:
        lines += density.function_lines
        branches += density.branches
        statements += density.statements
        comprehensions += density.comprehensions
    return Density(lines, branches, statements, comprehensions)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions and methods of a module; those inside of functions are parts of them."""
    for node in tree.body:
        parts = node.body if isinstance(node, ast.ClassDef) else [node]
        for part in parts:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                yield part


def _branches(function: ast.AST) -> int:
    total = 0
    for node in ast.walk(function):
        if isinstance(node, _BRANCHES):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, _COMPREHENSIONS):
            for loop in node.generators:
                total += 1 + len(loop.ifs)
    return total


def main() -> None:
    """Print the density of the product, and of its densest modules."""
    densities = densities_below(Path(__file__).resolve().parents[2] / "src/provisioner")
    whole = together(densities.values())
    sys.stdout.write(
        f"{whole.branches_per_100_lines:.1f} branches per 100 lines of functions, "
        f"{whole.comprehensions_per_100_statements:.1f} comprehensions per 100 statements\n"
    )
    large = [(density, name) for name, density in densities.items() if density.function_lines >= LARGE]
    large.sort(key=lambda row: row[0].branches_per_100_lines, reverse=True)
    for density, name in large[:SHOWN]:
        figures = f"{density.branches_per_100_lines:5.1f} {density.comprehensions_per_100_statements:5.1f}"
        sys.stdout.write(f"{figures} {density.function_lines:4d} lines  {name}\n")


if __name__ == "__main__":
    main()
