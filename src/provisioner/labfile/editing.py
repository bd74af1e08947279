"""A lab's file with one number or one container's block replaced, added or taken out, every other byte as it was."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from provisioner.labfile.document import Document, DocumentError, compose, parse_document, plain_value
from provisioner.labfile.whole_files import replace_text
from provisioner.values.errors import InputError
from provisioner.values.refusals import path_text

# One number: replaced, or added.

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
        said = _read(after).data
    except DocumentError:
        return False
    return bool(_set(_read(before).data, path, number) == said)


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
    between = ", " if mapping.flow_style else f"{_line_end(text)}{' ' * column}"
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


# The block of one container: copied with other values, or taken out.

CONTAINERS = "containers"
_LITERAL = ("|", ">")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that a copy gets: ``written`` is YAML on one line, and ``path`` begins below the container's name."""

    path: Place
    written: str


def value_written(written: str) -> Any:
    """What YAML on one line says; ``EditError`` where it is none."""
    if "\n" in written or "\r" in written:
        raise EditError("it has several lines")
    try:
        document = parse_document(f"value: {written}\n".encode())
    except DocumentError as error:
        raise EditError(error.message) from error
    if document.problems:
        raise EditError(document.problems[0].message)
    if [*document.data] != ["value"]:
        raise EditError("it is no single value")
    return document.data["value"]


def with_copy(text: str, source: str, name: str, settings: Sequence[Setting]) -> str:
    """The text with a copy of a container's block behind it, under another name and with these values.

    Comments of the block come along. Raises ``EditError`` where something else of the file would change with it.
    """
    mark = BOM if text.startswith(BOM) else ""
    body = text.removeprefix(BOM)
    edited = _copied(body, source, name)
    before = _read(body).data
    wanted = before[CONTAINERS][source]
    for setting in settings:
        wanted = _set(wanted, setting.path, value_written(setting.written))
        try:
            edited = _with_value(edited, (CONTAINERS, name, *setting.path), setting.written)
        except DocumentError as error:
            raise EditError(error.message) from error
    expected = {**before, CONTAINERS: {**before[CONTAINERS], name: wanted}}
    _require_same(edited, expected)
    return mark + edited


def without_container(text: str, name: str) -> str:
    """The text without a container's block; ``EditError`` where something else of the file would change with it."""
    mark = BOM if text.startswith(BOM) else ""
    body = text.removeprefix(BOM)
    key, value, is_flow = _pair(body, name)
    if is_flow:
        raise EditError("it stands in one line with others")
    start, end = _lines(body, key, value)
    edited = body[:start] + body[end:]
    before = _read(body).data
    left = {other: written for other, written in before[CONTAINERS].items() if other != name}
    if not left:
        raise EditError("it is the only container of the file")
    _require_same(edited, {**before, CONTAINERS: left})
    return mark + edited


def _require_same(edited: str, expected: Mapping[str, Any]) -> None:
    """Raise ``EditError`` where an edited text does not say what is expected of it, and no more."""
    try:
        document = _read(edited)
    except DocumentError as error:
        raise EditError("what would come of it cannot be read") from error
    if document.problems or document.data != expected:
        raise EditError("something else of the file would change with it, such as what stands at an anchor")


def _copied(text: str, source: str, name: str) -> str:
    """The text with the container's block twice, the second one under ``name``."""
    key, value, is_flow = _pair(text, source)
    called = name if isinstance(plain_value(name), str) else json.dumps(name)
    if is_flow:
        end = value.end_mark.index
        return f"{text[:end]}, {called}{text[key.end_mark.index : end]}{text[end:]}"
    start, end = _lines(text, key, value)
    block = text[start : key.start_mark.index] + called + text[key.end_mark.index : end]
    between = "" if text[:end].endswith("\n") else _line_end(text)
    return text[:end] + between + block + text[end:]


