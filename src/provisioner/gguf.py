"""What the head of a GGUF file says of its model: enough to refuse what no engine could serve, before anything is made.

The format is the one of ggml's ``docs/gguf.md``: a magic, a version, counts, then keys with typed values, then one
entry for each tensor, then the tensors. Only the head is read, whatever the file weighs.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECTOR = "clip"
"""The architecture of a file that turns images into tokens of another model; such a file answers nothing itself."""

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_LONGEST_KEPT = 4096
"""Arrays with more items are vocabularies: their length is checked and their content left alone."""
_DIMENSIONS = 4
_STEP = 1 << 18


class GgufError(ValueError):
    """The file is no GGUF, or not a whole one; the text says how that was seen."""


@dataclass(frozen=True, slots=True)
class Header:
    """One file's model. A number is 0 where the file does not say it or it has no meaning for its architecture."""

    architecture: str
    layers: int = 0
    context: int = 0
    key_size: int = 0
    value_size: int = 0
    experts: int = 0
    parts: int = 1
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """All its numbers, and its short lists of numbers, by the file's own names."""
    tokens: int = field(default=0, compare=False)
    """Items of its vocabulary."""

    @property
    def is_projector(self) -> bool:
        """Whether it belongs beside a model, as its eye."""
        return self.architecture == PROJECTOR


def read_header(file: Path) -> Header:
    """The head of ``file``; ``GgufError`` when it is no whole GGUF, ``OSError`` when it cannot be read."""
    with file.open("rb") as stream:
        size = stream.seek(0, 2)
        if size == 0:
            raise GgufError("the file is empty")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            reader = _Reader(content, size)
            tensors, values = _metadata(reader)
            _check_tensors(reader, tensors, values.get("general.alignment", 32))
            return _header(values)


def read_head(read: Callable[[int], bytes], limit: int) -> Header:
    """The head of a file that comes piece by piece, no further than its keys go.

    ``read`` gives the next bytes, at most as many as it is told; none is the end, and then ``EOFError`` is raised.
    ``GgufError``: it is no GGUF, or its keys are not over after ``limit`` bytes.
    """
    return _header(_metadata(_Arriving(read, limit))[1])


def _header(values: Mapping[str, Any]) -> Header:
    architecture = values.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise GgufError("it does not name its architecture")

    def number(name: str) -> int:
        # Layers may differ; the first that has the thing stands for all, as it does for llama.cpp.
        found = values.get(f"{architecture}.{name}", 0)
        each = found if isinstance(found, list) else [found]
        return next((one for one in each if isinstance(one, int) and one > 0), 0)

    heads = number("attention.head_count")
    head_size = number("embedding_length") // heads if heads else 0
    parts = values.get("split.count", 1)
    return Header(
        architecture,
        number("block_count"),
        number("context_length"),
        number("attention.key_length") or head_size,
        number("attention.value_length") or head_size,
        number("expert_count"),
        parts if isinstance(parts, int) and parts > 0 else 1,
        {name: one for name, one in values.items() if _is_numbers(one)} | {"general.architecture": architecture},
        vocabulary.count if isinstance(vocabulary := values.get("tokenizer.ggml.tokens"), _Skipped) else 0,
    )


def _is_numbers(value: Any) -> bool:
    each = value if isinstance(value, list) else [value]
    return all(isinstance(one, int) for one in each)


@dataclass(frozen=True, slots=True)
class _Skipped:
    """A list that was stepped over."""

    count: int


class _Reader:
    """Walks over the bytes; each step beyond their end is an error that says so."""

    def __init__(self, content: mmap.mmap | bytearray, size: int) -> None:
        self.content, self.size, self.at = content, size, 0

    def take(self, count: int) -> int:
        """Step over ``count`` bytes; where they begin."""
        begin = self.at
        if count > self.size - begin:
            raise GgufError(f"it ends after {self.size} bytes, in the middle of its head")
        self.at = begin + count
        return begin

    def number(self, kind: str) -> Any:
        return struct.unpack_from(f"<{kind}", self.content, self.take(struct.calcsize(f"<{kind}")))[0]

    def text(self) -> str:
        length = self.number("Q")
        begin = self.take(length)
        try:
            return bytes(self.content[begin : begin + length]).decode()
        except UnicodeDecodeError as error:
            raise GgufError(f"a text of its head, at byte {begin}, is no UTF-8") from error

    def value(self, kind: int) -> Any:
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
            for _ in range(count):
                self.take(self.number("Q"))
            return _Skipped(count)
        if kind not in _SCALARS:
            raise GgufError(f"a list of its head, before byte {self.at}, holds type {kind}, which no list can hold")
        begin = self.take(count * struct.calcsize(f"<{_SCALARS[kind]}"))
        if count > _LONGEST_KEPT:
            return _Skipped(count)
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
    values: dict[str, Any] = {}
    for _ in range(keys):
        name = reader.text()
        values[name] = reader.value(reader.number("I"))
    return tensors, values


def _check_tensors(reader: _Reader, count: int, alignment: Any) -> None:
    """A download that was cut off has a good head, and tensors that begin behind its end."""
    if not isinstance(alignment, int) or alignment <= 0:
        raise GgufError(f"its alignment is {alignment}")
    last = -1
    for _ in range(count):
        name = reader.text()
        dimensions = reader.number("I")
        if dimensions > _DIMENSIONS:
            raise GgufError(f"its tensor {name} has {dimensions} dimensions")
        reader.take(8 * dimensions + 4)
        last = max(last, reader.number("Q"))
    data = math.ceil(reader.at / alignment) * alignment
    if last >= 0 and data + last >= reader.size:
        raise GgufError(f"it ends after {reader.size} bytes, its last tensor begins at {data + last}: it is not whole")
