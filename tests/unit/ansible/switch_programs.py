"""The programs of roles as modules: they find one another beside them, as in a container."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

ROLES = Path(__file__).resolve().parents[3] / "roles"


def program(name: str, role: str = "switch") -> Any:
    """The program of that name."""
    folder = str(ROLES / role / "programs")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
