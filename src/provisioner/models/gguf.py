"""What the head of a GGUF file says of its model: enough to refuse what no engine could serve, before anything is made.

The format is the one of ggml's ``docs/gguf.md``: a magic, a version, counts, then keys with typed values, then one
entry for each tensor, then the tensors. Only the head is read, whatever the file weighs: step by step, from a file that
is whole, or as its bytes arrive.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from provisioner.models.header import KIND, VOCABULARY, GgufError, Header
from provisioner.values.regular_files import open_file

_DIMENSIONS = 4
_MOST = 1 << 17
"""No model of today has a tenth of so many; a head that says more is damaged, and not worth the memory."""
_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FORMS = {kind: struct.Struct(f"<{kind}") for kind in _SCALARS.values()}
_LONGEST_HEAD = 256 << 20
"""Bytes: a vocabulary of a million tokens takes a tenth of them."""
_MOST_KEYS = 1 << 16
_MOST_TEXTS = 1 << 22
"""Texts of all lists together: the largest vocabularies of today, with their merges, have a tenth of so many."""
_MOST_KEPT = 32 << 20
"""Bytes of memory for texts and numbers of a head that are kept: a long chat template takes a hundredth of them."""
_NUMBER_BYTES = 32
"""What a number in a list takes at most, with its place there."""
_LONGEST_KEPT = 4096
"""Arrays with more items are vocabularies: their length is checked and their content left alone."""
_STEP = 1 << 18
_VERSIONS = (2, 3)
LATER_PART = "split.no"
"""The key that says which of a model's files one is, from 0 on; all others stand in the first alone."""
_KEPT_WORDS = ("clip.projector_type", "clip.vision.projector_type", KIND)


@dataclass
class _Tensors:
    """What the list says. ``data``: where the first tensor begins; ``offsets`` are counted from there."""

    offsets: dict[str, int] = field(default_factory=dict)
    parameters: int = 0
    data: int = 0

    @property
    def last_offset(self) -> int:
        """Where the last one begins."""
        return max(self.offsets.values(), default=0)


@dataclass(frozen=True, slots=True)
class _Skipped:
    """A list that was stepped over."""

    count: int


