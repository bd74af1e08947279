"""Durations as people write them (``20s``, ``15m``, ``1h``) and as seconds."""

from __future__ import annotations

import re

UNITS = {"s": 1, "m": 60, "h": 3600}
UP_TO_AN_HOUR = r"(0|[1-9][0-9]{0,2}|[12][0-9]{3}|3[0-5][0-9]{2}|3600)s|([1-9]|[1-5][0-9]|60)m|1h"
"""The form of a duration that people wait for; roles' pages have it as the pattern of such options."""
_DURATION = re.compile(r"([0-9]{1,6})([smh])", re.ASCII)


def seconds_of(text: str) -> float:
    """The seconds of ``2m``; raise ``ValueError`` for anything but a whole number and one of s, m, h."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f'"{text}" is no duration: write a whole number and s, m or h, such as "20s"')
    return float(found[1]) * UNITS[found[2]]
