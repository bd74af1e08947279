"""A YAML 1.2 file as plain values, with the line of each, and everything wrong with its YAML at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent, Event
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from provisioner.values.declared import Problem, Secret
from provisioner.values.refusals import KeyPath

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]{1,30}|0o[0-7]{1,30}|0x[0-9a-fA-F]{1,30}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)
_LONGEST = 40  # a longer number is none: a digest of digits only, or an attack on int()


def plain_value(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST:
        return text
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _NOT_FINITE.fullmatch(text):
        return float(text.lower().replace(".", ""))
    return text


MAX_BYTES = 1_000_000
MAX_VALUES = 20_000
"""A lab of a hundred containers has two thousand; reading takes up to 0.1 ms for each."""
MAX_DEPTH = 50
_TOO_DEEP = ("nested too deeply", "close the brackets where they end; a lab needs seven levels")
_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS = {_CORE + kind for kind in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge")}
_MERGE = _CORE + "merge"
_TAGS_OF_OTHERS = frozenset({"!vault", "!unsafe", "!include", "!env", "!ENV", "!env_var", "!reference", "!Ref", "!Sub"})
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}", re.ASCII)
Place = tuple[int, int]
"""Line and column, both from 1."""
TOP: Place = (1, 1)


class DocumentError(Exception):
    """The file is no YAML that could be looked into any further; ``place`` is where that was noticed."""

    def __init__(self, place: Place, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.place = place
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class SecretUse:
    """One ``!secret name`` of the file."""

    name: str
    path: KeyPath


@dataclass(frozen=True, slots=True)
class Document:
    """``data`` holds an empty ``Secret`` for each of ``uses``; ``places`` has where each key and list item stands."""

    data: Mapping[str, Any]
    places: Mapping[KeyPath, Place]
    uses: tuple[SecretUse, ...]
    problems: tuple[Problem, ...]

    def place(self, path: KeyPath) -> Place:
        """Where ``path`` stands, or the nearest thing above it that was written."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


def parse_document(content: bytes) -> Document:
    """Read ``content``; raise ``DocumentError`` where nothing more could be said about the rest of it."""
    if len(content) > MAX_BYTES:
        raise DocumentError(TOP, f"the file is larger than {MAX_BYTES} bytes", "is this the right file?")
    root = compose(_decoded(content))
    if root is None:
        raise DocumentError(TOP, "the file is empty", "remove it: `provision init` then writes one to begin with")
    builder = _Builder()
    try:
        data = builder.value(root, ())
    except RecursionError as error:
        raise DocumentError(_place(root), *_TOO_DEEP) from error
    if not isinstance(data, dict):
        hint = "begin with `name: homelab`; a list at the top is a playbook of Ansible's"
        raise DocumentError(_place(root), "the file must be a mapping at its top", hint)
    if "containers" not in data:
        from provisioner.labfile.advice import foreign_file  # nothing that a good file needs

        foreign = foreign_file(data)
        if foreign is not None:
            key, *words = foreign
            raise DocumentError(builder.places[key], *words)
    return Document(data, builder.places, tuple(builder.uses), tuple(builder.problems))


def _decoded(content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].rpartition(b"\n")
        place = (content.count(b"\n", 0, error.start) + 1, len(before[2].decode()) + 1)
        coding = "UTF-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "LATIN1"
        hint = f"save the file as UTF-8, or turn it into that: iconv -f {coding} -t UTF-8 FILE"
        raise DocumentError(place, "not UTF-8", hint) from error
    return text


class _LimitedComposer(Composer):
    """Composes no more nodes than a file may have: what is larger is refused before all of it was read."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self._count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node, with all that is below it."""
        self._count += 1
        if self._count > MAX_VALUES:
            mark = self.parser.peek_event().start_mark
            raise DocumentError((mark.line + 1, mark.column + 1), f"more than {MAX_VALUES} values", "write less")
        return super().compose_node(parent, index)


