"""The bytes of a GGUF file's head, step by step: from a file that is whole, or as they arrive."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from provisioner.models.header import GgufError

MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FORMS = {kind: struct.Struct(f"<{kind}") for kind in _SCALARS.values()}
LONGEST_HEAD = 256 << 20
"""Bytes: a vocabulary of a million tokens takes a tenth of them."""
MOST_KEYS = 1 << 16
_MOST_TEXTS = 1 << 22
"""Texts of all lists together: the largest vocabularies of today, with their merges, have a tenth of so many."""
_MOST_KEPT = 32 << 20
"""Bytes of memory for texts and numbers of a head that are kept: a long chat template takes a hundredth of them."""
_NUMBER_BYTES = 32
"""What a number in a list takes at most, with its place there."""
_LONGEST_KEPT = 4096
"""Arrays with more items are vocabularies: their length is checked and their content left alone."""
_STEP = 1 << 18


@dataclass(frozen=True, slots=True)
class Skipped:
    """A list that was stepped over."""

    count: int


class Reader:
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
        if self.at > LONGEST_HEAD:
            raise GgufError(f"its head does not end within {LONGEST_HEAD} bytes")
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

    def array(self, kind: int, count: int) -> list[Any] | Skipped:
        """The items of a short list of numbers."""
        if kind == _STRING:
            self.texts_left -= count
            if self.texts_left < 0:
                raise GgufError(f"a list of its head, before byte {self.at}, counts more texts than any model: {count}")
            for _ in range(count):
                self.take(self.number("Q"))
            return Skipped(count)
        if kind not in _SCALARS:
            raise GgufError(f"a list of its head, before byte {self.at}, holds type {kind}, which no list can hold")
        begin = self.take(count * _FORMS[_SCALARS[kind]].size)
        if count > _LONGEST_KEPT:
            return Skipped(count)
        self._keep(count * _NUMBER_BYTES)
        return list(struct.unpack_from(f"<{count}{_SCALARS[kind]}", self.content, begin))


class Arriving(Reader):
    """Has what has come so far, and waits for what it steps over."""

    def __init__(self, read: Callable[[int], bytes], limit: int) -> None:
        self.arrived = bytearray()
        super().__init__(self.arrived, limit)
        self.read = read
        self.have(len(MAGIC))

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
