"""``python -m tests.doubles.proxmox.reduce DUMP > api-schema.json``: of PVE's API only what the double checks.

DUMP is what ``PVE::RESTHandler::api_dump`` gives on a live server, as ``{"paths": {path: {METHOD: ...}}}``. Names,
types, limits, patterns, defaults, permissions and where a call is proxied to are kept. All prose (descriptions, type
texts) is left out: it is Proxmox's own text under its own licence, and no check needs it. One method a line, so that a
new dump is a small diff.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LIMITS = ("type", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "default", "default_key")
KEPT = (*LIMITS, "optional", "requires")
METHOD = ("proxyto", "protected", "allowtoken")


def option(dump: dict[str, Any]) -> dict[str, Any]:
    """One parameter without prose; the parts of a property string likewise."""
    kept = {key: dump[key] for key in KEPT if dump.get(key) is not None}
    if isinstance(dump.get("default"), str) and dump.get("type") != "string":
        kept.pop("default", None)  # prose such as "1, 2 or 100"
    form = dump.get("format")
    if isinstance(form, dict):
        kept["format"] = {key: option(part) for key, part in sorted(form.items())}
    elif form:
        kept["format"] = form
    return kept


def answer(dump: dict[str, Any] | None) -> dict[str, Any]:
    """What a method gives: the kind, and the names of an object's members."""
    dump = dump or {}
    kept: dict[str, Any] = {"type": dump.get("type", "any")}
    if dump.get("properties"):
        kept["properties"] = sorted(dump["properties"])
    if dump.get("items"):
        kept["items"] = answer(dump["items"])
    return kept


def method(dump: dict[str, Any]) -> dict[str, Any]:
    """One method: its parameters, who may call it, and where it runs."""
    kept = {key: dump[key] for key in METHOD if dump.get(key)}
    permissions = dump.get("permissions")
    if permissions:
        kept["permissions"] = {key: permissions[key] for key in ("user", "check") if key in permissions}
    properties = (dump.get("parameters") or {}).get("properties") or {}
    kept["parameters"] = {name: option(one) for name, one in sorted(properties.items())}
    kept["returns"] = answer(dump.get("returns"))
    return kept


def main(dump: Path) -> str:
    """The reduced schema as JSON, one method a line."""
    paths = json.loads(dump.read_text(encoding="utf-8"))["paths"]
    lines = [
        f'"{verb} {path}": {json.dumps(method(paths[path][verb]), sort_keys=True, separators=(",", ":"))}'
        for path in sorted(paths)
        for verb in sorted(paths[path])
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    sys.stdout.write(main(Path(sys.argv[1])))
