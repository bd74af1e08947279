"""Plans, states and the lab's file as text, for people, for comments on merge requests, and for YAML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from provisioner.lab.resolved import ResolvedContainer, ResolvedLab
from provisioner.report.messages import plain_value
from provisioner.report.style import PLAIN, Style, count_text, limit_text, safe_line, table
from provisioner.services.base import HOLD_OPTION, LAN, ResolvedService
from provisioner.values.address import Address
from provisioner.values.facts import ASLEEP, BUSY
from provisioner.values.plain_data import Foreign
from provisioner.values.plan import AS_MADE, Action, Change, Plan, setting_name
from provisioner.values.quantities import size_text
from provisioner.values.state import Artifact, ContainerStatus, Device, Fleet, Instance, Screen, Service, ServiceStatus

GIB = 2**30

# A plan in OpenTofu's manner: signs, attributes, and the line that counts.

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
FEATURES = "features"
"""The setting of hosts that know nesting as one feature among others, which each container has there."""
_SHOWN = ("host", "image", "cpu", "memory", "disk", "nesting", "devices")
_NOUNS: dict[type, str] = {Artifact: "artifact", Instance: "container", Service: "service"}
NO_CHANGES = "No changes: the containers, and what was put into them, are as the file says."


def plan_text(plan: Plan, style: Style = PLAIN, *, nothing: str = NO_CHANGES) -> str:
    """The whole plan: every change with its attributes, the orphans, and the line that counts, or ``nothing``."""
    parts = [change_text(change, style) for change in plan.changes]
    if plan.orphans:
        parts.append(_orphans_text(plan.orphans, style))
    if plan.leftovers:
        parts.append(_leftovers_text(plan.leftovers, style))
    last = style.paint(nothing if plan.is_empty else count_line(plan), "bold")
    parts.append("\n".join(filter(None, [last, needs_line(plan)])))
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


def needs_line(plan: Plan) -> str:
    """The line that sums up what is made: memory and disks of new containers, downloads, compiling; "" for none."""
    made = [change.after for change in plan.of("create") if isinstance(change.after, Instance)]
    built = [change.after for change in plan.of("build") if isinstance(change.after, Artifact)]
    limits = [one.memory for one in made]
    sums = {
        "{:.1f} GiB of memory": sum(filter(None, limits)) / GIB,
        "{:.1f} GiB of disk": sum(filter(None, [one.disk for one in made])) / GIB,
        "containers without a limit of memory: {}": limits.count(None),
        "{:.1f} GiB to be downloaded": sum(one.download for one in built) / GIB,
        "about {} minutes of a processor, unless the cache has what it compiles": sum(one.minutes for one in built),
    }
    parts = ", ".join(words.format(number) for words, number in sums.items() if round(number, 1))
    return f"New: {parts}." if parts else ""


def attribute_text(name: str, value: Any) -> str:
    """One attribute's value in the words of the file."""
    write = _WRITERS.get(name, _setting_text)
    return safe_line(write(value))


def _cpu_text(value: Any) -> str:
    return "no limit" if value is None else str(value)


def _digest_text(value: Any) -> str:
    return str(value)[:_DIGEST_SHOWN]


def _reaches_text(places: Iterable[str] | None) -> str:
    return "not held to anything by its host" if places is None else ", ".join(["what is public", *places])


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
    "reaches": _reaches_text,
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


# A plan as Markdown, for a comment on a merge request: what would happen and be lost, all attributes folded away.

LOSING: tuple[Action, ...] = ("replace", "delete")
_MARKS = {"+": "+", "-": "-", "~": "!", "-/+": "!"}
"""How a block of the language ``diff`` colours a line, by the sign in the plan's own text."""
LONGEST = 60_000
"""Characters: GitHub takes 65,536 in a comment, GitLab a million."""
_OF_TABLE = 40_000
_OF_NAMES = 5000
"""Characters of these at most, so that none of them takes all of the comment."""


def plan_markdown(plan: Plan, lab: str) -> str:
    """Return the plan as Markdown; every value in it is code, so that none can be markup, a link or a call."""
    head = [f"### Plan of {_code(lab)}", NO_CHANGES if plan.is_empty else count_line(plan)]
    lost = [change.target for change in plan.changes if change.action in LOSING]
    if lost:
        head.append(f"> **What is in it is lost:** {_names(lost)}")
    if plan.changes:
        head.append(_table(plan.changes))
    if plan.orphans:
        names = (instance.name for instance in plan.orphans)
        head.append(f"Of this lab, not in the file, and kept: {_names(names)}")
    if plan.leftovers:
        head.append(f"No longer in the file, and still running: {_names(plan.leftovers)}")
    text = "\n\n".join(head)
    if not plan.changes:
        return text
    return f"{text}\n\n{_details(plan.changes, LONGEST - len(text))}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(_fitting(list(map(_code, names)), _OF_NAMES, "and {} more: run provision plan"))


