"""The programs of role ``switch`` as modules: they find one another beside them, as in a container."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parents[3] / "roles/switch/programs"


def program(name: str) -> Any:
    """The program of that name."""
    sys.path.insert(0, str(PROGRAMS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(PROGRAMS))
