"""The copy of a firmware chip: where it is, its sum, and its regions; text, and the same for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from provisioner.repair.flash import Region
from provisioner.report.style import safe_line
from provisioner.values.quantities import size_text

NO_REGIONS = "No Intel flash descriptor is in it, so its regions are not known."


def copy_text(host: str, file: Path, size: int, sha256: str, regions: Sequence[Region]) -> str:
    """What was kept, and what is in it."""
    lines = [
        f"Two reads of the firmware chip of {safe_line(host)} are equal.",
        f"image   {safe_line(file)} ({size_text(size)})",
        f"sha256  {sha256}",
    ]
    lines += [f"region  {one.start:#010x}-{one.end - 1:#010x}  {one.name}" for one in regions] or [NO_REGIONS]
    return "\n".join([*lines, "Keep it like a password: serial numbers, addresses and keys are in it."])
