"""Versions of glibc, this machine's one, and since which of them it declares the functions that CUDA declares, too."""

from __future__ import annotations

import os
import re

Version = tuple[int, int]

RSQRT, PI = (2, 42), (2, 41)
SINCE: dict[str, Version] = {
    "rsqrt": RSQRT,
    "rsqrtf": RSQRT,
    "sinpi": PI,
    "sinpif": PI,
    "cospi": PI,
    "cospif": PI,
}
"""Function → the first glibc whose <math.h> declares it, with ``__THROW`` (its news; bits/mathcalls.h)."""

_NUMBERS = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.\d{1,4})?")


def machine_glibc() -> Version | None:
    """The glibc that this program runs on; None on a machine with another C library."""
    try:
        said = os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):
        return None
    name, _, version = (said or "").partition(" ")
    return version_of(version) if name == "glibc" else None


def version_of(text: str) -> Version | None:
    """Text such as "2.42" as (2, 42), a third number left out; None when ``text`` is no version."""
    found = _NUMBERS.fullmatch(text.strip())
    return (int(found[1]), int(found[2])) if found else None


def version_text(version: Version) -> str:
    """(2, 42) as "2.42"."""
    return f"{version[0]}.{version[1]}"