class _Reader:
    """Walks over the bytes; each step beyond their end is an error that says so."""

    def __init__(self, content: mmap.mmap | bytearray, size: int) -> None:
        self.content, self.size, self.at = content, size, 0
        self.texts_left = _MOST_TEXTS
        self.kept_left = _MOST_KEPT

    def take(self, count: int) -> int:
        """Step over ``count`` bytes of the head, which is no longer than any model's; where they begin."""
        begin = self.at
        if count > self.size - begin:
            raise GgufError(f"it ends after {self.size} bytes, in the middle of its head")
        self.at = begin + count
        if self.at > _LONGEST_HEAD:
            raise GgufError(f"its head does not end within {_LONGEST_HEAD} bytes")
        return begin

    def number(self, kind: str) -> Any:
        """The next number, of a kind as ``struct`` names it."""
        form = _FORMS[kind]
        return form.unpack_from(self.content, self.take(form.size))[0]

    def text(self) -> str:
        """The next text."""
        length = self.number("Q")
        begin = self.take(length)
        self._keep(length)
        try:
            return bytes(self.content[begin : begin + length]).decode()
        except UnicodeDecodeError as error:
            raise GgufError(f"a text of its head, at byte {begin}, is no UTF-8") from error

    def _keep(self, size: int) -> None:
        """Count what is kept: a small file may say that it holds texts of any length, as it may have holes."""
        self.kept_left -= size
        if self.kept_left < 0:
            raise GgufError(
                f"its head, before byte {self.at}, holds more than {_MOST_KEPT >> 20} MiB of texts and numbers"
            )

    def value(self, kind: int) -> Any:
        """The next value of one of GGUF's types."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array(self.number("I"), self.number("Q"))
        if kind not in _SCALARS:
            raise GgufError(f"a value of its head, before byte {self.at}, is of type {kind}, which GGUF does not have")
        return self.number(_SCALARS[kind])

    def array(self, kind: int, count: int) -> list[Any] | _Skipped:
        """The items of a short list of numbers."""
        if kind == _STRING:
            self.texts_left -= count
            if self.texts_left < 0:
                raise GgufError(f"a list of its head, before byte {self.at}, counts more texts than any model: {count}")
            for _ in range(count):
                self.take(self.number("Q"))
            return _Skipped(count)
        if kind not in _SCALARS:
            raise GgufError(f"a list of its head, before byte {self.at}, holds type {kind}, which no list can hold")
        begin = self.take(count * _FORMS[_SCALARS[kind]].size)
        if count > _LONGEST_KEPT:
            return _Skipped(count)
        self._keep(count * _NUMBER_BYTES)
        return list(struct.unpack_from(f"<{count}{_SCALARS[kind]}", self.content, begin))


class _Arriving(_Reader):
    """Has what has come so far, and waits for what it steps over."""

    def __init__(self, read: Callable[[int], bytes], limit: int) -> None:
        self.arrived = bytearray()
        super().__init__(self.arrived, limit)
        self.read = read
        self.have(len(_MAGIC))

    def have(self, count: int) -> None:
        """Wait until so many bytes are there."""
        while len(self.arrived) < count:
            piece = self.read(min(_STEP, self.size - len(self.arrived)))
            if not piece:
                raise EOFError(f"no more came after {len(self.arrived)} bytes")
            self.arrived += piece

    def take(self, count: int) -> int:
        """Step over ``count`` bytes once they are there."""
        if count > self.size - self.at:
            raise GgufError(f"its head does not end within {self.size} bytes")
        begin = super().take(count)
        self.have(self.at)
        return begin


def read_header(file: Path) -> Header:
    """The head of ``file``; ``GgufError`` when it is no whole GGUF, ``OSError`` when it cannot be read."""
    with open_file(file) as stream:
        size = stream.seek(0, 2)
        if size == 0:
            raise GgufError("the file is empty")
        with mmap.mmap(stream.fileno(), min(size, _LONGEST_HEAD), access=mmap.ACCESS_READ) as content:
            reader = _Reader(content, size)
            count, values = _metadata(reader)
            tensors = _read_tensors(reader, count, values.get("general.alignment", 32))
            begin = tensors.data + tensors.last_offset
            if tensors.offsets and begin >= size:
                raise GgufError(f"it ends after {size} bytes, its last tensor begins at {begin}: it is not whole")
            return _header(values, tensors, size)


def read_head(read: Callable[[int], bytes], limit: int, keep: Callable[[bytes], None] = lambda _head: None) -> Header:
    """The head of a file that comes piece by piece, no further than its list of tensors goes.

    ``read`` gives the next bytes, at most as many as it is told; none is the end, and then ``EOFError`` is raised.
    ``keep`` is given the head's own bytes.
    ``GgufError``: it is no GGUF, or its head is not over after ``limit`` bytes.
    """
    reader = _Arriving(read, limit)
    count, values = _metadata(reader)
    tensors = _read_tensors(reader, count, values.get("general.alignment", 32))
    keep(bytes(reader.arrived[: reader.at]))
    return _header(values, tensors, None)


def _header(values: Mapping[str, Any], tensors: _Tensors, size: int | None) -> Header:
    architecture = values.get("general.architecture", "")
    if not isinstance(architecture, str) or not (architecture or values.get(LATER_PART)):
        raise GgufError("it does not name its architecture")

    def number(name: str) -> int:
        return _first_number(values.get(f"{architecture}.{name}", 0))

    parts = _parts(values)
    kind = {} if tensors.offsets or parts > 1 else {KIND: VOCABULARY}
    heads = number("attention.head_count")
    head_size = number("embedding_length") // heads if heads else 0
    return Header(
        architecture,
        number("block_count"),
        number("context_length"),
        number("attention.key_length") or head_size,
        number("attention.value_length") or head_size,
        number("expert_count"),
        parts,
        {**_kept(values), **kind, "general.architecture": architecture},
        _token_count(values),
        _sizes_of(tensors, size),
        tensors.parameters,
    )


def _first_number(value: Any) -> int:
    """The number, 0 for none. Layers may differ; the first that has the thing stands for all, as for llama.cpp."""
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, int) and entry > 0:
            return entry
    return 0


def _parts(values: Mapping[str, Any]) -> int:
    parts = values.get("split.count", 1)
    return parts if isinstance(parts, int) and parts > 0 else 1


def _kept(values: Mapping[str, Any]) -> dict[str, Any]:
    """All numbers and short lists of numbers, and what kind of file and of projector it is."""
    return {name: value for name, value in values.items() if _is_numbers(value) or name in _KEPT_WORDS}


def _token_count(values: Mapping[str, Any]) -> int:
    vocabulary = values.get("tokenizer.ggml.tokens")
    return vocabulary.count if isinstance(vocabulary, _Skipped) else 0


def _is_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(entry, int) for entry in value)
    return isinstance(value, int)


def _metadata(reader: _Reader) -> tuple[int, dict[str, Any]]:
    """How many tensors follow, and the keys."""
    magic = bytes(reader.content[:4])
    if magic != _MAGIC:
        raise GgufError(f"it begins with {magic!r}, a GGUF with {_MAGIC!r}")
    reader.take(4)
    version = reader.number("I")
    if version not in _VERSIONS:
        raise GgufError(f"it is of version {version}, known are {' and '.join(map(str, _VERSIONS))}")
    tensors, keys = reader.number("Q"), reader.number("Q")
    if keys > _MOST_KEYS:
        raise GgufError(f"its head counts {keys} keys, more than any model has")
    values: dict[str, Any] = {}
    for _ in range(keys):
        name = reader.text()
        values[name] = reader.value(reader.number("I"))
    return tensors, values


def _read_tensors(reader: _Reader, count: int, alignment: Any) -> _Tensors:
    """The list, which follows the keys; ``GgufError`` when it cannot be one."""
    if not isinstance(alignment, int) or alignment <= 0:
        raise GgufError(f"its alignment is {alignment}")
    if count > _MOST:
        raise GgufError(f"its head counts {count} tensors, more than any model has")
    tensors = _Tensors()
    for _ in range(count):
        name = reader.text()
        tensors.parameters += _parameters(reader, name)
        reader.take(4)
        tensors.offsets[name] = reader.number("Q")
    tensors.data = -(-reader.at // alignment) * alignment
    return tensors


def _parameters(reader: _Reader, name: str) -> int:
    """How many weights the tensor has: the product of its dimensions."""
    dimensions = reader.number("I")
    if dimensions > _DIMENSIONS:
        raise GgufError(f"its tensor {name} has {dimensions} dimensions")
    return math.prod(reader.number("Q") for _ in range(dimensions))


def _sizes_of(tensors: _Tensors, size: int | None) -> dict[str, int]:
    """Bytes of each tensor, up to where the next begins; ``size``: the file's, without it the last is left out."""
    ordered = sorted((offset, name) for name, offset in tensors.offsets.items())
    sizes = {name: after - offset for (offset, name), (after, _) in pairwise(ordered)}
    if ordered and size is not None:
        offset, name = ordered[-1]
        sizes[name] = size - tensors.data - offset
    return sizes
