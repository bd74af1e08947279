"""A plan in OpenTofu's manner: signs, attributes, and the line that counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.plan import AS_MADE, Action, Change, Plan, setting_name
from provisioner.report.style import PLAIN, Style, count_text, limit_text, safe_line
from provisioner.state import Artifact, Device, Instance, Service

_SIGNS: dict[Action, tuple[str, str]] = {
    "create": ("+", "green"),
    "build": ("+", "green"),
    "update": ("~", "yellow"),
    "replace": ("-/+", "red"),
    "delete": ("-", "red"),
    "start": (">", "green"),
    "stop": (".", "yellow"),
    "configure": ("~", "yellow"),
    "rollback": ("<", "yellow"),
    "adopt": ("&", "yellow"),
}
_OUTCOMES: dict[Action, str] = {
    "create": "will be created",
    "build": "will be built",
    "update": "will be updated in place",
    "replace": "must be replaced: what is in it is lost",
    "delete": "will be destroyed: what is in it is lost",
    "start": "will be started",
    "stop": "will be stopped, its data is kept",
    "configure": "will be configured and proved again",
    "rollback": "will be rolled back",
    "adopt": "will be adopted: from then on it is this lab's",
}
_COUNTED: dict[Action, str] = {
    "start": "start",
    "stop": "stop",
    "configure": "configure",
    "rollback": "roll back",
    "adopt": "adopt",
}
_NOUNS: dict[type, str] = {Artifact: "artifact", Instance: "container", Service: "service"}
NO_CHANGES = "No changes: the containers, and what was put into them, are as the file says."


def plan_text(plan: Plan, style: Style = PLAIN, *, nothing: str = NO_CHANGES) -> str:
    """The whole plan: every change with its attributes, the orphans, and the line that counts, or ``nothing``."""
    parts = [change_text(change, style) for change in plan.changes]
    if plan.orphans:
        parts.append(_orphans_text(plan.orphans, style))
    if plan.leftovers:
        parts.append(_leftovers_text(plan.leftovers, style))
    parts.append(style.paint(nothing if plan.is_empty else count_line(plan), "bold"))
    return "\n\n".join(parts)


def change_text(change: Change, style: Style = PLAIN) -> str:
    """One change: what happens to what and why, then its attributes."""
    sign, colour = _SIGNS[change.action]
    thing = _NOUNS[type(change.before or change.after)]
    target = safe_line(change.target)
    lines = [
        style.paint(f"  # {thing} {target} {_OUTCOMES[change.action]}", "bold") + f" ({safe_line(change.reason)})",
        f"{style.paint(sign, colour):>{len(style.paint(sign, colour)) + 3 - len(sign)}} {thing} {target}",
    ]
    if change.action in ("start", "stop", "configure", "rollback", "adopt"):
        return lines[0] + "\n" + lines[1]
    return "\n".join([*lines, *_attribute_lines(change, style)])


def count_line(plan: Plan) -> str:
    """The line "Plan: 2 to create, 0 to change, 0 to destroy, 2 artifacts to build."."""
    replaced = len(plan.of("replace"))
    parts = [
        f"{len(plan.of('create')) + replaced} to create",
        f"{len(plan.of('update'))} to change",
        f"{len(plan.of('delete')) + replaced} to destroy",
    ]
    parts += [f"{len(plan.of(action))} to {_COUNTED[action]}" for action in _COUNTED if plan.of(action)]
    if plan.of("build"):
        parts.append(f"{count_text(len(plan.of('build')), 'artifact')} to build")
    return f"Plan: {', '.join(parts)}."


def attribute_text(name: str, value: Any) -> str:
    """One attribute's value in the words of the file."""
    if name in ("memory", "disk", "swap"):
        return limit_text(value)
    if name == "cpu":
        return "no limit" if value is None else str(value)
    if name == "devices":
        return "; ".join(_device_text(device) for device in value or ()) or "none"
    if name == "digest":
        return str(value)[:16]
    return _setting_text(value)


def _attribute_lines(change: Change, style: Style) -> list[str]:
    pairs = change.attributes()
    if change.action == "create" and isinstance(change.after, Instance):
        shown = [name for name in _SHOWN if name != "nesting" or FEATURES not in change.after.settings]
        pairs = {name: (None, getattr(change.after, name)) for name in shown}
        pairs |= {setting_name(name): (None, value) for name, value in change.after.settings.items()}
        pairs["services"] = (None, _services_text(change.after))
    width = max((len(name) for name in pairs), default=0)
    return [_attribute_line(change, name, width, pair, style) for name, pair in pairs.items()]


FEATURES = "features"
"""What a container of Proxmox can do, nesting among it: there every one has that, whatever its services ask for."""
_SHOWN = ("host", "image", "cpu", "memory", "disk", "nesting", "devices")


def _attribute_line(change: Change, name: str, width: int, pair: tuple[Any, Any], style: Style) -> str:
    before, after = (attribute_text(name, value) for value in pair)
    if change.action in ("create", "build"):
        return f"      {style.paint('+', 'green')} {name:<{width}} = {after}"
    if change.action == "delete":
        return f"      {style.paint('-', 'red')} {name:<{width}} = {before}"
    forces = change.action == "replace" and name in AS_MADE
    note = style.paint(" # forces replacement", "red") if forces else ""
    return f"      {style.paint('~', 'yellow')} {name:<{width}} = {before} -> {after}{note}"


def _services_text(instance: Instance) -> str:
    named = (f"{one.role} (port {one.port})" if one.port else one.role for one in instance.services)
    return safe_line(", ".join(named)) or "none"


def _setting_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{safe_line(name)}={_setting_text(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "; ".join(_setting_text(one) for one in value) or "none"
    return str(value).lower() if isinstance(value, bool) else safe_line(value)


def _device_text(device: Device) -> str:
    properties = device.properties
    if device.kind == "volume":
        mode = "read-only" if properties.get("readonly") == "true" else "read-write"
        return safe_line(f"{properties.get('volume')} at {properties.get('path')} ({mode})")
    if device.kind == "publish":
        return safe_line(f"{properties.get('listen')} -> {properties.get('connect')}")
    owner = f", group {properties['group']}" if "group" in properties else ""
    lent = ", with the host's driver libraries" if "runtime" in properties else ""
    where = f"card at {properties['pci']}" if device.kind == "gpu" else properties.get("path")
    return safe_line(f"{where} (mode {properties.get('mode')}{owner}{lent})")


def _orphans_text(orphans: tuple[Instance, ...], style: Style) -> str:
    lines = [f"  {style.paint('?', 'yellow')} {safe_line(one.name)} on host {safe_line(one.host)}" for one in orphans]
    head = style.paint("Orphans", "bold") + " (of this lab, not in the file; kept):"
    return "\n".join([head, *lines])


def _leftovers_text(leftovers: tuple[str, ...], style: Style) -> str:
    lines = [f"  {style.paint('?', 'yellow')} {safe_line(address)}" for address in leftovers]
    head = style.paint("Leftovers", "bold") + " (no longer in the file; they run until their container is replaced):"
    return "\n".join([head, *lines])
