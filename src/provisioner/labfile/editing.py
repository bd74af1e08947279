"""One number of a lab's file replaced or added, with every other byte as it was."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from provisioner.labfile.document import DocumentError, compose, parse_document
from provisioner.labfile.whole_files import replace_text
from provisioner.values.errors import InputError
from provisioner.values.refusals import path_text

Place = tuple[str, ...]
"""The keys that lead to an option, from the top of the file."""
BOM = "\ufeff"


class EditError(Exception):
    """The number cannot be put there without changing something else."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What stands at ``place`` (a slice of the text) afterwards."""

    place: slice
    text: str


def with_number(text: str, path: Place, number: int) -> str:
    """The text of a file in which ``path`` is that number; ``EditError`` where more than that would change."""
    mark = BOM if text.startswith(BOM) else ""
    body = text.removeprefix(BOM)
    change = _change(body, path, number)
    edited = body[: change.place.start] + change.text + body[change.place.stop :]
    if not _is_alone(body, edited, path, number):
        raise EditError("something else of the file would change with it, such as what stands at an anchor")
    return mark + edited


def write_number(file: Path, path: Place, number: int) -> bool:
    """Have ``path`` of a lab's file be that number; whether it was another one before.

    Raises ``InputError`` with the line to write where the file cannot be changed; it is as it was then.
    """
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            text = stream.read()
        edited = with_number(text, path, number)
        if edited == text:
            return False
        replace_text(file, edited, mode=file.stat().st_mode)
    except EditError as error:
        raise InputError(
            f"Unable to write {path_text(path)} to {file}: {error}",
            resolution=f"Write it yourself: {path[-1]}: {number}",
        ) from error
    return True


def _is_alone(before: str, after: str, path: Place, number: int) -> bool:
    """Whether both say the same but for that number."""
    try:
        said = parse_document(after.encode()).data
    except DocumentError:
        return False
    return _with(parse_document(before.encode()).data, path, number) == said


def _change(text: str, path: Place, number: int) -> _Change:
    *above, name = path
    mapping = _mapping(compose(text), above)
    for key, value in mapping.value:
        if isinstance(key, ScalarNode) and key.value == name:
            return _Change(_place(value), str(number))
    if not mapping.value:
        raise EditError("nothing stands there yet")
    first, _ = mapping.value[0]
    start, column = first.start_mark.index, first.start_mark.column
    line_end = "\r\n" if "\r\n" in text else "\n"
    between = ", " if mapping.flow_style else f"{line_end}{' ' * column}"
    return _Change(slice(start, start), f"{name}: {number}{between}")


def _mapping(root: Node | None, path: Iterable[str]) -> MappingNode:
    """What stands there; ``EditError`` where nothing does that is written out."""
    node = root
    for name in path:
        found = [value for key, value in _pairs(node) if isinstance(key, ScalarNode) and key.value == name]
        if not found:
            raise EditError(f"{name} is not written there")
        node = found[-1]
    if not isinstance(node, MappingNode):
        raise EditError("no options stand there")
    return node


def _pairs(node: Node | None) -> Iterable[tuple[Node, Node]]:
    return node.value if isinstance(node, MappingNode) else ()


def _place(node: Node) -> slice:
    if not isinstance(node, ScalarNode):
        raise EditError("what stands there is no number")
    return slice(node.start_mark.index, node.end_mark.index)


def _with(data: dict[str, Any], path: Place, number: int) -> dict[str, Any]:
    """The same values, and that number at ``path``."""
    name, *below = path
    return {**data, name: _with(data[name], tuple(below), number) if below else number}