def compose(text: str) -> Node | None:
    """The nodes of a file with their places; raises ``DocumentError`` where it is no YAML, or too much of it."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _LimitedComposer
    yaml.composer.warn_double_anchors = False
    try:
        root: Node | None = yaml.compose(text)
    except MarkedYAMLError as error:
        from provisioner.labfile.syntax import described  # nothing that a good file needs

        raise DocumentError(*described(error, text)) from error
    except ReaderError as error:
        before = text[: error.position]
        place = (before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1)
        hint = "remove it, or write it as an escape in double quotes"
        raise DocumentError(place, "a control character", hint) from error
    except RecursionError as error:
        raise DocumentError(_deep_place(text), *_TOO_DEEP) from error
    except (YAMLError, ValueError) as error:
        raise DocumentError(TOP, "not YAML") from error
    return root


def _deep_place(text: str) -> Place:
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            return _place(event)
    return TOP


def _place(node: Node | Event) -> Place:
    return int(node.start_mark.line) + 1, int(node.start_mark.column) + 1


class _Builder:
    def __init__(self) -> None:
        self.places: dict[KeyPath, Place] = {(): TOP}
        self.uses: list[SecretUse] = []
        self.problems: list[Problem] = []
        self.count = 0
        self.open: set[int] = set()

    def refuse(self, path: KeyPath, message: str, hint: str = "") -> None:
        self.problems.append(Problem(path, message, hint))

    def value(self, node: Node, path: KeyPath) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            raise DocumentError(_place(node), f"more than {MAX_VALUES} values, aliases expanded", "write less")
        if len(path) > MAX_DEPTH:
            raise DocumentError(_place(node), *_TOO_DEEP)
        if isinstance(node, ScalarNode):
            return self.scalar(node, path)
        if id(node) in self.open:
            raise DocumentError(_place(node), "an alias that contains itself")
        if str(node.tag) not in (_CORE + "map", _CORE + "seq"):
            self.refuse_tag(node, path)
        self.open.add(id(node))
        value = self.sequence(node, path) if isinstance(node, SequenceNode) else self.mapping(node, path)
        self.open.discard(id(node))
        return value

    def scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        tag, text = str(node.tag), str(node.value)
        if tag == "!secret":
            return self.secret(text, path)
        if tag not in _SCALAR_TAGS:
            self.refuse_tag(node, path)
            return f"{tag} {text}"
        return text if tag == _CORE + "str" else plain_value(text)

    def secret(self, name: str, path: KeyPath) -> Secret:
        if _SECRET_NAME.fullmatch(name):
            self.uses.append(SecretUse(name, path))
        else:
            self.refuse(
                path,
                "not the name of a secret",
                "write `!secret NAME`: letters, digits, _ and -; begins with a letter or _",
            )
        return Secret(name, None)

    def refuse_tag(self, node: Node, path: KeyPath) -> None:
        tag = str(node.tag)
        if tag == "!secret":
            self.refuse(path, "a secret has a name and no more", "write `!secret NAME`")
        elif tag in _TAGS_OF_OTHERS:
            self.refuse(
                path, f"the tag {tag}, which is of another program", "there is only one tag here: `!secret NAME`"
            )
        elif tag.startswith(_CORE):
            self.refuse(path, f"the tag !!{tag.removeprefix(_CORE)[:40]} is not allowed", "write plain values")
        else:
            # The tag itself stays unsaid: it may be a password that begins with "!" and was not quoted.
            self.refuse(path, "a tag other than !secret", 'put text that begins with "!" in quotes')

    def sequence(self, node: SequenceNode, path: KeyPath) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self.places[(*path, index)] = _place(item)
            items.append(self.value(item, (*path, index)))
        return items

    def mapping(self, node: Node, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        self.fill(result, node, path)
        return result

    def fill(self, result: dict[str, Any], node: Node, path: KeyPath, *, merging: bool = False) -> None:
        self.count += 1
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if str(key_node.tag) == _MERGE:
                merged += value_node.value if isinstance(value_node, SequenceNode) else [value_node]
            elif (key := self.key(key_node, path)) is None:
                continue
            elif key not in result:
                self.places[(*path, key)] = _place(key_node)
                result[key] = self.value(value_node, (*path, key))
            elif not merging:
                first, self.places[(*path, key)] = self.places[(*path, key)], _place(key_node)
                self.refuse((*path, key), f"duplicate key, first written on line {first[0]}", "keep one of them")
        for one in merged:
            self.merge(result, one, path)

    def merge(self, result: dict[str, Any], node: Node, path: KeyPath) -> None:
        if not isinstance(node, MappingNode):
            self.refuse(path, 'only a mapping can be merged by "<<"')
            return
        if self.count > MAX_VALUES or id(node) in self.open:
            raise DocumentError(_place(node), "an alias that contains itself, or too many of them")
        self.open.add(id(node))
        self.fill(result, node, path, merging=True)
        self.open.discard(id(node))

    def key(self, node: Node, path: KeyPath) -> str | None:
        if isinstance(node, ScalarNode) and str(node.tag) in _SCALAR_TAGS:
            value = self.scalar(node, path)
            if isinstance(value, str):
                return value
        if isinstance(node, MappingNode):
            self.refuse(
                path, f'"{{{{" on line {_place(node)[0]}', "templates are not filled in here: write the value itself"
            )
        else:
            self.refuse(path, f"a key on line {_place(node)[0]} that is no string", "put it in quotes")
        return None
