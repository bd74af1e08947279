"""Proxmox' property strings (``value,key=value``), sizes and numbers as text. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

MIB, GIB = 2**20, 2**30
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([KMGT]?)")
_DIGITS = 15
_FACTORS = {"": 1, "K": 2**10, "M": MIB, "G": GIB, "T": 2**40}


def parts(text: str, default: str = "") -> dict[str, str]:
    """The parts of a property string; what has no key is that of ``default``."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if equals:
            found[key] = value
        elif key:
            found[default] = key
    return found


def joined(given: Mapping[str, str], default: str = "") -> str:
    """The property string of parts, that of ``default`` first and without its key."""
    words = [f"{key}={value}" for key, value in given.items() if key != default]
    if default in given:
        words.insert(0, given[default])
    return ",".join(words)


def bytes_of(size: str) -> int:
    """The bytes of a size such as ``8G``; 0 where there is none."""
    match = _SIZE.fullmatch(size)
    if match is None:
        return 0
    number, unit = match.groups()
    return int(float(number) * _FACTORS[unit])


def number_in(text: str) -> int:
    """The whole number that the text is; 0 where it is none."""
    is_number = text.isascii() and text.isdigit()
    return int(text) if is_number and len(text) <= _DIGITS else 0


def mebibytes(size: int) -> int:
    """Whole MiB that hold ``size``: Proxmox counts in them."""
    return -(-size // MIB)


def gibibytes(size: int) -> str:
    """``size`` as the GiB of a new disk, exact to a MiB, which is what Proxmox rounds down to."""
    return f"{max(1, mebibytes(size)) / 1024:.10f}".rstrip("0").rstrip(".")
