"""Shell scripts that tests run in containers: files, so that shellcheck looks at them."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "data/scripts"


def script(name: str) -> str:
    """Return the text of ``tests/data/scripts/<name>.sh``."""
    return (FOLDER / f"{name}.sh").read_text(encoding="utf-8")