def _table(changes: Iterable[Change]) -> str:
    rows = []
    for change in changes:
        cells = (
            f"{thing_of(change)} {_code(change.target)}",
            OUTCOMES[change.action],
            _code(change.reason),
            _code(change.meanwhile),
        )
        rows.append(f"| {' | '.join(cells)} |")
    shown = _fitting(rows, _OF_TABLE, "| and {} more: run provision plan |")
    return "\n".join(["| what | happens | why | meanwhile |", "|---|---|---|---|", *shown])


def _details(changes: Iterable[Change], room: int) -> str:
    lines = [line.replace("`", "'") for change in changes for line in _diff_lines(change)]
    text = "\n".join(_fitting(lines, room, "  and {} lines more: run provision plan"))
    return f"<details><summary>Every attribute</summary>\n\n```diff\n{text}\n```\n\n</details>"


def _fitting(lines: Sequence[str], room: int, more: str) -> list[str]:
    """Return the first lines that fit into ``room`` characters, and ``more`` with the number of the others."""
    fitting: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return [*fitting, more.format(len(lines) - len(fitting))]
        fitting.append(line)
    return fitting


def _diff_lines(change: Change) -> Iterator[str]:
    """The plan's own lines, each with the mark at its beginning by which it gets its colour."""
    for line in change_text(change).splitlines():
        sign, blank, rest = line.strip().partition(" ")
        indentation = line[: len(line) - len(line.lstrip())]
        if blank and sign in _MARKS:
            yield f"{_MARKS[sign]} {indentation}{rest}"
        else:
            yield f"  {line}"


def _code(value: object) -> str:
    """Return ``value`` as a span of code, whatever is in it; nothing for nothing.

    A pipe ends the cell of a table also in code. Nothing can stand for a backtick in code, and a fence longer than any
    run of them is none from 80 on.
    """
    text = Foreign(safe_line(value)).replace("|", "\\|").replace("`", "'")
    return f"`{text}`" if text else ""


# The lab as it is now, as a table, and below it why we say what computes, and what has drifted.

HEAD = ("CONTAINER", "HOST", "STATE", "ADDRESS", "SERVICE", "PORT", "HEALTH", "ON", "DRIFT")
_NONE = "-"
_SHOWS = {
    "mate": "a desktop",
    "background": "a desktop without panels",
    "log": "xrdp's own window, which says why there is no session",
    "dialog": "a login window or a message",
    "blank": "nothing",
}
"""What programs of ours judge a picture to show, in words; others say it in words themselves."""


def status_text(containers: Sequence[ContainerStatus], style: Style = PLAIN) -> str:
    """One row per service: container, host, state, address, service, port, health, what computes, drift."""
    if not containers:
        return "The lab has no containers, neither in the file nor on its hosts."
    lines = [table(HEAD, status_rows(containers), style)]
    below = {**listed_below(containers), "Pictures": picture_lines(containers)}
    for title, listed in below.items():
        if listed:
            lines += ["", style.paint(title, "bold") + ":"]
            lines += [f"  {safe_line(line)}" for line in listed]
    return "\n".join(lines)


def status_rows(containers: Sequence[ContainerStatus]) -> list[tuple[str, ...]]:
    """The table's cells."""
    rows: list[tuple[str, ...]] = []
    for container in containers:
        rows += _rows(container)
    return rows


def listed_below(containers: Sequence[ContainerStatus]) -> dict[str, list[str]]:
    """What does not fit into the table: lines by their titles."""
    devices: list[str] = []
    asleep: list[str] = []
    drift = []
    for container in containers:
        devices += _device_lines(container)
        asleep += [f"{container.name}/{one.role}: {one.asleep}" for one in container.services if one.asleep]
        drift += [f"{container.name}: {difference}" for difference in container.drift]
    return {"Devices": devices, "Asleep": asleep, "Drift": drift}


def picture_lines(containers: Sequence[ContainerStatus]) -> list[str]:
    """Each picture that a proof took: whose, what it was judged to show, and its file."""
    lines = list[str]()
    for container in containers:
        for service in container.services:
            address = f"{container.name}/{service.role}"
            lines += [f"{address}: {shown_text(screen)}: {screen.file}" for screen in service.screens]
    return lines


def shown_text(screen: Screen) -> str:
    """What a picture was judged to show, after its name."""
    shows = _SHOWS.get(screen.shows, screen.shows) or "something unknown"
    return f"{screen.name}, judged to show {shows}"


