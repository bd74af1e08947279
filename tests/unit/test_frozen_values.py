"""A value that is frozen holds nothing that can be changed: what collects says so by not being frozen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PRODUCT = Path(__file__).resolve().parents[2] / "src/provisioner"
MUTABLE = {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict", "MutableMapping"}


def is_frozen(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith("dataclass(") and "frozen=True" in ast.unparse(decorator)


def changeable(code: str) -> Iterator[str]:
    """Yield the fields of frozen dataclasses that can be changed, each with its class."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.ClassDef) or not any(map(is_frozen, node.decorator_list)):
            continue
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and not ast.unparse(field.annotation).startswith("ClassVar"):
                words = {one.id for one in ast.walk(field.annotation) if isinstance(one, ast.Name)}
                if words & MUTABLE:
                    yield f"{node.name}.{ast.unparse(field.target)}"


def test_no_frozen_value_of_the_product_can_be_changed() -> None:
    found = {
        str(file.relative_to(PRODUCT)): fields
        for file in PRODUCT.rglob("*.py")
        if (fields := list(changeable(file.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("annotation", "is_changeable"),
    [
        ("list[str]", True),
        ("Mapping[str, list[str]]", True),
        ("dict[str, str] | None", True),
        ("Mapping[str, str]", False),
        ("tuple[str, ...]", False),
        ("ClassVar[dict[str, str]]", False),
    ],
)
def test_a_field_that_can_be_changed_is_told(annotation: str, *, is_changeable: bool) -> None:
    code = f"@dataclass(frozen=True, slots=True)\nclass Value:\n    one: {annotation}\n"
    assert list(changeable(code)) == (["Value.one"] if is_changeable else [])
    assert list(changeable(code.replace("frozen=True, ", ""))) == []
