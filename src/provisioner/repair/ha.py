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
    services: dict[str, list[str]] = {}
    is_idle = not any(_NODE_IN_TROUBLE.match(line) for line in lines)
    for line in lines:
        if match := _SERVICE.match(line):
            services.setdefault(match[2].strip(), []).append(match[1])
            is_idle = is_idle and match[3].strip() in SETTLED
    return HaState(is_idle, {node: tuple(names) for node, names in services.items()}, tuple(lines))
