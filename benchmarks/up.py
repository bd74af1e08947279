"""The quickstart: from nothing with warm caches, and again when nothing has changed (wall and CPU seconds)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.cli import SECRETS
from benchmarks.measuring import BIN, ROOT, Cost, Row, cost

RUNS = 5
OTHER_NAMES = {
    "name: quickstart": "name: benchmark",
    "\n  quickstart-llama:": "\n  benchmark-llama:",
    "\n  quickstart-gateway:": "\n  benchmark-gateway:",
}


def rows() -> list[Row]:
    """``up`` of a lab that is not there, ``up`` of one that is as it should be, ``status`` and ``plan``."""
    taken: dict[str, list[Cost]] = {"up, from nothing": [], "up, nothing to do": [], "plan": [], "status": []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        text = (ROOT / "examples/quickstart.yml").read_text(encoding="utf-8")
        for name, other in OTHER_NAMES.items():  # the quickstart itself may be up
            text = text.replace(name, other)
        (folder / "homelab.yml").write_text(text, encoding="utf-8")
        for _ in range(RUNS):
            taken["up, from nothing"].append(_provision(folder, "up", "--yes"))
            taken["up, nothing to do"].append(_provision(folder, "up", "--yes"))
            taken["plan"].append(_provision(folder, "plan"))
            taken["status"].append(_provision(folder, "status"))
            _provision(folder, "destroy", "--yes", "--lab", "benchmark")
    wall = [Row(what, [one.wall_s for one in costs], "s") for what, costs in taken.items()]
    return wall + [Row(f"{what} (controller)", [one.cpu_s for one in costs], "CPU s") for what, costs in taken.items()]


def _provision(folder: Path, *arguments: str) -> Cost:
    return cost([str(BIN / "provision"), *arguments], SECRETS, folder)
