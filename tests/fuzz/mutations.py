"""Valid inputs changed by chance: bytes, texts by their lines, and plain data by its parts."""

from __future__ import annotations

import copy
import re
import struct
from collections.abc import Sequence
from random import Random
from typing import Any

DEEP: Any = "end"
for _ in range(60):
    DEEP = [DEEP]
LOOKUP = "{{ lookup('pipe', 'false') }}"
WORDS = ("", "..", "../..", "a/../b", "x" * 5000, "9" * 5000, "\0", "é", "²", LOOKUP, "-1", "1e999", "true", "NaN")
NUMBERS = (0, -1, -5, 1, 2**31, 2**63, 2**64, 10**30, 1.5, -0.0, 1e308)
SHAPES: tuple[Any, ...] = ([], {}, [[]], [None], [{}], {"": ""}, {"a": {"a": []}}, DEEP)
VALUES: tuple[Any, ...] = (None, True, False, *WORDS, *NUMBERS, *SHAPES)
"""What may stand where something else was meant."""
_INTEGERS = (0, 1, 2**7, 2**16, 2**31, 2**32 - 1)
_LONG_INTEGERS = (2**32, 2**40, 2**60, 2**63, 2**64 - 1)
_COPIES = (2, 2, 2, 5, 5, 5, 20, 300)


def changed_bytes(chance: Random, content: bytes) -> bytes:
    """The bytes with one to four changes: flipped, cut, doubled, moved, or a number of a format in their place."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        end = min(len(changed), at + chance.choice((1, 4, 8, 64)))
        kind = chance.randrange(6)
        if kind == 0:
            changed[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            changed[at : at + 4] = struct.pack("<I", chance.choice(_INTEGERS))
        elif kind == 2:
            changed[at : at + 8] = struct.pack("<Q", chance.choice(_LONG_INTEGERS))
        elif kind == 3:
            del changed[at:end]
        elif kind == 4:
            changed[at:at] = changed[at:end] * chance.choice(_COPIES)
        else:
            del changed[chance.randrange(len(changed) + 1) :]
    return bytes(changed)


def changed_text(chance: Random, text: str) -> str:
    """The text with one to four changes of its lines: left out, doubled, swapped, or one of their words changed."""
    lines = text.split("\n")
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(lines))
        kind = chance.randrange(5)
        if kind == 0:
            lines[at : at + 1] = []
            lines = lines or [""]
        elif kind == 1:
            lines[at:at] = [lines[at]] * chance.choice(_COPIES)
        elif kind == 2:
            other = chance.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == 3:
            lines[at] = _changed_line(chance, lines[at])
        else:
            lines = lines[: at + 1]
    return "\n".join(lines)


def _changed_line(chance: Random, line: str) -> str:
    words = line.split(" ")
    at = chance.randrange(len(words))
    words[at] = str(chance.choice((*WORDS, *NUMBERS, words[at][: len(words[at]) // 2], words[at] * 3)))
    return " ".join(words)


def changed_value(chance: Random, value: Any, others: Sequence[Any] = VALUES) -> Any:
    """Plain data with one to four changes: a part replaced, left out, renamed, repeated, or put elsewhere."""
    changed = copy.deepcopy(value)
    for _ in range(chance.randint(1, 4)):
        changed = _changed_once(chance, changed, others)
    return changed


def _changed_once(chance: Random, value: Any, others: Sequence[Any]) -> Any:
    holder, key = _place(chance, value)
    if holder is None:
        return copy.deepcopy(chance.choice(others))
    kind = chance.randrange(7)
    if kind == 6 and isinstance(holder[key], str):
        holder[key] = _changed_word(chance, holder[key])
    elif kind == 0:
        holder[key] = copy.deepcopy(chance.choice(others))
    elif kind == 1:
        del holder[key]
    elif kind == 2 and isinstance(holder, dict):
        holder[str(chance.choice((*WORDS, *holder)))] = holder.pop(key)
    elif kind == 3:
        holder[key] = [copy.deepcopy(holder[key]) for _ in range(chance.choice(_COPIES))]
    elif kind == 4:
        source, other = _place(chance, value)
        holder[key] = copy.deepcopy(source[other]) if source is not None else None
    else:
        _repeat(chance, holder, key)
    return value


def _changed_word(chance: Random, text: str) -> str:
    """The text with a character or a part between marks of punctuation changed, left out, or doubled."""
    parts = re.split(r"([,;:=/._ -])", text)
    at = chance.randrange(len(parts))
    parts[at] = str(chance.choice(("", parts[at] * 2, parts[at][:-1], chance.choice(WORDS), chance.choice(NUMBERS))))
    return "".join(parts)


def _repeat(chance: Random, holder: Any, key: Any) -> None:
    """Have many of the same beside it, as a list or a mapping has them."""
    for number in range(chance.choice(_COPIES)):
        if isinstance(holder, dict):
            holder[f"{key}-{number}"] = copy.deepcopy(holder[key])
        else:
            holder.append(copy.deepcopy(holder[key]))


def _place(chance: Random, value: Any) -> tuple[Any, Any]:
    """A part of the data, as what holds it and its key there; None where the data itself has no parts."""
    places = list(_places(value))
    return chance.choice(places) if places else (None, None)


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        if not isinstance(holder, dict | list):
            continue
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            found.append((holder, key))
            waiting.append(holder[key])
    return found
