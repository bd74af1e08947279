"""The value behind every drawing of a lab: its hosts, containers and services, and the lines between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from provisioner.catalog import ServiceType
from provisioner.lab.aliases import find_engines, flatten, for_too_long
from provisioner.lab.members import MEMBERS, MODEL, member_engines, written_members
from provisioner.lab.resolved import ResolvedContainer, ResolvedLab, host_name
from provisioner.labfile.hosts import HostPage, ProxmoxHost
from provisioner.labfile.spec import Gpu
from provisioner.services.base import ResolvedService

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
    boxes = tuple(_box(container) for container in lab.containers.values())
    models = tuple(Outside(f"model:{name}", "model", name, model.source) for name, model in lab.models.items())
    upstreams = tuple(
        Outside(f"upstream:{name}", "upstream", name, upstream.model) for name, upstream in lab.upstreams.items()
    )
    hosts = tuple(Host(name, _host_words(host)) for name, host in lab.hosts.items())
    return Graph(lab.name, hosts, boxes, (*models, *upstreams), tuple(_edges(lab)))


def _box(container: ResolvedContainer) -> Box:
    services = tuple(_service(service) for service in container.services)
    return Box(container.name, host_name(container), _gpu_words(container.written.gpu), services)


def _service(service: ResolvedService) -> Service:
    aliases: list[str] = []
    for option in _options(service.page, "aliases"):
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


def _host_words(host: HostPage) -> str:
    if isinstance(host, ProxmoxHost):
        return f"Proxmox, {host.proxmox}"
    return "Incus, this machine" if host.incus == "local" else f"Incus, {host.incus}"


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
        for option in _options(service.page, "service"):
            if option in service.written:
                yield Edge(service.address, str(service.written[option]), "uses")
        for used in dict.fromkeys(service.sites.values()):
            yield Edge(service.address, used, "uses")
        yield from _member_edges(lab, service)
        for model in service.served_models:
            if model not in service.fetched_models:  # they come from elsewhere, and the file has no word for where
                yield Edge(service.address, f"model:{model}", "serves")


def _member_edges(lab: ResolvedLab, service: ResolvedService) -> Iterator[Edge]:
    """What members of a team are asked of, each once."""
    used: dict[str, None] = {}
    for option in _options(service.page, MEMBERS):
        for _, member in written_members(service, option):
            name = str(member[MODEL])
            used |= {engine.address: None for engine in member_engines(lab.engines, name)[:1]}
            if name in lab.upstreams:
                used[f"upstream:{name}"] = None
    for target in used:
        yield Edge(service.address, target, "uses")


def _alias_edges(lab: ResolvedLab, service: ResolvedService) -> Iterator[Edge]:
    for option in _options(service.page, "aliases"):
        aliases = service.written.get(option) or {}
        for alias in aliases:
            names = dict.fromkeys((*flatten(aliases, alias), *for_too_long(aliases, alias)))
            for place, name in enumerate(names, 1):
                line: Line = "first" if place == 1 else "fallback"
                for engine in find_engines(lab.engines, name):
                    yield Edge(service.address, engine.address, line, alias, place, engine.model_for(name))
                if name in lab.upstreams:
                    yield Edge(service.address, f"upstream:{name}", line, alias, place)
