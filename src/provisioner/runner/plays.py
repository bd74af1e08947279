"""The plays of a playbook that have something to do: Ansible reads the roles of all of them before it begins."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import yaml

from provisioner.inventory import NEW
from provisioner.lab.turns import one_by_one
from provisioner.values.plain_data import yaml_value

PLAY_FOR_EACH_SERVICE = frozenset({"site.yml", "verify.yml"})
"""Playbooks that say nothing but which group runs which role, so that it does not matter where they lie."""

BEFORE_ENGINES = "service_gpu_userspace"
"""The play without which an engine finds no card."""
MAKE = "Make what is new"
GO_ON = "Go on where all that is new was made"
"""Fails in each container where something was not, so that no gateway is changed or proved without its engine."""
FIRST = ("containers", BEFORE_ENGINES)
"""The plays that come before those of services that may be made at once."""
PROVES_LATER = "provision_proves_later"
"""The variable by which a role leaves its proof to a later play."""


def with_hosts(playbook: str, inventory: str, proved_later: Collection[str] = ()) -> str:
    """The playbook's plays whose group is in the inventory, in their order; all of them where none is.

    Containers that take turns are gone through one after the other. Of the others, those that are new are made all at
    once, and then proved in the playbook's order; ``proved_later`` are the roles that can be made so.

    Both are YAML; in the inventory the groups stand below ``all.children``, as ``provisioner.inventory`` renders it.
    """
    groups = _groups(inventory)
    plays = yaml_value(playbook)
    kept = one_by_one([play for play in plays if play["hosts"] in groups] or plays, groups)
    other = [play for play in kept if play["hosts"] not in FIRST and not set(play.get("roles", ())) <= {*proved_later}]
    new = groups.get(NEW, set()).difference(*(groups[play["hosts"]] for play in other if play["hosts"] in groups))
    if len(new) > 1:
        kept = list(side_by_side(kept, groups, new))
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)


def side_by_side(
    plays: Sequence[dict[str, Any]], groups: Mapping[str, set[str]], new: set[str]
) -> Iterator[dict[str, Any]]:
    """Return the plays, changed so that each new container goes its own way until all of them are to be proved.

    Whoever writes a handler keeps in mind that of several roles that include a third one the last one's variables are
    those of its handlers, in all containers of a play.
    """
    services = [play for play in plays if play["hosts"] not in FIRST]
    yield from (play for play in plays if play not in services)
    hosts = ":".join(sorted(new))
    own_way = []
    for play in services:
        task = _include(play["name"], play["roles"][0], "main")
        own_way.append(task | {"when": f"inventory_hostname in groups.{play['hosts']}"})
    make = {"name": MAKE, "hosts": hosts, "gather_facts": False, "strategy": "free", "vars": {PROVES_LATER: True}}
    yield make | {"tasks": own_way}
    missing = f"groups.{NEW} | difference(ansible_play_hosts)"
    check = {"that": f"{missing} | length == 0", "fail_msg": f"{{{{ {missing} | join(', ') }}}} failed", "quiet": True}
    go_on = {"name": GO_ON, "ansible.builtin.assert": check}
    yield {"name": GO_ON, "hosts": "containers", "gather_facts": False, "tasks": [go_on]}
    for play in services:
        made = sorted(groups[play["hosts"]] & new)
        if groups[play["hosts"]] - new:
            yield play | {"hosts": ":!".join([play["hosts"], *made])}
        if made:
            proof = _include("Prove that it works", play["roles"][0], "verify")
            name = play["name"].replace("Configure", "Verify")
            yield {"name": name, "hosts": ":".join(made), "gather_facts": False, "tasks": [proof]}


def _include(name: str, role: str, tasks: str) -> dict[str, Any]:
    return {"name": name, "ansible.builtin.include_role": {"name": role, "tasks_from": tasks}}


def _groups(inventory: str) -> dict[str, set[str]]:
    """The hosts of each group."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    node = yaml.compose(inventory, loader)  # nodes alone: its values have tags of Ansible's
    for name in ("all", "children"):
        node = _entries(node).get(name)
    return {name: set(_entries(_entries(group).get("hosts"))) for name, group in _entries(node).items()}


def _entries(node: yaml.Node | None) -> dict[str, yaml.Node]:
    return {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}
