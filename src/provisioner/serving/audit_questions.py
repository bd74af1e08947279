"""The questions of ``audit`` to each container: its sockets, and routes as strangers ask for them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.inside.exposure import DISGUISED, ELSEWHERE, METHODS, OWN, PLAIN, WRONG
from provisioner.lab.fleet import names_with
from provisioner.lab.resolved import ResolvedLab
from provisioner.services.base import ResolvedService
from provisioner.values.address import Address
from provisioner.values.state import Instance, Service, port_behind

Ways = Mapping[str, int | None]
"""How strangers ask, each with for how many routes; None: for all."""

LOOPBACK, NETWORK, LAN = "from its own loopback", "from its network", "from the LAN"
OPENINGS = "openings"
"""What a container is asked to do, beside a look and a stamp."""
FRONT_PAGE = "GET /"
EVERYTHING = tuple(f"{method} /**" for method in METHODS)
WORDS = (
    *("GET /docs", "GET /redoc", "GET /openapi.json", "GET /swagger.json", "GET /metrics", "GET /health"),
    *("GET /healthz", "GET /ping", "GET /version", "GET /status", "GET /stats", "GET /info", "GET /config"),
    *("GET /env", "GET /.env", "GET /.git/config", "GET /debug", "GET /debug/pprof/", "GET /debug/vars"),
    *("GET /admin", "GET /admin/", "GET /console", "GET /server-status", "GET /actuator", "GET /actuator/env"),
    *("GET /graphql", "GET /api", "GET /api/tags", "GET /api/version", "GET /ui", "GET /ui/", "GET /props"),
    *("GET /slots", "GET /load", "GET /tools", "GET /cors-proxy", "GET /lora-adapters", "GET /v1/models"),
    *("POST /invocations", "POST /tokenize", "POST /v1/completions", "POST /v1/chat/completions"),
)
"""Where servers of this kind, and what is started beside them to look into them, tell or do more than they should."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is asked: ways by where from, requests of one service at most, seconds, and of whom sockets are judged.

    ``every_socket``: also those that no service of the lab has.
    """

    ways: Mapping[str, Ways]
    most: int
    within_s: float
    timeout_s: float
    every_socket: bool


SHORT = Extent(
    {
        LOOPBACK: {PLAIN: 200, WRONG: 5, ELSEWHERE: 5, DISGUISED: 14},
        NETWORK: {PLAIN: 30},
        LAN: {PLAIN: 30},
    },
    most=300,
    within_s=8.0,
    timeout_s=1.0,
    every_socket=False,
)
"""What belongs to every ``verify``: 284 requests of a service at most."""
WHOLE = Extent(
    {
        LOOPBACK: {PLAIN: None, WRONG: None, ELSEWHERE: None, DISGUISED: None},
        NETWORK: {PLAIN: None, WRONG: None},
        LAN: {PLAIN: None, WRONG: None, DISGUISED: None},
    },
    most=20_000,
    within_s=240.0,
    timeout_s=5.0,
    every_socket=True,
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One door that is asked: of which service, from where, and the question as ``openings`` reads it."""

    service: Address
    place: str
    question: Mapping[str, Any]


def doors_inside(
    instance: Instance, lab: ResolvedLab, extent: Extent, only_looked_at: Collection[Address]
) -> tuple[Asked, ...]:
    """What the container itself is to ask: each service at its loopback and its own address, a door for each site.

    ``only_looked_at``: services that are asleep or busy, of which nothing is asked that would wake them or wait.
    """
    found = list[Asked]()
    for service in instance.services:
        resolved = lab.services[service.address]
        quiet = service.address in only_looked_at
        if resolved.sites:
            found += _sites(service, lab, extent, only_looked_at)
            continue
        if not _speaks_http(service):
            continue
        for place, host in ((LOOPBACK, "127.0.0.1"), (NETWORK, OWN)):
            door = _door(
                service,
                resolved,
                place,
                f"http://{host}:{service.port}",
                extent,
                looks_only=quiet,
            )
            found.append(door)
    return tuple(found)


def _speaks_http(service: Service) -> bool:
    """Whether it has a page that says how it is: others speak protocols of their own."""
    return bool(service.health) and service.port is not None


def doors_from_lan(
    instance: Instance, lab: ResolvedLab, address: str, extent: Extent, only_looked_at: Collection[Address]
) -> tuple[Asked, ...]:
    """What is asked at the address of the container's host: of its services that the LAN reaches."""
    found = []
    for service in instance.services:
        resolved = lab.services[service.address]
        if not (resolved.is_on_lan and _speaks_http(service)):
            continue
        door = _door(
            service,
            resolved,
            LAN,
            f"http://{address}:{service.port}",
            extent,
            looks_only=service.address in only_looked_at,
        )
        found.append(door)
    return tuple(found)


def container_question(doors: Iterable[Asked], extent: Extent, services: int) -> dict[str, Any]:
    """The whole question to one container, with its limits."""
    most = extent.most * max(1, services)
    return {
        "do": OPENINGS,
        "sockets": True,
        "doors": [one.question for one in doors],
        "most": most,
        "within_s": extent.within_s,
    }


def _sites(door: Service, lab: ResolvedLab, extent: Extent, only_looked_at: Collection[Address]) -> Iterator[Asked]:
    """Each site of a door: what stands behind it, asked by its name."""
    for site, behind in lab.services[door.address].sites.items():
        resolved = lab.services[Address(behind)]
        if resolved.health is None:
            continue
        quiet = resolved.address in only_looked_at
        url, place = f"https://127.0.0.1:{door.port}", f"by {site}"
        ways = extent.ways[LAN]
        yield Asked(door.address, place, _question(resolved, url, ways, extent, quiet) | {"host_name": site})


def _door(
    service: Service, resolved: ResolvedService, place: str, url: str, extent: Extent, *, looks_only: bool
) -> Asked:
    question = _question(resolved, url, extent.ways[place], extent, looks_only)
    path = resolved.page.opens.document
    if path and extent.every_socket and service.port is not None:
        # Its own process tells them; the switch lets nobody there.
        port = port_behind(service.port) if service.behind else service.port
        question["document"] = f"http://127.0.0.1:{port}{path}"
    return Asked(service.address, place, question)


def _question(resolved: ResolvedService, url: str, ways: Ways, extent: Extent, looks_only: bool) -> dict[str, Any]:
    opens = resolved.page.opens
    variables = {f"{resolved.page.role}_{name}": value for name, value in resolved.options().items()}
    passed = names_with(opens.passes, variables) if is_keyless(resolved) else ()
    if is_keyless(resolved) and not opens.is_told:
        passed = EVERYTHING
    opened = [*opens.routes, f"GET {resolved.health}"]
    routes = dict.fromkeys((*opened, *opens.asks, FRONT_PAGE, *WORDS))
    plain = [one.replace("**", "x").replace("*", "x").split(" ", 1) for one in routes]
    return {
        "name": str(resolved.address),
        "url": url,
        "routes": plain,
        "open": opened,
        "passed": list(passed),
        "tells": [[path, list(keys), value] for path, keys, value in opens.tells],
        "front": opens.front,
        "looks_only": looks_only,
        "timeout_s": extent.timeout_s,
        "ways": dict(ways),
    }


def is_keyless(service: ResolvedService) -> bool:
    """Whether the service asks nobody for a key."""
    return not service.key
