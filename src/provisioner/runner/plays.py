"""The plays of a playbook that have something to do: Ansible reads the roles of all of them before it begins."""

from __future__ import annotations

import yaml

from provisioner.lab.turns import one_by_one
from provisioner.values.plain_data import yaml_value

PLAY_FOR_EACH_SERVICE = frozenset({"site.yml", "verify.yml"})
"""Playbooks that say nothing but which group runs which role, so that it does not matter where they lie."""


def with_hosts(playbook: str, inventory: str) -> str:
    """The playbook's plays whose group is in the inventory, in their order; all of them where none is.

    Containers that take turns are gone through one after the other.

    Both are YAML; in the inventory the groups stand below ``all.children``, as ``provisioner.inventory`` renders it.
    """
    groups = _groups(inventory)
    plays = yaml_value(playbook)
    kept = [play for play in plays if play["hosts"] in groups]
    return yaml.safe_dump(one_by_one(kept or plays, groups), sort_keys=False, allow_unicode=True)


def _groups(inventory: str) -> dict[str, set[str]]:
    """The hosts of each group."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    node = yaml.compose(inventory, loader)  # nodes alone: its values have tags of Ansible's
    for name in ("all", "children"):
        node = _entries(node).get(name)
    return {name: set(_entries(_entries(group).get("hosts"))) for name, group in _entries(node).items()}


def _entries(node: yaml.Node | None) -> dict[str, yaml.Node]:
    return {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}
