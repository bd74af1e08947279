"""Folders that are a venv to the proof of a torch stack: an interpreter, and distributions as pip leaves them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.plays import printed_by

MODULE = Path(__file__).resolve().parents[1] / "src/provisioner/ansible/modules/provision_torch_proof.py"


@dataclass(frozen=True)
class Venv:
    """A venv of the interpreter that runs the tests, made without pip."""

    root: Path

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.root / "bin/python")

    @property
    def site(self) -> Path:
        """Its site-packages."""
        return self.root / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    def make(self, other: Path | None = None) -> Venv:
        """Lay it out; what ``other``, another site-packages, has is in it, too, by links."""
        home = Path(sys.base_prefix, "bin")
        (self.root / "bin").mkdir(parents=True)
        (self.root / "bin/python").symlink_to(Path(sys.executable).resolve())
        (self.root / "pyvenv.cfg").write_text(
            f"home = {home}\ninclude-system-site-packages = false\n", encoding="utf-8"
        )
        self.site.mkdir(parents=True)
        for path in other.iterdir() if other else ():
            (self.site / path.name).symlink_to(path)
        return self

    def add(
        self, name: str, version: str, files: Mapping[str, str | bytes] | None = None, requires: Iterable[str] = ()
    ) -> Venv:
        """Install a distribution of these files."""
        folder = f"{name.replace('-', '_')}-{version}.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        about = "\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires), ""])
        whole: dict[str, str | bytes] = {**(files or {}), f"{folder}/METADATA": about}
        record = "".join(f"{one},,\n" for one in (*whole, f"{folder}/RECORD"))
        for path, content in {**whole, f"{folder}/RECORD": record}.items():
            file = self.site / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        return self


def prove(venv: Venv, packages: Mapping[str, str], ours: Mapping[str, str] | None = None, **more: Any) -> Any:
    """Run the module as Ansible does, with ``ours`` for its environment; what it answers."""
    arguments = {"python": venv.python, "packages": packages, **more, "_ansible_check_mode": True}
    with mock.patch.dict(os.environ, ours or os.environ, clear=True):
        return json.loads(printed_by(str(MODULE), arguments))


def verdicts(answer: Any) -> list[tuple[str, str, str]]:
    """Step, package and verdict of all that was looked at."""
    return [(one["step"], one["package"], one["verdict"]) for one in answer["steps"]]
