"""Folders of roles for one test: the project's own as links, and what the test writes beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.values import paths


def linked_roles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new folder with a link to every role of ours; from here on the services are those that stand in it."""
    roles = folder / "roles"
    roles.mkdir()
    for role in sorted(paths.roles().iterdir()):
        (roles / role.name).symlink_to(role)
    monkeypatch.setattr(paths, "roles", lambda: roles)
    return roles
