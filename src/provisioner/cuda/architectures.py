"""Cards by compute capability, in CMake's words, and which of them a toolkit compiles for."""

from __future__ import annotations

import re

_NAME = re.compile(r"(\d{2,3})[af]?(?:-real|-virtual)?")
SETS = frozenset({"all", "all-major"})
"""Words for every card that a toolkit knows, and for the first of each generation."""
OLDEST = {"13": 75}
"""Major version of CUDA → the oldest architecture that it compiles for: Turing (its release notes)."""
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
    oldest = OLDEST.get(version.partition(".")[0], 0)
    return f"CUDA {version} compiles for {oldest} and newer" if int(found[1]) < oldest else None
