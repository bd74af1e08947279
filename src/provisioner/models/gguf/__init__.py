"""What the head of a GGUF file says of its model: enough to refuse what no engine could serve, before anything is made.

The format is the one of ggml's ``docs/gguf.md``: a magic, a version, counts, then keys with typed values, then one
entry for each tensor, then the tensors. Only the head is read, whatever the file weighs.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from provisioner.models.gguf.reading import LONGEST_HEAD, MAGIC, MOST_KEYS, Arriving, Reader, Skipped
from provisioner.models.gguf.tensors import Tensors, read_tensors, sizes_of
from provisioner.models.header import KIND, VOCABULARY, GgufError, Header
from provisioner.values.regular_files import open_file

__all__ = ["read_head", "read_header"]

_VERSIONS = (2, 3)
LATER_PART = "split.no"
"""The key that says which of a model's files one is, from 0 on; all others stand in the first alone."""
_KEPT_WORDS = ("clip.projector_type", "clip.vision.projector_type", KIND)


def read_header(file: Path) -> Header:
    """The head of ``file``; ``GgufError`` when it is no whole GGUF, ``OSError`` when it cannot be read."""
    with open_file(file) as stream:
        size = stream.seek(0, 2)
        if size == 0:
            raise GgufError("the file is empty")
        with mmap.mmap(stream.fileno(), min(size, LONGEST_HEAD), access=mmap.ACCESS_READ) as content:
            reader = Reader(content, size)
            count, values = _metadata(reader)
            tensors = read_tensors(reader, count, values.get("general.alignment", 32))
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
    reader = Arriving(read, limit)
    count, values = _metadata(reader)
    tensors = read_tensors(reader, count, values.get("general.alignment", 32))
    keep(bytes(reader.arrived[: reader.at]))
    return _header(values, tensors, None)


def _header(values: Mapping[str, Any], tensors: Tensors, size: int | None) -> Header:
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
        sizes_of(tensors, size),
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
    return vocabulary.count if isinstance(vocabulary, Skipped) else 0


def _is_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(entry, int) for entry in value)
    return isinstance(value, int)


def _metadata(reader: Reader) -> tuple[int, dict[str, Any]]:
    """How many tensors follow, and the keys."""
    magic = bytes(reader.content[:4])
    if magic != MAGIC:
        raise GgufError(f"it begins with {magic!r}, a GGUF with {MAGIC!r}")
    reader.take(4)
    version = reader.number("I")
    if version not in _VERSIONS:
        raise GgufError(f"it is of version {version}, known are {' and '.join(map(str, _VERSIONS))}")
    tensors, keys = reader.number("Q"), reader.number("Q")
    if keys > MOST_KEYS:
        raise GgufError(f"its head counts {keys} keys, more than any model has")
    values: dict[str, Any] = {}
    for _ in range(keys):
        name = reader.text()
        values[name] = reader.value(reader.number("I"))
    return tensors, values
