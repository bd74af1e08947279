"""The topology of a lab: hosts, containers, services and the lines between them, as a value and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from provisioner.catalog import ServiceType
from provisioner.lab.aliases import MEMBERS, MODEL, find_engines, flatten, for_too_long, written_members
from provisioner.lab.resolved import ResolvedContainer, ResolvedLab, host_name
from provisioner.labfile.spec import Gpu
from provisioner.report.style import PLAIN, Style, safe_line
from provisioner.services.base import ResolvedService

ALIASES = "aliases"
LAN = "lan"
"""The id of the clients on the network around the lab."""

Line = Literal["first", "fallback", "serves", "uses", "exposed"]


@dataclass(frozen=True, slots=True)
class Service:
    """One service: ``stage`` is engine, gateway or app; ``aliases`` are the names under which it serves others.

    ``needed_by``: the services of other hosts because of which it is open to the LAN, where the file does not say so.
    """

    id: str
    role: str
    stage: str
    port: int | None
    model: str | None = None
    on_lan: bool = False
    aliases: tuple[str, ...] = ()
    needed_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Box:
    """One container and its services."""

    name: str
    host: str
    gpu: str = ""
    services: tuple[Service, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """One host of the file, in words: what it is."""

    name: str
    words: str


@dataclass(frozen=True, slots=True)
class Outside:
    """A model (its source) or an upstream (what it serves): not a container of the lab."""

    id: str
    kind: Literal["model", "upstream"]
    name: str
    words: str


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from one id to another; ``alias``: where in its source it begins; ``rank``: its place there, 1 first.

    ``model``: which of its target's models the alias means.
    """

    source: str
    target: str
    line: Line
    alias: str = ""
    rank: int = 1
    model: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """A lab as things and lines, each in the order of the file."""

    lab: str
    hosts: tuple[Host, ...]
    boxes: tuple[Box, ...]
    outside: tuple[Outside, ...]
    edges: tuple[Edge, ...]

    @property
    def services(self) -> dict[str, Service]:
        """Every service by its id."""
        return {one.id: one for box in self.boxes for one in box.services}


def topology(lab: ResolvedLab) -> Graph:
    """What the file connects; the file must be free of problems."""
    boxes = tuple(map(_box, lab.containers.values()))
    models = tuple(Outside(f"model:{name}", "model", name, model.source) for name, model in lab.models.items())
    upstreams = tuple(
        Outside(f"upstream:{name}", "upstream", name, upstream.model) for name, upstream in lab.upstreams.items()
    )
    hosts = tuple(Host(name, host.words) for name, host in lab.hosts.items())
    return Graph(lab.name, hosts, boxes, (*models, *upstreams), tuple(_edges(lab)))


def _box(container: ResolvedContainer) -> Box:
    services = tuple(map(_service, container.services))
    return Box(container.name, host_name(container), _gpu_words(container.written.gpu), services)


def _service(service: ResolvedService) -> Service:
    aliases: list[str] = []
    for option in _options(service.page, ALIASES):
        aliases += service.written.get(option) or ()
    return Service(
        service.address,
        service.role,
        service.page.stage,
        service.port,
        ", ".join(service.served_models) or None,
        service.is_on_lan,
        tuple(aliases),
        service.needed_by,
    )


def _options(page: ServiceType, kind: str) -> list[str]:
    return [option for option, reference in page.references.items() if reference.kind == kind]


def _gpu_words(gpu: Gpu | None) -> str:
    if gpu is None:
        return ""
    name = next(iter(gpu.model_fields_set), "")
    return f"gpu {getattr(gpu, name)}" if name and name != "vram" else "gpu"


def _edges(lab: ResolvedLab) -> Iterator[Edge]:
    for service in lab.services.values():
        if service.is_on_lan:
            yield Edge(LAN, service.address, "exposed")
        yield from _alias_edges(lab, service)
        yield from _use_edges(lab, service)
        for model in service.served_models:
            if model not in service.fetched_models:  # they come from elsewhere, and the file has no word for where
                yield Edge(service.address, f"model:{model}", "serves")


def _use_edges(lab: ResolvedLab, service: ResolvedService) -> Iterator[Edge]:
    """What it asks beside its aliases, each once: services of the lab, then upstreams of its members.

    The aliases have lines of their own, which say in which order their engines are asked.
    """
    used = dict[str, None]()
    for use in lab.uses:
        if use.user == service.address and use.kind != ALIASES:
            used[use.used] = None
    for option in _options(service.page, MEMBERS):
        for _, member in written_members(service, option):
            if str(member[MODEL]) in lab.upstreams:
                used[f"upstream:{member[MODEL]}"] = None
    for target in used:
        yield Edge(service.address, target, "uses")


