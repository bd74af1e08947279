"""``ha-manager status`` → ``HaState``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from provisioner.repair.facts import HaState

_SERVICE = re.compile(r"service (\S+) \(([^,)]+), ([^),]+)\)")
_NODE_IN_TROUBLE = re.compile(r"(?:lrm|node) \S+ \([^)]*\b(?:fence|gone|unknown)\b")
SETTLED = frozenset({"started", "stopped", "disabled", "ignored"})
"""The states in which HA does nothing with a service; all others are work that goes on, or an error."""


def read_ha(lines: Sequence[str]) -> HaState:
    """What HA does; it is not idle while any service is in a state that is not settled, or a node is fenced."""
    services_by_node = dict[str, list[str]]()
    is_idle = True
    for line in lines:
        if _NODE_IN_TROUBLE.match(line):
            is_idle = False
        match = _SERVICE.match(line)
        if match is None:
            continue
        service, node, state = match.groups()
        services_by_node.setdefault(node.strip(), []).append(service)
        if state.strip() not in SETTLED:
            is_idle = False
    services = {node: tuple(names) for node, names in services_by_node.items()}
    return HaState(is_idle, services, tuple(lines))
