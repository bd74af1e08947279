"""A kind of host is named by its driver, by what the file says, and by the few modules that are listed here."""

from __future__ import annotations

import re
from pathlib import Path

from provisioner.hosts import kinds
from provisioner.values import paths

NAME = re.compile("|".join(kind for kind in kinds() if kind != "fake"), re.IGNORECASE)
OWN = ("hosts", "labfile", "cluster", "ansible")
"""The drivers and their plugins, the words of the file, and repairs of what only Proxmox VE has."""
OTHERS = {
    "cli/app.py": "the list of verbs says what `cluster` is about",
    "cli/cluster.py": "the verbs of clusters of Proxmox VE",
    "cli/host.py": "`host prepare` makes a host of one kind; its options are that kind's own",
    "cli/runbook.py": "the same repairs as those of `cluster`",
    "values/state.py": "the source of a limit that names keep to on each kind of host",
}
"""Modules that name a kind of host, and why."""


def naming(package: Path) -> set[str]:
    """The modules that name a kind of host, beside those whose own it is."""
    found = set[str]()
    for file in package.rglob("*.py"):
        path = file.relative_to(package)
        if path.parts[0] not in OWN and NAME.search(file.read_text(encoding="utf-8")):
            found.add(path.as_posix())
    return found


def test_a_kind_of_host_is_named_by_its_driver_and_where_there_is_a_reason() -> None:
    assert naming(paths.PACKAGE) == set(OTHERS), "say it in the driver (KIND) or on its page (labfile/hosts.py)"


def test_a_module_that_names_a_kind_is_found(tmp_path: Path) -> None:
    texts = {"hosts/new.py": "Incus", "lab/new.py": "if host.kind == 'incus':", "lab/old.py": "if host.is_here:"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert naming(tmp_path) == {"lab/new.py"}