def _pair(text: str, name: str) -> tuple[Node, Node, bool]:
    """The nodes of a container's name and block, and whether the file's containers stand between braces."""
    containers = _entry(compose(text), CONTAINERS)
    mapping = containers[1] if containers else None
    container = _entry(mapping, name)
    if not isinstance(mapping, MappingNode) or container is None:
        raise EditError(f"{name} is not written there")
    return *container, bool(mapping.flow_style)


def _lines(text: str, key: Node, value: Node) -> tuple[int, int]:
    """From where to where the lines of a block reach, the end of the last one included."""
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[start : key.start_mark.index].strip():
        raise EditError("its name does not begin a line")
    last = max(key.end_mark.index, _last(value))
    end = text.find("\n", last)
    return start, len(text) if end < 0 else end + 1


def _last(node: Node) -> int:
    """Where what is written of a node ends: for a collection of several lines that is where its last value ends."""
    if isinstance(node, ScalarNode) and node.style in _LITERAL:
        raise EditError("a text of several lines stands there")
    start, end = int(node.start_mark.index), int(node.end_mark.index)
    if start == end:
        return 0  # of what is empty the parser says where the next thing begins
    if not isinstance(node, CollectionNode) or node.flow_style:
        return end
    parts = [start]
    for child in node.value:
        parts += [_last(part) for part in (child if isinstance(child, tuple) else (child,))]
    return max(parts)


def _with_value(text: str, path: Place, written: str) -> str:
    """The text with that value at ``path``; what leads there is made where it is missing."""
    node = compose(text)
    place = slice(0, 0)
    for depth, name in enumerate(path):
        entry = _entry(node, name)
        if entry is None:
            return _inserted(text, node, place, _nested(path[depth:], written))
        key, node = entry
        place = _place_of_block(text, key, node)
    if isinstance(node, CollectionNode) and not node.flow_style:
        raise EditError("what stands there has several lines")
    return _replaced(text, place, written)


def _place_of_block(text: str, key: Node, value: Node) -> slice:
    """Where a value stands in the text: of one that is empty, behind the colon."""
    start, end = value.start_mark.index, value.end_mark.index
    if start < end:
        return slice(start, end)
    after = text.index(":", key.end_mark.index) + 1
    return slice(after, after)


def _nested(path: Place, written: str) -> str:
    """``a: {b: written}``."""
    *above, last = path
    nested = f"{last}: {written}"
    for name in reversed(above):
        nested = f"{name}: {{{nested}}}"
    return nested


def _inserted(text: str, node: Node | None, place: slice, entry: str) -> str:
    """The text with one more entry of a mapping, its first; something empty becomes a mapping of it."""
    is_empty = isinstance(node, ScalarNode) and node.style is None and plain_value(node.value) is None
    if is_empty or (isinstance(node, MappingNode) and not node.value):
        return _replaced(text, place, f"{{ {entry} }}")
    if not isinstance(node, MappingNode):
        raise EditError("no options stand there")
    first, _ = node.value[0]
    start, column = first.start_mark.index, first.start_mark.column
    between = ", " if node.flow_style else f"{_line_end(text)}{' ' * column}"
    return f"{text[:start]}{entry}{between}{text[start:]}"


def _replaced(text: str, place: slice, written: str) -> str:
    before = " " if place.start == place.stop else ""
    return f"{text[: place.start]}{before}{written}{text[place.stop :]}"


def _entry(node: Node | None, name: str) -> tuple[Node, Node] | None:
    """The key of that name with its value; None where there is none."""
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == name:
                return key, value
    return None


# Functions that both parts use.


def _read(text: str) -> Document:
    return parse_document(text.encode())


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _set(data: Any, path: Place, value: Any) -> Any:
    """The same values with another one at ``path``."""
    name, *below = path
    known = data if isinstance(data, dict) else {}
    return {**known, name: _set(known.get(name), tuple(below), value) if below else value}
