"""What one file says of others: the modules that it imports, and the words that may be names of files or roles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
TOKEN = re.compile(r"[\w@-][\w.@-]*(?:/[\w.@-]+)*")
MODULE_NAME = re.compile(r"\b(?:provisioner|tests|benchmarks)(?:\.\w+)+")
IMPORT_IN_A_STRING = re.compile(r"\b(?:from (?:provisioner|tests)|import (?:provisioner|tests))\b")


@dataclass
class PythonPage:
    """What a Python file says."""

    modules: set[str] = field(default_factory=set)
    """What is imported; ``from a import b`` gives ``a.b``, whatever ``b`` is."""
    modules_at_once: set[str] = field(default_factory=set)
    """Those of them that are imported outside of functions."""
    modules_outside_fixtures: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    """What could be a path or a name in its strings, but for docstrings."""
    path_ends: set[str] = field(default_factory=set)
    """Names with which it makes longer paths of paths."""
    parameters: set[str] = field(default_factory=set)
    """The parameters of all its functions: that is how tests ask for fixtures."""
    fixtures: dict[str, PythonPage] = field(default_factory=dict)
    """What each of its fixtures says, by its name."""
    folders_asked_for: set[str] = field(default_factory=set)
    """The functions of ``provisioner.values.paths`` that it uses."""
    reaches: set[str] = field(default_factory=set)
    """What its constant ``REACHES`` names."""
    starts_the_program: bool = False
    """Whether it starts ``provision`` as a process of its own."""
    imports_by_name: bool = False
    """Whether it imports modules whose names it makes."""
    lists_modules: bool = False
    """Whether it takes all modules that there are in a package."""
    reads_its_folder: bool = False
    """Whether it asks for the folder in which it stands itself."""

    def add(self, part: PythonPage) -> None:
        """Say also what ``part`` says."""
        self.modules |= part.modules
        self.words |= part.words
        self.path_ends |= part.path_ends
        self.parameters |= part.parameters
        self.folders_asked_for |= part.folders_asked_for
        self.reaches |= part.reaches
        self.starts_the_program |= part.starts_the_program
        self.imports_by_name |= part.imports_by_name
        self.lists_modules |= part.lists_modules
        self.reads_its_folder |= part.reads_its_folder


def read_python(text: str, package: str = "") -> PythonPage:
    """What a Python file says whose package, for relative imports, is ``package``."""
    page = PythonPage()
    for statement in ast.parse(text).body:
        part = PythonPage()
        for node in _nodes(statement):
            _take(part, node, package)
        page.modules_at_once |= _modules_at_once(statement, part, package)
        if isinstance(statement, ast.FunctionDef) and _is_fixture(statement):
            page.fixtures[statement.name] = part
        else:
            page.modules_outside_fixtures |= part.modules
        page.add(part)
    return page


def _modules_at_once(statement: ast.stmt, part: PythonPage, package: str) -> set[str]:
    if isinstance(statement, FUNCTIONS):
        return set()
    if not isinstance(statement, ast.ClassDef):
        return part.modules
    body = PythonPage()
    for inner in statement.body:
        if not isinstance(inner, FUNCTIONS):
            for node in _nodes(inner):
                _take(body, node, package)
    return body.modules


def words_of(text: str) -> set[str]:
    """What could be a path or a name in a text; its comments are left out."""
    return set(TOKEN.findall(_without_comments(text)))


VALUE = re.compile(r"""(?:[:-]\s+|[\[{,]\s*)["']?([\w./-]+)["']?\s*(?=$|[,}\]])""", re.MULTILINE)


def values_of(text: str) -> set[str]:
    """What stands alone as a value, or as one of a list, in a page of YAML."""
    return set(VALUE.findall(_without_comments(text)))


def _without_comments(text: str) -> str:
    return re.sub(r"(?m)(?:^|\s)#.*$", "", text)


def _nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """All nodes that may say something, but for sentences (docstrings) and what only a type checker follows."""
    waiting = [statement]
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind is ast.Expr and isinstance(node.value, ast.Constant):  # type: ignore[attr-defined]  # an Expr has one
            continue
        if kind in TELLING:
            yield node
        waiting.extend(_children(node))


def _children(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return [*node.orelse]
    found = []
    for name in node._fields:
        child = getattr(node, name)
        if isinstance(child, list):
            found += [one for one in child if isinstance(one, ast.AST)]
        elif isinstance(child, ast.AST) and not isinstance(child, ast.expr_context):
            found.append(child)
    return found


TELLING = frozenset(
    {ast.Import, ast.ImportFrom, ast.Constant, ast.arg, ast.Attribute, ast.Name}
    | {ast.BinOp, ast.List, ast.Tuple, ast.Assign}
)
"""The kinds of nodes of which ``_take`` takes something."""


def _take(page: PythonPage, node: ast.AST, package: str) -> None:
    match node:
        case ast.Constant(value=str() as text):
            _take_text(page, text)
        case ast.Name(id=name):
            page.imports_by_name |= name == "import_module"
        case ast.Attribute():
            _take_attribute(page, node)
        case ast.arg():
            page.parameters.add(node.arg)
        case ast.Import():
            page.modules.update(alias.name for alias in node.names)
        case ast.ImportFrom():
            page.modules.update(_imported(node, package))
        case ast.BinOp(op=ast.Div(), right=ast.Constant(value=str() as text)):
            page.path_ends.add(PurePosixPath(text).name)
            page.starts_the_program |= text == "provision"
        case ast.List() | ast.Tuple():
            page.starts_the_program |= _is_the_program([_constant(element) for element in node.elts])
        case ast.Assign(targets=[ast.Name(id="REACHES")]):
            page.reaches.update(_strings(node.value))


def _take_attribute(page: PythonPage, node: ast.Attribute) -> None:
    if isinstance(node.value, ast.Name) and node.value.id == "paths":
        page.folders_asked_for.add(node.attr)
    page.imports_by_name |= node.attr == "import_module"
    page.lists_modules |= node.attr == "iter_modules"
    page.reads_its_folder |= node.attr == "parent" and ast.unparse(node.value) == "Path(__file__)"


def _imported(node: ast.ImportFrom, package: str) -> Iterator[str]:
    module = node.module or ""
    if node.level:
        parents = package.split(".")
        kept = parents[: len(parents) - node.level + 1]
        module = ".".join([*kept, *filter(None, [module])])
    for alias in node.names:
        yield f"{module}.{alias.name}"


def _take_text(page: PythonPage, text: str) -> None:
    page.words.update(TOKEN.findall(text))
    page.modules.update(MODULE_NAME.findall(text))
    if IMPORT_IN_A_STRING.search(text):
        page.modules.update(_modules_of_a_program(text))


def _modules_of_a_program(text: str) -> set[str]:
    """What a program imports that stands in a string, perhaps with gaps to be filled in."""
    found: set[str] = set()
    for line in text.splitlines():
        for statement in line.split(";"):
            if not IMPORT_IN_A_STRING.search(statement):
                continue
            try:
                module = ast.parse(statement.strip())
            except SyntaxError:
                continue  # a sentence that says "import", or a line that goes on: MODULE_NAME has seen it
            for node in ast.walk(module):
                if isinstance(node, ast.Import):
                    found.update(alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    found.update(_imported(node, ""))
    return found


def _is_the_program(elements: list[str]) -> bool:
    return elements[:1] == ["provision"] or ("-m", "provisioner") in pairwise(elements)


def _is_fixture(function: ast.FunctionDef) -> bool:
    return any("fixture" in ast.unparse(decorator) for decorator in function.decorator_list)


def _constant(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _strings(node: ast.AST) -> Iterable[str]:
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
