"""The programs of role ``desktop`` as modules: they import each other from their own folder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "roles/desktop/programs"
SHOTS = ROOT / "tests/data/desktop"


def program(name: str) -> Any:
    """One of them."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return importlib.import_module(name)
