"""What ansible-lint has to look at again: roles, plays and scenarios whose inputs are not those that it found well."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.inputs.digests import Digests
from tests.inputs.graph import PLUGINS

CONFIGURATION = (".ansible-lint", ".ansible-lint-ignore", ".yamllint", "tests/requirements.txt")
RECORD = "ansible-lint.json"


def lintables(digests: Digests) -> dict[str, str]:
    """Each role, playbook and scenario with the digest of what decides about it.

    That is what stands in it, how ansible-lint is set, the modules of ours that it names, and which roles there are. Of
    a role that a playbook includes, ansible-lint says the same with and without that playbook.
    """
    tree, graph = digests.tree, digests.graph
    places = {place for folder in ("roles", "molecule") for place in tree.folders_in(folder)}
    places |= {file for file in tree.files if file.startswith("playbooks/") and file.endswith(".yml")}
    configuration = {file for file in CONFIGURATION if file in tree.files}
    found = {}
    for place in sorted(places):
        own = {place, *tree.below(place)} & tree.files
        named = {f"{PLUGINS}/modules/{word}.py" for file in own for word in graph.words(file)} & tree.files
        found[place] = tree.digest_of(own | named | configuration, *sorted(graph.roles))
    return found


def changed(folder: Path, now: Mapping[str, str]) -> list[str]:
    """Which of them are not as ansible-lint last found them well."""
    record = folder / RECORD
    before = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    return [place for place, digest in now.items() if before.get(place) != digest]


def remember(folder: Path, now: Mapping[str, str]) -> None:
    """All of them are well."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).write_text(json.dumps(dict(now)), encoding="utf-8")