def _device_lines(container: ContainerStatus) -> Iterator[str]:
    """Why we say that services compute with what they compute with, but for the CPU, which needs no proof."""
    for service in container.services:
        if service.why and service.processor != "CPU":
            yield f"{container.name}/{service.role}: {service.processor}: {service.why}"


def _rows(container: ContainerStatus) -> Iterator[tuple[str, ...]]:
    """A row for each service; what is so of the whole container stands in the first."""
    head = (container.name, container.host, _state(container), container.address or _NONE)
    drift = _drift(container)
    for service in container.services or (None,):
        yield (*head, *_service_cells(service), drift)
        head, drift = ("", "", "", ""), ""


def _state(container: ContainerStatus) -> str:
    if container.elsewhere:
        return container.elsewhere
    return str(container.status) if container.status else "missing"


def _drift(container: ContainerStatus) -> str:
    if container.orphan:
        return "orphan"
    return "drifted" if container.drift else _NONE


def _service_cells(service: ServiceStatus | None) -> tuple[str, str, str, str]:
    if service is None:
        return (_NONE, _NONE, _NONE, _NONE)
    return (service.role, str(service.port or _NONE), _health(service), service.processor or _NONE)


def _health(service: ServiceStatus) -> str:
    """What its proof said; the state of its unit where that does not run and nothing was asked."""
    if service.healthy is None and service.unit not in ("unknown", "active"):
        return service.unit
    if service.health in (BUSY, ASLEEP):
        return service.health
    return {True: "healthy", False: "unhealthy", None: _NONE}[service.healthy]


# A lab's file as it is understood, as YAML: every default filled in, every secret masked.

_SIZES = ("memory", "disk")


def file_value(lab: ResolvedLab, fleet: Fleet) -> dict[str, Any]:
    """The file with all defaults, in its own format."""
    whole: dict[str, Any] = {
        "name": lab.name,
        "hosts": {name: _written(host) for name, host in lab.hosts.items()},
        "models": {name: _written(model) for name, model in lab.models.items()},
        "upstreams": {name: _written(upstream) for name, upstream in lab.upstreams.items()},
        "containers": {one.name: _container_value(lab.containers[one.name], one) for one in fleet.instances},
    }
    return {key: plain_value(value) for key, value in whole.items() if value}


def fleet_value(lab: ResolvedLab, fleet: Fleet) -> dict[str, Any]:
    """Everything that the file resolves to: containers with devices and every variable of every role, artifacts.

    A service that is exposed because other hosts need it names them (``needed_by``).
    """
    value: dict[str, Any] = plain_value(fleet)
    del value["hosts"]
    for one in value["instances"]:
        del one["status"], one["address"]  # only a host knows them
        one.update({name: _size(one[name]) for name in _SIZES})
        for shown in one["services"]:
            service = lab.services.get(Address.of(one["name"], shown["role"]))
            if service is None:  # it comes with the card
                continue
            shown["expose"] = _expose(service)
            if service.needed_by:
                shown["needed_by"] = [str(user) for user in service.needed_by]
    return value


def yaml_text(value: Mapping[str, Any]) -> str:
    """``value``, made of plain types, as YAML without anchors."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's signature
            return True

    return yaml.dump(dict(value), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110).rstrip("\n")


def _container_value(container: ResolvedContainer, instance: Instance) -> dict[str, Any]:
    value: dict[str, Any] = {
        "host": instance.host,
        "image": instance.image,
        "cpu": instance.cpu,
        "memory": _size(instance.memory),
        "disk": _size(instance.disk),
    }
    if container.written.gpu is not None:
        value["gpu"] = _written(container.written.gpu) or "any"
    shown = {name: one for name, one in value.items() if one is not None}
    return {**shown, "services": {service.role: _service_value(service) for service in container.services}}


def _service_value(service: ResolvedService) -> dict[str, Any]:
    page = service.page
    # the default of a reference to nothing is no name that a file could say
    unsaid = {name for name in page.references if page.options[name].default in ("", [])}
    if not service.share:
        unsaid.add(HOLD_OPTION)  # refused of a service that takes no turns
    defaults = {
        name: option.default
        for name, option in page.options.items()
        if option.default is not None and name not in page.internal | unsaid
    }
    return {**defaults, **service.written, "expose": _expose(service)}


def _expose(service: ResolvedService) -> str:
    return LAN if service.is_on_lan else service.expose


def _written(part: Any) -> dict[str, Any]:
    """The fields of a pydantic value that are set; a secret stays a ``Secret``."""
    fields = {name: value for name, value in dict(part).items() if value not in (None, [])}
    return {name: _written(value) if hasattr(value, "model_fields_set") else value for name, value in fields.items()}


def _size(size: int | None) -> str | None:
    return None if size is None else size_text(size)
