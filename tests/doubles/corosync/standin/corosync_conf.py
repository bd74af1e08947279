"""``corosync.conf`` as Proxmox VE reads and writes it: sections, keys sorted, members by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Section = dict[str, Any]


def parse(text: str) -> Section:
    """Sections as dicts; ``node`` and ``interface`` are dicts by name and by link number."""
    root: Section = {}
    stack = [root]
    for line in (line.strip() for line in text.splitlines()):
        if line.endswith("{"):
            name = line[:-1].strip()
            child: Section = {}
            if name in {"node", "interface"}:
                stack[-1].setdefault(name, []).append(child)
            else:
                stack[-1][name] = child
            stack.append(child)
        elif line == "}":
            stack.pop()
        elif line and not line.startswith("#"):
            key, _, value = line.partition(":")
            stack[-1][key.strip()] = value.strip()
    nodelist, totem = root.setdefault("nodelist", {}), root.setdefault("totem", {})
    nodelist["node"] = {one["name"]: one for one in nodelist.get("node", [])}
    totem["interface"] = {one["linknumber"]: one for one in totem.get("interface", [])}
    return root


def dump(conf: Mapping[str, Any]) -> str:
    """The file's text; ``parse`` of it is ``conf``."""
    return "".join(_lines(conf, ""))


def version(text: str) -> int:
    """Its ``config_version``; 0 when there is none."""
    found = re.search(r"^\s*config_version:\s*(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def members(conf: Section) -> dict[str, dict[str, str]]:
    """The nodes by name."""
    found: dict[str, dict[str, str]] = conf["nodelist"]["node"]
    return found


def _lines(section: Mapping[str, Any], prefix: str) -> list[str]:
    lines: list[str] = []
    for key in sorted(section):
        value = section[key]
        if not isinstance(value, Mapping):
            lines.append(f"{prefix}{key}: {value}\n")
            continue
        # a list of sections has no braces of its own
        for one in [value[name] for name in sorted(value)] if key in {"node", "interface"} else [value]:
            lines += [f"{prefix}{key} {{\n", *_lines(one, f"{prefix}  "), f"{prefix}}}\n"]
        lines += [] if prefix else ["\n"]
    return lines
