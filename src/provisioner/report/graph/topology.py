"""The value behind every drawing of a lab: its hosts, containers and services, and the lines between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from provisioner.catalog import Catalog, ServiceType
from provisioner.lab import host_of, hosts_of
from provisioner.lab.aliases import flatten, for_too_long
from provisioner.lab.engines import engines_of, find_engines, port_of, served_models
from provisioner.lab.hosts import LOCAL_HOST
from provisioner.lab.lan import implied_users, with_lan
from provisioner.spec import Container, Gpu, IncusHost, ProxmoxHost, ServiceSpec, Spec

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


def topology(spec: Spec, catalog: Catalog) -> Graph:
    """What the file connects; the file must be free of problems."""
    hosts, needed = hosts_of(spec), implied_users(spec, catalog)
    spec = with_lan(spec, catalog)
    boxes = tuple(_box(spec, catalog, name, container, needed) for name, container in spec.containers.items())
    used = {one.host for box in boxes for one in (box,)} | set(hosts)
    models = tuple(Outside(f"model:{name}", "model", name, model.source) for name, model in spec.models.items())
    upstreams = tuple(
        Outside(f"upstream:{name}", "upstream", name, upstream.model) for name, upstream in spec.upstreams.items()
    )
    return Graph(
        spec.name,
        tuple(Host(name, _host_words(host)) for name, host in hosts.items() if name in used),
        boxes,
        (*models, *upstreams),
        tuple(_edges(spec, catalog)),
    )


def _box(spec: Spec, catalog: Catalog, name: str, container: Container, needed: Mapping[str, tuple[str, ...]]) -> Box:
    services = tuple(
        replace(_service(name, one, catalog.services[one.role]), needed_by=needed.get(f"{name}/{one.role}", ()))
        for one in container.services.values()
    )
    return Box(name, host_of(spec, container) or LOCAL_HOST, _gpu_words(container.gpu), services)


def _service(container: str, service: ServiceSpec, page: ServiceType) -> Service:
    aliases = (name for option in _options(page, "aliases") for name in service.options.get(option) or ())
    return Service(
        f"{container}/{page.role}",
        page.role,
        page.stage,
        port_of(service, page),
        ", ".join(served_models(service, page)) or None,
        service.expose == "lan",
        tuple(aliases),
    )


def _options(page: ServiceType, kind: str) -> list[str]:
    return [option for option, reference in page.references.items() if reference.kind == kind]


def _host_words(host: IncusHost | ProxmoxHost) -> str:
    if isinstance(host, ProxmoxHost):
        return f"Proxmox, {host.proxmox}"
    return "Incus, this machine" if host.incus == "local" else f"Incus, {host.incus}"


def _gpu_words(gpu: Gpu | None) -> str:
    if gpu is None:
        return ""
    name = next(iter(gpu.model_fields_set), "")
    return f"gpu {getattr(gpu, name)}" if name and name != "vram" else "gpu"


def _edges(spec: Spec, catalog: Catalog) -> Iterator[Edge]:
    for name, container in spec.containers.items():
        for service in container.services.values():
            page, address = catalog.services[service.role], f"{name}/{service.role}"
            if service.expose == "lan":
                yield Edge(LAN, address, "exposed")
            yield from _alias_edges(spec, catalog, address, service)
            for option in _options(page, "service"):
                if option in service.options:
                    yield Edge(address, str(service.options[option]), "uses")
            for model in served_models(service, page):
                yield Edge(address, f"model:{model}", "serves")


def _alias_edges(spec: Spec, catalog: Catalog, address: str, service: ServiceSpec) -> Iterator[Edge]:
    engines = engines_of(spec, catalog)
    for option in _options(catalog.services[service.role], "aliases"):
        aliases = service.options.get(option) or {}
        for alias in aliases:
            names = dict.fromkeys((*flatten(aliases, alias), *for_too_long(aliases, alias)))
            for place, name in enumerate(names, 1):
                line: Line = "first" if place == 1 else "fallback"
                for engine in find_engines(engines, name):
                    yield Edge(address, engine.address, line, alias, place, engine.model_for(name))
                if name in spec.upstreams:
                    yield Edge(address, f"upstream:{name}", line, alias, place)
