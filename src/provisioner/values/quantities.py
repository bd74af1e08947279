"""Sizes and durations as people write them (``16GiB``, ``2m``), and as bytes and seconds."""

from __future__ import annotations

import re

UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,6})?(KiB|MiB|GiB|TiB)$"
LARGEST = 2**63 - 1
SECONDS = {"s": 1, "m": 60, "h": 3600}
UP_TO_AN_HOUR = r"(0|[1-9][0-9]{0,2}|[12][0-9]{3}|3[0-5][0-9]{2}|3600)s|([1-9]|[1-5][0-9]|60)m|1h"
"""The form of a duration that people wait for; roles' pages have it as the pattern of such options."""
UP_TO_A_DAY = (
    r"(0|[1-9][0-9]{0,2}|[12][0-9]{3}|3[0-5][0-9]{2}|3600)s"
    r"|([1-9][0-9]{0,2}|1[0-3][0-9]{2}|14[0-3][0-9]|1440)m|([1-9]|1[0-9]|2[0-4])h"
)
"""The form of a duration after which something happens that nobody waits for."""
NO_TIME = "0s"
"""The only way to write in these forms that nothing is waited for, or that something never happens."""
_DURATION = r"([0-9]{1,6})([smh])"
_ALMOST = r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)i?b?\s*$"


class SizeError(ValueError):
    """Not a size; ``hint`` is the right form."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def parse_size(text: str) -> int:
    """The bytes of ``16GiB``; raise ``SizeError`` for anything but a positive number and one of KiB, MiB, GiB, TiB."""
    if not re.fullmatch(PATTERN, text, re.ASCII):
        raise SizeError("not a size", _right_form(text))
    number, unit = text[:-3], text[-3:]
    size = float(number) * UNITS[unit] if "." in number else int(number) * UNITS[unit]
    if not 1 <= size <= LARGEST:
        raise SizeError("not a size that a container can have", 'write a size such as "16GiB"')
    return int(size)


def size_text(size: int) -> str:
    """The shortest exact form of a number of bytes: ``16GiB``, ``1536MiB``; plain digits where no unit fits."""
    for unit, factor in reversed(UNITS.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def written_size(size: int) -> str:
    """The form in which a file writes a number of bytes: exact where there is one, else the next larger KiB."""
    exact = size_text(size)
    if not exact.isdigit() or size <= 0:
        return exact
    fraction = f"{size / UNITS['KiB']:.6f}".rstrip("0") + "KiB"
    return fraction if parse_size(fraction) == size else f"{-(-size // UNITS['KiB'])}KiB"


def seconds_of(text: str) -> float:
    """The seconds of ``2m``; raise ``ValueError`` for anything but a whole number and one of s, m, h."""
    found = re.fullmatch(_DURATION, text, re.ASCII)
    if found is None:
        raise ValueError(f'"{text}" is no duration: write a whole number and s, m or h, such as "20s"')
    return float(found[1]) * SECONDS[found[2]]


def _right_form(text: str) -> str:
    almost = re.match(_ALMOST, text, re.ASCII | re.IGNORECASE)
    if almost:
        unit = almost[2].upper() or "G"
        return f'write "{almost[1]}{unit}iB", with no space (KiB, MiB, GiB or TiB)'
    return 'write a positive number and KiB, MiB, GiB or TiB, with no space, such as "16GiB"'