def _alias_edges(lab: ResolvedLab, service: ResolvedService) -> Iterator[Edge]:
    for option in _options(service.page, ALIASES):
        aliases = service.written.get(option) or {}
        for alias in aliases:
            names = dict.fromkeys((*flatten(aliases, alias), *for_too_long(aliases, alias)))
            for place, name in enumerate(names, 1):
                line: Line = "first" if place == 1 else "fallback"
                for engine in find_engines(lab.engines, name):
                    yield Edge(service.address, engine.address, line, alias, place, engine.model_for(name))
                if name in lab.upstreams:
                    yield Edge(service.address, f"upstream:{name}", line, alias, place)


# The same as text: a tree of hosts, containers and services, an arrow for each line.

Tree = tuple[str, Sequence["Tree"]]
"""A line and what hangs on it."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What a tree and its arrows are drawn with."""

    branch: str = "├─ "
    last: str = "└─ "
    beside: str = "│  "
    arrow: str = "→"


UNICODE = Signs()
ASCII = Signs("|- ", "`- ", "|  ", "->")


@dataclass(frozen=True, slots=True)
class _Pen:
    """How the lines of one graph are written."""

    graph: Graph
    style: Style
    signs: Signs


def graph_text(graph: Graph, style: Style = PLAIN, signs: Signs = UNICODE) -> str:
    """Hosts with their containers, services and what each of them asks; then models and what is elsewhere."""
    pen = _Pen(graph, style, signs)
    trees = _host_trees(pen)
    for kind, title in (("model", "models"), ("upstream", "elsewhere")):
        named = [outside for outside in graph.outside if outside.kind == kind]
        if named:
            trees.append((style.paint(title, "bold"), _outside_trees(named, style)))
    blocks = ["\n".join([head, *_lines(branches, signs)]) for head, branches in trees]
    return "\n\n".join(blocks)


def _lines(trees: Sequence[Tree], signs: Signs, before: str = "") -> Iterator[str]:
    """The lines of some trees, each with the branch that it hangs on; ``before`` stands in front of all of them."""
    for place, (text, branches) in enumerate(trees, 1):
        if place == len(trees):
            yield before + signs.last + text
            yield from _lines(branches, signs, before + " " * len(signs.beside))
        else:
            yield before + signs.branch + text
            yield from _lines(branches, signs, before + signs.beside)


def _host_trees(pen: _Pen) -> list[Tree]:
    trees: list[Tree] = []
    for host in pen.graph.hosts:
        boxes = [_box_lines(box, pen) for box in pen.graph.boxes if box.host == host.name]
        name = pen.style.paint(safe_line(host.name), "bold")
        trees.append((f"{name} ({safe_line(host.words)})", boxes))
    return trees


def _outside_trees(named: Sequence[Outside], style: Style) -> list[Tree]:
    width = max(len(outside.name) for outside in named)
    trees: list[Tree] = []
    for outside in named:
        words = style.paint(safe_line(outside.words), "dim")
        trees.append((f"{safe_line(outside.name):<{width}}  {words}", ()))
    return trees


def _box_lines(box: Box, pen: _Pen) -> Tree:
    gpu = f" ({safe_line(box.gpu)})" if box.gpu else ""
    services = [_service_line(service, pen) for service in box.services]
    return pen.style.paint(safe_line(box.name), "bold") + gpu, services


def _service_line(service: Service, pen: _Pen) -> Tree:
    role = pen.style.paint(safe_line(service.role), "green")
    port = f" :{service.port}" if service.port else ""
    edges = [edge for edge in pen.graph.edges if edge.source == service.id]
    branches = _alias_trees(service, edges, pen)
    for edge in edges:
        if not edge.alias:
            branches.append((f"{edge.line} {pen.signs.arrow} {_target(edge, pen.graph)}", ()))
    return f"{role}{port}{_lan(service, pen.style)}", branches


def _lan(service: Service, style: Style) -> str:
    """That the service is open to the LAN, and for whom; empty when it is not."""
    if not service.on_lan:
        return ""
    words = " open to the LAN"
    if service.needed_by:
        words += f", because {', '.join(service.needed_by)} on another host needs it"
    return style.paint(safe_line(words), "yellow")


def _alias_trees(service: Service, edges: Sequence[Edge], pen: _Pen) -> list[Tree]:
    width = max(map(len, service.aliases), default=0)
    trees: list[Tree] = []
    for alias in service.aliases:
        own_edges = [edge for edge in edges if edge.alias == alias]
        engines = _engines(own_edges, pen.graph)
        trees.append((f"{safe_line(alias):<{width}} {pen.signs.arrow} {engines}", ()))
    return trees


def _engines(edges: Sequence[Edge], graph: Graph) -> str:
    """The engines of an alias: those of one rank share its requests, the next rank stands in for them."""
    by_rank: dict[int, list[str]] = {}
    for edge in edges:
        by_rank.setdefault(edge.rank, []).append(_target(edge, graph))
    return ", else ".join(" and ".join(by_rank[rank]) for rank in sorted(by_rank))


def _target(edge: Edge, graph: Graph) -> str:
    service = graph.services.get(edge.target)
    if service is None:
        return safe_line(edge.target.partition(":")[2])
    model = f" ({edge.model})" if edge.model else ""
    return safe_line(service.id + model)
