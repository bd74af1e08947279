"""Where CUDA's two math headers declare the functions that newer glibc declares, too, and with which specifier."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

from provisioner.cuda.glibc import SINCE
from provisioner.values.errors import PreflightError

DECLARATIONS, DEFINITIONS = "math_functions.h", "math_functions.hpp"
OURS = "_PROVISIONER_GLIBC_"
"""How the names of the macros begin that our edit puts in."""
NVIDIA = ("_NV_RSQRT_SPECIFIER", "__NV_IEC_60559_FUNCS_EXCEPTION_SPECIFIER")
"""The guarded specifiers that NVIDIA's own headers bear: rsqrt since 13.2, sinpi and cospi since 13.0."""
ANCHOR = re.compile(r"^#if defined\(__cplusplus\) && defined\(__CUDACC__\)[ \t]*\r?$", re.MULTILINE)
"""The line of math_functions.h before which nothing is declared yet."""

Kind = Literal["extern", "prototype", "definition"]
Origin = Literal["none", "ours", "nvidia", "foreign"]

_TYPE = r"(?:double|float)"
_FUNCTION = rf"{_TYPE}\s+(?P<function>{'|'.join(SINCE)})"
_EXTERN = rf"^extern\s+__DEVICE_FUNCTIONS_DECL__\s+__device_builtin__\s+{_FUNCTION}\({_TYPE} x\)(?P<tail>[^;\n]*);"
_HOST = rf"^__func__\({_FUNCTION}\((?:const )?{_TYPE} a\)(?P<tail>[^;\n]*)"
_PATTERNS: tuple[tuple[str, Kind, re.Pattern[str]], ...] = (
    (DECLARATIONS, "extern", re.compile(_EXTERN, re.MULTILINE)),  # what nvcc's own passes see
    (DECLARATIONS, "prototype", re.compile(f"{_HOST};", re.MULTILINE)),  # and what a compiler for the host alone sees
    (DEFINITIONS, "definition", re.compile(f"{_HOST}$", re.MULTILINE)),
)


@dataclass(frozen=True, slots=True)
class Headers:
    """The text of crt/math_functions.h and of crt/math_functions.hpp."""

    declarations: str
    definitions: str


@dataclass(frozen=True, slots=True)
class Place:
    """One declaration: where it is, and the specifier that follows its parameters ("" for none) at ``offset``."""

    file: str
    line: int
    kind: Kind
    function: str
    specifier: str
    offset: int

    @property
    def origin(self) -> Origin:
        """Who gave it its specifier."""
        if not self.specifier:
            return "none"
        if self.specifier in NVIDIA:
            return "nvidia"
        return "ours" if self.specifier.startswith(OURS) else "foreign"


def places_of(headers: Headers) -> tuple[Place, ...]:
    """Each function's three places; ``PreflightError`` when the headers do not look as NVIDIA's do."""
    places: list[Place] = []
    for file, kind, pattern in _PATTERNS:
        text = headers.declarations if file == DECLARATIONS else headers.definitions
        places += _matches(file, kind, pattern, text)
    problems = _layout_problems(places, len(ANCHOR.findall(headers.declarations)))
    if problems:
        raise PreflightError(
            f"Unable to understand CUDA's {DECLARATIONS} and {DEFINITIONS}: no layout that is known; nothing was done",
            details="\n".join(problems),
            resolution="Reinstall them if they were edited by hand; if they were not, report the toolkit's version.",
        )
    return tuple(places)


def _matches(file: str, kind: Kind, pattern: re.Pattern[str], text: str) -> Iterator[Place]:
    for match in pattern.finditer(text):
        tail = match["tail"]
        # The macro __func__( takes the whole declaration as its argument, so one parenthesis closes it.
        words = tail if kind == "extern" else tail.replace(")", "", 1)
        line = text.count("\n", 0, match.start()) + 1
        yield Place(file, line, kind, match["function"], words.strip(), match.start("tail"))


def _layout_problems(places: Iterable[Place], anchors: int) -> list[str]:
    counted = Counter((place.file, place.kind, place.function) for place in places)
    problems = []
    for (file, kind, _), function in product(_PATTERNS, SINCE):
        count = counted[file, kind, function]
        if count != 1:
            problems.append(f"{file}: {kind} of {function} found {count} times, expected once")
    if anchors != 1:
        problems.append(f"{DECLARATIONS}: the line that begins what nvcc sees found {anchors} times, expected once")
    return problems
