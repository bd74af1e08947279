"""The lab as it is now, as a table, and below it why we say what computes, and what has drifted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provisioner.report.style import PLAIN, Style, safe_line, table
from provisioner.values.facts import ASLEEP, BUSY
from provisioner.values.state import ContainerStatus, Screen, ServiceStatus

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
