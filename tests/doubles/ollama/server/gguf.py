"""The head of a GGUF file, and the file as Ollama writes it anew."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.doubles.ollama.server.limits import PIECE

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY, _UINT32 = 8, 9, 4
_MOST_ENTRIES = 1 << 24


class BadGguf(Exception):  # noqa: N818  # says what the file is
    """A file that begins as a GGUF and is none."""


class Gguf:
    """The head of a GGUF file: its values, and where its parts lie."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self.spans: list[tuple[str, int, int]] = []
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                self._read(data)
        except (struct.error, ValueError, UnicodeDecodeError) as error:
            raise BadGguf("unexpected EOF") from error

    @property
    def architecture(self) -> str:
        """The architecture; "unknown" where the file names none (fs/ggml/ggml.go)."""
        return str(self.values.get("general.architecture") or "unknown")

    def own(self, key: str) -> Any:
        """A value below the architecture's name."""
        return self.values.get(f"{self.architecture}.{key}")

    def _read(self, data: mmap.mmap) -> None:
        magic, version, tensors, values = struct.unpack_from("<4sIQQ", data, 0)
        if magic != b"GGUF" or version not in {2, 3} or max(tensors, values) > _MOST_ENTRIES:
            raise BadGguf("invalid file magic")
        at = 24
        for _ in range(values):
            start = at
            key, at = _text_at(data, at)
            (kind,) = struct.unpack_from("<I", data, at)
            self.values[key], at = _value_at(data, at + 4, kind)
            self.spans.append((key, start, at))
        self.tensors_at = at
        for _ in range(tensors):
            _, at = _text_at(data, at)
            (dimensions,) = struct.unpack_from("<I", data, at)
            at += 4 + 8 * dimensions + 12
        alignment = int(self.values.get("general.alignment") or 32)
        self.tensors_end = at
        self.data_at = at + -at % alignment
        self.head = struct.pack("<4sIQ", magic, 3, tensors)
        if self.data_at > len(data):
            raise BadGguf("unexpected EOF")

    def rewritten(self) -> Iterator[bytes]:
        """The file as ``llama-quantize COPY`` writes it: the version and the type of numbers are set anew, last."""
        last = ("general.quantization_version", "general.file_type")
        kept = [span for span in self.spans if span[0] not in last]
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            head = self.head + struct.pack("<Q", len(kept) + 2)
            head += b"".join(data[start:end] for _, start, end in kept)
            for key, default in zip(last, (2, 0), strict=True):
                number = 2 if default else int(self.values.get(key) or 0)
                head += struct.pack(f"<Q{len(key)}sII", len(key), key.encode(), _UINT32, number)
            head += data[self.tensors_at : self.tensors_end]
            yield head + bytes(-len(head) % int(self.values.get("general.alignment") or 32))
            for at in range(self.data_at, len(data), PIECE):
                yield data[at : at + PIECE]


def _text_at(data: mmap.mmap, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    end = at + 8 + length
    if end > len(data):
        raise BadGguf("unexpected EOF")
    return data[at + 8 : end].decode(), end


def _value_at(data: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    if kind == _TEXT:
        return _text_at(data, at)
    if kind == _ARRAY:
        return _array_at(data, at)
    if kind not in _SCALARS:
        raise BadGguf(f"invalid type: {kind}")
    form = "<" + _SCALARS[kind]
    (value,) = struct.unpack_from(form, data, at)
    return value, at + struct.calcsize(form)


def _array_at(data: mmap.mmap, at: int) -> tuple[Any, int]:
    """A short list, or None for a long one, which no answer shows (server/routes.go, getModelData)."""
    kind, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if count > _MOST_ENTRIES:
        raise BadGguf("unexpected EOF")
    if kind in _SCALARS:
        form = "<" + _SCALARS[kind]
        end = at + count * struct.calcsize(form)
        short = list(struct.unpack_from(f"<{count}{_SCALARS[kind]}", data, at)) if count <= 5 else None
        return short, end
    values = []
    for _ in range(count):
        value, at = _value_at(data, at, kind)
        values.append(value)
    return values if count <= 5 else None, at
