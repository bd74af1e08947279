"""A plan in OpenTofu's manner: signs, attributes, and the line that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from provisioner.report.style import PLAIN, Style, count_text, limit_text, safe_line
from provisioner.values.plan import AS_MADE, Action, Change, Plan, setting_name
from provisioner.values.state import Artifact, Device, Instance, Service

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
OUTCOMES: dict[Action, str] = {
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
"""The actions whose attributes are not shown, and the verb by which the last line counts them."""
_SIGN_WIDTH = 3
_DIGEST_SHOWN = 16
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
    """One change: what happens to what and why, then its attributes, then what requests meet meanwhile."""
    sign, colour = _SIGNS[change.action]
    thing = thing_of(change)
    target = safe_line(change.target)
    outcome = style.paint(f"  # {thing} {target} {OUTCOMES[change.action]}", "bold")
    indentation = " " * (_SIGN_WIDTH - len(sign))
    lines = [
        f"{outcome} ({safe_line(change.reason)})",
        f"{indentation}{style.paint(sign, colour)} {thing} {target}",
    ]
    if change.action not in _COUNTED:
        lines += _attribute_lines(change, style)
    if change.meanwhile:
        lines.append(f"      {safe_line(change.meanwhile)}")
    return "\n".join(lines)


def thing_of(change: Change) -> str:
    """What kind of thing is changed: "container", "service" or "artifact"."""
    return _NOUNS[type(change.before or change.after)]


def count_line(plan: Plan) -> str:
    """The line "Plan: 2 to create, 0 to change, 0 to destroy, 2 artifacts to build."."""
    replaced = len(plan.of("replace"))
    parts = [
        f"{len(plan.of('create')) + replaced} to create",
        f"{len(plan.of('update'))} to change",
        f"{len(plan.of('delete')) + replaced} to destroy",
    ]
    for action, verb in _COUNTED.items():
        changes = plan.of(action)
        if changes:
            parts.append(f"{len(changes)} to {verb}")
    builds = plan.of("build")
    if builds:
        parts.append(f"{count_text(len(builds), 'artifact')} to build")
    return f"Plan: {', '.join(parts)}."


def attribute_text(name: str, value: Any) -> str:
    """One attribute's value in the words of the file."""
    write = _WRITERS.get(name, _setting_text)
    return safe_line(write(value))


def _cpu_text(value: Any) -> str:
    return "no limit" if value is None else str(value)


def _digest_text(value: Any) -> str:
    return str(value)[:_DIGEST_SHOWN]


def _devices_text(devices: Iterable[Device] | None) -> str:
    return "; ".join(map(_device_text, devices or ())) or "none"


def _attribute_lines(change: Change, style: Style) -> list[str]:
    pairs = change.attributes()
    if change.action == "create" and isinstance(change.after, Instance):
        pairs = {name: (None, value) for name, value in _created(change.after).items()}
    width = max(map(len, pairs), default=0)
    return [_attribute_line(change, name, width, pair, style) for name, pair in pairs.items()]


def _created(instance: Instance) -> dict[str, Any]:
    """What is shown of a container that will be created."""
    attributes = {name: getattr(instance, name) for name in _SHOWN}
    if FEATURES in instance.settings:
        del attributes["nesting"]
    for name, value in instance.settings.items():
        attributes[setting_name(name)] = value
    attributes["services"] = _services_text(instance)
    return attributes


FEATURES = "features"
"""What a container of Proxmox can do, nesting among it: there every one has that, whatever its services ask for."""
_SHOWN = ("host", "image", "cpu", "memory", "disk", "nesting", "devices")


def _attribute_line(change: Change, name: str, width: int, pair: tuple[Any, Any], style: Style) -> str:
    before, after = attribute_text(name, pair[0]), attribute_text(name, pair[1])
    if change.action in ("create", "build"):
        return f"      {style.paint('+', 'green')} {name:<{width}} = {after}"
    if change.action == "delete":
        return f"      {style.paint('-', 'red')} {name:<{width}} = {before}"
    forces_replacement = change.action == "replace" and name in AS_MADE
    note = style.paint(" # forces replacement", "red") if forces_replacement else ""
    return f"      {style.paint('~', 'yellow')} {name:<{width}} = {before} -> {after}{note}"


def _services_text(instance: Instance) -> str:
    roles = []
    for service in instance.services:
        port = f" (port {service.port})" if service.port else ""
        roles.append(f"{service.role}{port}")
    return safe_line(", ".join(roles)) or "none"


def _setting_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(_pairs(value)) or "none"
    if isinstance(value, list | tuple):
        return "; ".join(map(_setting_text, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return safe_line(value)


def _pairs(settings: Mapping[str, Any]) -> list[str]:
    return [f"{safe_line(name)}={_setting_text(value)}" for name, value in settings.items()]


def _device_text(device: Device) -> str:
    properties = device.properties
    if device.kind == "volume":
        mode = "read-only" if properties.get("readonly") == "true" else "read-write"
        return safe_line(f"{properties.get('volume')} at {properties.get('path')} ({mode})")
    if device.kind == "publish":
        protocol = f" ({properties['protocol']})" if "protocol" in properties else ""
        protocol += ", told whose connection it is" if "proxy_protocol" in properties else ""
        return safe_line(f"{properties.get('listen')} -> {properties.get('connect')}{protocol}")
    return _node_text(device)


def _node_text(device: Device) -> str:
    """A card or a device file, and who may use it."""
    properties = device.properties
    subject = f"card at {properties['pci']}" if device.kind == "gpu" else properties.get("path")
    access = f"mode {properties.get('mode')}"
    if "group" in properties:
        access += f", group {properties['group']}"
    if "runtime" in properties:
        access += ", with the host's driver libraries"
    return safe_line(f"{subject} ({access})")


_WRITERS: Mapping[str, Callable[[Any], str]] = {
    "memory": limit_text,
    "disk": limit_text,
    "swap": limit_text,
    "cpu": _cpu_text,
    "devices": _devices_text,
    "digest": _digest_text,
}
"""How the values of attributes are written that are no settings."""


def _orphans_text(orphans: tuple[Instance, ...], style: Style) -> str:
    head = style.paint("Orphans", "bold") + " (of this lab, not in the file; kept):"
    places = [f"{safe_line(instance.name)} on host {safe_line(instance.host)}" for instance in orphans]
    return _doubtful_text(head, places, style)


def _leftovers_text(leftovers: tuple[str, ...], style: Style) -> str:
    head = style.paint("Leftovers", "bold") + " (no longer in the file; they run until their container is replaced):"
    return _doubtful_text(head, map(safe_line, leftovers), style)


def _doubtful_text(head: str, names: Iterable[str], style: Style) -> str:
    """A heading, and below it what no change touches, each behind a question mark."""
    mark = style.paint("?", "yellow")
    return "\n".join([head, *(f"  {mark} {name}" for name in names)])
