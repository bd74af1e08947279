"""ansible-lint looks at what changed since it found everything well, and at nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inputs.digests import Digests
from tests.inputs.lintables import changed, lintables, remember

TREE = {
    "roles/engine/tasks/main.yml": "- provision_ours: {}\n",
    "roles/other/tasks/main.yml": "[]\n",
    "molecule/engine/converge.yml": "- roles: [engine]\n",
    "playbooks/site.yml": "- roles: [engine, other]\n",
    "src/provisioner/ansible/modules/provision_ours.py": "",
    ".ansible-lint": "profile: production\n",
}
ALL = ["molecule/engine", "playbooks/site.yml", "roles/engine", "roles/other"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).write_text(text)
    return tmp_path / "checkout"


def test_all_of_it_is_looked_at_where_nothing_is_remembered(tree: Path, tmp_path: Path) -> None:
    assert changed(tmp_path / "cache", lintables(Digests(tree))) == ALL


@pytest.mark.parametrize(
    ("file", "looked_at"),
    [
        ("roles/engine/tasks/main.yml", ["roles/engine"]),
        ("playbooks/site.yml", ["playbooks/site.yml"]),
        ("molecule/engine/converge.yml", ["molecule/engine"]),
        ("src/provisioner/ansible/modules/provision_ours.py", ["roles/engine"]),
        ("roles/engine/vars/new.yml", ["roles/engine"]),
        ("roles/third/tasks/main.yml", [*ALL, "roles/third"]),
        (".ansible-lint", ALL),
    ],
)
def test_what_changed_is_looked_at(tree: Path, tmp_path: Path, file: str, looked_at: list[str]) -> None:
    remember(tmp_path / "cache", lintables(Digests(tree)))
    assert changed(tmp_path / "cache", lintables(Digests(tree))) == []
    (tree / file).parent.mkdir(parents=True, exist_ok=True)
    (tree / file).write_text("# changed\n")
    assert changed(tmp_path / "cache", lintables(Digests(tree))) == looked_at
