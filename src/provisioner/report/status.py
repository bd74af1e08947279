"""The lab as it is now, as a table, and below it why we say what computes, and what has drifted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provisioner.report.style import PLAIN, Style, safe_line, table
from provisioner.state import BUSY, ContainerStatus, ServiceStatus

HEAD = ("CONTAINER", "HOST", "STATE", "ADDRESS", "SERVICE", "PORT", "HEALTH", "ON", "DRIFT")
_NONE = "-"


def status_text(containers: Sequence[ContainerStatus], style: Style = PLAIN) -> str:
    """One row per service: container, host, state, address, service, port, health, what computes, drift."""
    if not containers:
        return "The lab has no containers, neither in the file nor on its hosts."
    below = [line for title, lines in listed_below(containers).items() for line in _listed(title, lines, style)]
    return "\n".join([table(HEAD, status_rows(containers), style), *below])


def status_rows(containers: Sequence[ContainerStatus]) -> list[tuple[str, ...]]:
    """The table's cells."""
    return [row for container in containers for row in _rows(container)]


def listed_below(containers: Sequence[ContainerStatus]) -> dict[str, list[str]]:
    """What does not fit into the table: lines by their titles."""
    devices = [
        f"{container.name}/{one.role}: {one.processor}: {one.why}"
        for container in containers
        for one in container.services
        if one.why and one.processor != "CPU"
    ]
    drift = [f"{one.name}: {what}" for one in containers for what in one.drift]
    return {"Devices": devices, "Drift": drift}


def _listed(title: str, lines: Sequence[str], style: Style) -> list[str]:
    return ["", style.paint(title, "bold") + ":", *(f"  {safe_line(line)}" for line in lines)] if lines else []


def _rows(container: ContainerStatus) -> Iterator[tuple[str, ...]]:
    state = str(container.status) if container.status else "missing"
    if container.elsewhere:
        state = container.elsewhere
    drift = "orphan" if container.orphan else "drifted" if container.drift else _NONE
    first = (container.name, container.host, state, container.address or _NONE)
    for index, service in enumerate(container.services or (None,)):
        head = first if index == 0 else ("", "", "", "")
        yield (*head, *_service_cells(service), drift if index == 0 else "")


def _service_cells(service: ServiceStatus | None) -> tuple[str, str, str, str]:
    if service is None:
        return (_NONE, _NONE, _NONE, _NONE)
    health = {True: "healthy", False: "unhealthy", None: _NONE}[service.healthy]
    if service.health == BUSY:
        health = BUSY
    if service.healthy is None and service.unit not in ("unknown", "active"):
        health = service.unit
    return (service.role, str(service.port or _NONE), health, service.processor or _NONE)
