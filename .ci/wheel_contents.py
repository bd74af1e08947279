"""What a wheel holds beside the package: roles, playbooks, inventory templates, and the catalog in one JSON file."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED = ("roles", "playbooks", "inventory")
LEFT_OUT = {"__pycache__", ".ansible"}


class WheelContents(BuildHookInterface):  # type: ignore[type-arg]  # its parameter is hatchling's own business
    """Adds ``provisioner/share/`` and ``provisioner/data/catalog.json``; an editable wheel reads the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fill ``build_data["force_include"]``: path in the checkout → path in the wheel."""
        if version == "editable":
            return
        root = Path(self.root)
        files: dict[str, str] = build_data["force_include"]
        for path in sorted(path for folder in SHARED for path in (root / folder).rglob("*") if path.is_file()):
            inside = path.relative_to(root).as_posix()
            # What git ignores is somebody's own: secrets, work folders, caches.
            if not LEFT_OUT.intersection(path.parts) and not self.build_config.path_is_excluded(inside):
                files[str(path)] = f"provisioner/share/{inside}"
        files[str(self._catalog(root))] = "provisioner/data/catalog.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  # hatchling's
        """Remove the compiled catalog, which is in the wheel now."""
        if version != "editable":
            self._folder.cleanup()

    def _catalog(self, root: Path) -> Path:
        sys.path.insert(0, str(root / "src"))
        from provisioner.catalog import catalog_from, compile_catalog

        self._folder = tempfile.TemporaryDirectory(prefix="provisioner-wheel-")
        target = Path(self._folder.name) / "catalog.json"
        compiled = compile_catalog()
        catalog_from(compiled)  # a page that is wrong makes no wheel: commands believe what is compiled
        target.write_text(json.dumps(compiled), encoding="utf-8")
        return target
