"""Programs that lie in a scenario's folder, or in a role's, as modules: they belong to no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock


def module_at(path: Path, *, beside: bool = False) -> ModuleType:
    """Return the program as a module that its dataclasses find; with ``beside`` it finds the programs of its folder."""
    spec = importlib.util.spec_from_file_location(f"{path.parents[1].name}_{path.stem}", path)
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    with mock.patch.object(sys, "path", [*([str(path.parent)] if beside else []), *sys.path]):
        spec.loader.exec_module(module)
    return module
