"""Cards by compute capability, in CMake's words, and which of them a toolkit compiles for."""

from __future__ import annotations

import re

_NAME = re.compile(r"(\d{2,3})[af]?(?:-real|-virtual)?")
SETS = frozenset({"all", "all-major"})
"""Words for every card that a toolkit knows, and for the first of each generation."""
OLDEST = {12: 50, 13: 75}
"""Major version of CUDA → the oldest architecture that it compiles for: Maxwell, then Turing (its release notes)."""
SINCE = {89: (11, 8), 90: (11, 8), 100: (12, 8), 103: (12, 9), 110: (13, 0), 120: (12, 8), 121: (12, 9)}
"""Architecture → the first CUDA that compiles for it, where one of those that are supported here does not."""
EXAMPLES = '"75" (RTX 20xx, T4), "80" (A100), "86" (RTX 30xx), "89" (RTX 40xx), "90" (H100), "120" (RTX 50xx)'


def architecture_problem(name: str, version: str) -> str | None:
    """Why CUDA ``version`` ("13.2") cannot compile for the architecture ``name`` ("86", "90a-real"); None: it can."""
    if name in SETS:
        return None
    if name == "native":
        return "a builder has no card, so that nothing is native to it"
    found = _NAME.fullmatch(name)
    if found is None:
        return "this is no architecture of CUDA"
    number, toolkit = int(found[1]), tuple(int(one) for one in version.split("."))
    oldest = OLDEST.get(toolkit[0], 0)
    if number < oldest:
        return f"CUDA {version} compiles for {oldest} and newer"
    first = SINCE.get(number, (0, 0))
    return f"CUDA compiles for {number} since {first[0]}.{first[1]}" if toolkit < first else None
