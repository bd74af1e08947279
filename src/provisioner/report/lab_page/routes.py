"""Which engines answer for each alias, and who stands in for them."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.report.elements import Markup, join, moment, quiet, state, table
from provisioner.report.graph.topology import Edge
from provisioner.report.lab_page.content import LabContent
from provisioner.values.facts import ASLEEP, BUSY
from provisioner.values.state import ServiceStatus

Ranks = dict[int, list[Edge]]


def routes(content: LabContent) -> Iterator[Markup]:
    """A row for each alias: who is asked first, and who is when those before fail."""
    rows = []
    health = _health_by_address(content)
    for (source, alias), ranks in _by_alias(content).items():
        first, *others = (_targets(ranks[rank], health) for rank in sorted(ranks))
        rows.append((alias, source, first, _in_order(others)))
    if not rows:
        yield quiet("No service of the file offers aliases.")
        return
    yield table("Routes of aliases", ("alias", "asked at", "answered by", "and when that fails, by"), rows)
    yield quiet("The routes are the file's; how each target did: ", moment(content.at), ".")


def _by_alias(content: LabContent) -> dict[tuple[str, str], Ranks]:
    found: dict[tuple[str, str], Ranks] = {}
    for edge in content.graph.edges:
        if edge.alias:
            found.setdefault((edge.source, edge.alias), {}).setdefault(edge.rank, []).append(edge)
    return found


def _health_by_address(content: LabContent) -> dict[str, ServiceStatus]:
    found = {}
    for container in content.containers:
        for service in container.services:
            found[f"{container.name}/{service.role}"] = service
    return found


def _targets(edges: list[Edge], health: dict[str, ServiceStatus]) -> Markup:
    parts: list[object] = []
    for edge in edges:
        parts += [" and " if parts else "", _target(edge, health)]
    return join(parts)


def _target(edge: Edge, health: dict[str, ServiceStatus]) -> Markup:
    kind, _, name = edge.target.partition(":")
    if kind == "upstream" and name:
        return join([name, " (elsewhere: not asked)"])
    model = f" ({edge.model})" if edge.model else ""
    return join([edge.target, model, " ", _seen(health.get(edge.target))])


def _seen(status: ServiceStatus | None) -> Markup:
    if status is None or status.healthy is None:
        return state("dim", "not known")
    if status.health in (BUSY, ASLEEP):
        return state("dim", status.health)
    return state("good", "healthy") if status.healthy else state("bad", "unhealthy")


def _in_order(others: list[Markup]) -> Markup:
    if not others:
        return state("dim", "nobody")
    parts: list[object] = []
    for one in others:
        parts += [", then " if parts else "", one]
    return join(parts)
