"""The verb ``audit``: its questions to containers, and its findings, sockets and routes that are on no page. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from provisioner.catalog import Socket
from provisioner.inside.exposure import DISGUISED, ELSEWHERE, HEADERS, METHODS, OWN, UNUSABLE, WITH_BODY, WRONG
from provisioner.inside.exposure import PLAIN as WITHOUT_KEY
from provisioner.lab.fleet import names_with
from provisioner.lab.resolved import ResolvedLab
from provisioner.report.messages import check_text, finding_text
from provisioner.report.style import PLAIN, Style, count_text
from provisioner.services.base import LAN as ON_LAN
from provisioner.services.base import ResolvedService
from provisioner.values.address import Address
from provisioner.values.events import Check
from provisioner.values.state import Device, Finding, Instance, Service, port_behind

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
MOST_ROUTES = 10
"""Findings of one service; how many more there are is said in the last one."""
NAME = "open"


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
        LOOPBACK: {WITHOUT_KEY: 200, WRONG: 5, ELSEWHERE: 5, DISGUISED: 14},
        NETWORK: {WITHOUT_KEY: 30},
        LAN: {WITHOUT_KEY: 30},
    },
    most=300,
    within_s=8.0,
    timeout_s=1.0,
    every_socket=False,
)
"""What belongs to every ``verify``: 284 requests of a service at most."""
WHOLE = Extent(
    {
        LOOPBACK: {WITHOUT_KEY: None, WRONG: None, ELSEWHERE: None, DISGUISED: None},
        NETWORK: {WITHOUT_KEY: None, WRONG: None},
        LAN: {WITHOUT_KEY: None, WRONG: None, DISGUISED: None},
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


@dataclass(frozen=True, slots=True)
class Audited:
    """What was looked at, in lines, and what of it is a finding."""

    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()

    def __add__(self, other: Audited) -> Audited:
        return Audited((*self.checks, *other.checks), (*self.findings, *other.findings))


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
    passed = names_with(opens.passes, variables) if _is_keyless(resolved) else ()
    if _is_keyless(resolved) and not opens.is_told:
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


def _is_keyless(service: ResolvedService) -> bool:
    """Whether the service asks nobody for a key."""
    return not service.key


def expected_sockets(service: Service, lab: ResolvedLab) -> tuple[Socket, ...]:
    """Every socket that the service's page says it has, its ports among them."""
    resolved = lab.services[service.address]
    page = resolved.page
    unit = page.unit or ""
    who_has_its_port = f"{resolved.behind}-{unit}" if resolved.behind else unit
    found = list(page.opens.sockets)
    if resolved.port is not None:
        found.append(Socket(who_has_its_port, "network", resolved.port, "clients reach it there"))
    found.extend(Socket(unit, "network", port.number, port.why, port.protocol) for port in resolved.further_ports)
    if resolved.behind and service.port is not None:
        own_port = port_behind(service.port)
        found.append(Socket(unit, "loopback", own_port, "the switch reaches it there"))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Listening:
    """A socket as ``ss`` told it; ``unit`` is empty where its process had gone when it was looked for."""

    protocol: str
    address: str
    port: int
    unit: str

    def is_that_of(self, page: Socket) -> bool:
        """Whether a page lists it."""
        if self.protocol != page.protocol:
            return False
        # Any port is that of a process that is known alone.
        is_its_port = bool(self.unit) if page.port is None else self.port == page.port
        is_its_unit = self.unit in ("", page.unit)
        reaches_no_further = page.reach == "network" or ip_address(self.address).is_loopback
        return is_its_port and is_its_unit and reaches_no_further

    @property
    def words(self) -> str:
        """Who listens, and where."""
        who = self.unit or "A process that ss does not name"
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{who} listens on {host}:{self.port} ({self.protocol})"


def judged_sockets(
    instance: Instance, lab: ResolvedLab, sockets: Sequence[Sequence[Any]], extent: Extent
) -> Iterator[Finding]:
    """A finding for each socket that is on no page; without ``every_socket`` of the lab's services alone."""
    pages = list(lab.catalog.base_sockets)
    owners: dict[str, Address] = {}
    for service in instance.services:
        pages += expected_sockets(service, lab)
        for unit in lab.services[service.address].page.units:
            owners[unit] = service.address
    listening = dict.fromkeys(Listening(*socket) for socket in sockets)
    for socket in listening:
        is_listed = any(socket.is_that_of(page) for page in pages)
        counts = extent.every_socket or socket.unit in owners
        if is_listed or not counts:
            continue
        subject = owners.get(socket.unit, Address.of(instance.name))
        yield Finding(
            subject,
            f"{socket.words}, which is on no page",
            resolution=f"See: provision exec {instance.name} -- ss -tulnp",
        )


def image_sockets(instance: Instance, lab: ResolvedLab, sockets: Sequence[Sequence[Any]]) -> Iterator[Check]:
    """Yield one line of what listens in the container's network because of its image, which is no finding."""
    pages = [page for page in lab.catalog.base_sockets if page.reach == "network"]
    by_purpose: dict[str, dict[str, None]] = {}
    for socket in (Listening(*socket) for socket in sockets):
        for page in pages:
            if socket.is_that_of(page) and not ip_address(socket.address).is_loopback:
                by_purpose.setdefault(page.why, {})[f"{socket.port} ({socket.protocol})"] = None
    if by_purpose:
        listed = "; ".join(f"{', '.join(ports)}: {purpose}" for purpose, ports in by_purpose.items())
        yield Check(instance.name, NAME, True, f"its image listens in its network as well: {listed}")


def judged_publications(instance: Instance, there: Sequence[Device]) -> Iterator[Finding]:
    """Yield a finding for each port that the container's host passes on although the file does not ask for it."""
    for device in there:
        if device in instance.devices:
            continue
        ends = device.properties
        protocol = ends.get("protocol", "tcp")
        start, end = ("on its host", "in it") if "bind" not in ends else ("in it", "on its host")
        passed = f"{ends['listen']} ({protocol}) {start} on to {ends['connect']} {end}"
        yield Finding(
            Address.of(instance.name),
            f"device {device.name} passes {passed}, and the file does not ask for it",
            resolution=f"Run: provision up {instance.name}. What is of a profile has to be taken out of that.",
        )


def judged_egress(service: Address, told: Mapping[str, Any], past: Sequence[str] | None = None) -> Audited:
    """Return a line for a service that is kept in, or a finding where something let it out.

    ``past``: what root in its container reaches although its host has rules against it; None where it has none.
    """
    asked, reached = ", ".join(told["asked"]), ", ".join(told["reached"])
    if past:
        message = f"root in its container reaches {', '.join(past)}, which the rules of its host are against"
        resolution = "Does the firewall of its host run? See docs/security.md."
        return Audited(findings=(Finding(service, message, details=f"Asked: {asked}", resolution=resolution),))
    if not told["reached"] and told["refused"] >= len(told["asked"]) > 0:
        where = "rules in its container alone do that" if past is None else "its host refuses them as well"
        words = f"nothing lets it out: of {len(told['asked'])} places that nobody allows it, all were refused; {where}"
        return Audited((Check(service, NAME, True, words),))
    message = f"it reaches {reached}, which nobody allows it" if reached else "nobody keeps it in"
    details = f"Asked: {asked}; its container refused {told['refused']}"
    resolution = f"Run: provision up --full {service.container}"
    return Audited(findings=(Finding(service, message, details=details, resolution=resolution),))


Answered = tuple[Asked, Mapping[str, Any]]
"""A door that was asked, and what it answered."""


def judged_doors(asked: Sequence[Asked], answers: Sequence[Mapping[str, Any]], lab: ResolvedLab) -> Audited:
    """The routes of services that answer and are on no page, and a line for each service."""
    by_service: dict[Address, list[Answered]] = {}
    for one, answer in zip(asked, answers, strict=True):
        by_service.setdefault(one.service, []).append((one, answer))
    whole = Audited()
    for service, mine in by_service.items():
        findings = tuple(_open_routes(service, mine))
        checks = [_line(service, mine, findings)]
        if _lets_everybody(lab.services[service]):
            checks.append(Check(service, NAME, True, "no key asked for: whoever reaches its port may use it"))
        whole += Audited(tuple(checks), findings)
    return whole


def _lets_everybody(service: ResolvedService) -> bool:
    """Whether it asks nobody for a key, and has routes of its own, as a door has none."""
    return _is_keyless(service) and not service.sites


def keyless_on_lan(instance: Instance, lab: ResolvedLab) -> Iterator[Finding]:
    """A finding for each service that everybody in the LAN may use."""
    how = "Give it a key, where it knows one; else take `expose: lan` out, and offer it by a gateway with a key."
    for service in instance.services:
        resolved = lab.services[service.address]
        is_in_lan = resolved.expose == ON_LAN and bool(service.health)
        if is_in_lan and _lets_everybody(resolved):
            yield Finding(
                service.address,
                "no key asked for, and the LAN reaches it",
                resolution=how,
            )


def _open_routes(service: Address, mine: Sequence[Answered]) -> Iterator[Finding]:
    """A finding for each route, with all ways in which it answered; the rest in one where there are many."""
    routes: dict[str, list[_Reply]] = {}
    for asked, answer in mine:
        for method, path, status, way in answer["answered"]:
            reply = _Reply(
                asked=asked,
                url=answer["url"],
                method=method,
                path=path,
                status=status,
                way=way,
            )
            routes.setdefault(f"{method} {path}", []).append(reply)
    names = list(routes)
    for name in names[:MOST_ROUTES]:
        replies = routes[name]
        said = "; ".join(dict.fromkeys(reply.words for reply in replies))
        message = f"{name} answers, and no page says so: {said}"
        yield Finding(
            service,
            message,
            details=f"Repeat it: {replies[0].request}",
            resolution=f"Run: provision up --full {service.container}",
        )
    rest = names[MOST_ROUTES:]
    if rest:
        yield Finding(
            service,
            f"{len(rest)} more routes answer, and no page says so",
            details=", ".join(rest),
        )


@dataclass(frozen=True, slots=True)
class _Reply:
    """A request that was answered although its route is on no page."""

    asked: Asked
    url: str
    method: str
    path: str
    status: int
    way: str

    @property
    def words(self) -> str:
        """What was answered, to whom."""
        return f"{self.status} {self.way} {self.asked.place}"

    @property
    def request(self) -> str:
        """The command that sends it again."""
        words = ["curl", "--include", "--path-as-is"]
        if self.asked.place != LAN:
            words = ["provision", "exec", self.asked.service.container, "--", *words]
        headers = dict(HEADERS.get(self.way, {}))
        address = f"{self.url}{self.path}"
        site = self.asked.question.get("host_name")
        if site:
            parts = urlsplit(self.url)
            words += ["--insecure", "--connect-to", f"{site}:{parts.port}:{parts.hostname}:{parts.port}"]
            address = f"https://{site}:{parts.port}{self.path}"
        if self.method in WITH_BODY:
            headers["Content-Type"] = "application/json"
            words += ["--data", UNUSABLE.decode()]
        words += ["--head"] if self.method == "HEAD" else ["--request", self.method]
        for name, value in headers.items():
            words += ["--header", f"{name}: {value}"]
        return shlex.join([*words, address])


def _line(service: Address, mine: Sequence[Answered], findings: Sequence[Finding]) -> Check:
    """How much was asked of a service, what came of it, and what was not asked."""
    counts = dict.fromkeys(("asked", "silent", "left"), 0)
    parts = list[str]()
    for asked, answer in mine:
        for word in counts:
            counts[word] += answer[word]
        if asked.question["looks_only"]:
            parts.append("it is asleep or busy: only what its switch answers was asked")
        if answer["problem"]:
            parts.append(answer["problem"])
    if counts["silent"]:
        parts.append(f"{counts['silent']} were not answered in time")
    if counts["left"]:
        parts.append(f"{counts['left']} were not asked")
    said = "nothing answers that is on no page"
    if findings:
        said = "what answers is not all on its page"
    places = ", ".join(asked.place for asked, _ in mine)
    words = "; ".join(dict.fromkeys([f"{counts['asked']} requests {places}: {said}", *parts]))
    nobody_answered = counts["silent"] >= counts["asked"] > 0
    is_cut_short = counts["left"] > 0 and not findings
    if nobody_answered or is_cut_short:
        return Check(service, NAME, None, words, not_asked=True)
    return Check(service, NAME, not findings, words)


# The report: a line for each container and service, and below it what is open and on no page.


def audited_text(found: Audited, style: Style = PLAIN) -> str:
    """All of it; the last line says whether something is open that is on no page, and what nobody could ask."""
    lines = [check_text(check, style) for check in found.checks]
    not_asked = sorted({check.target for check in found.checks if check.not_asked})
    if found.findings:
        lines += ["", *(finding_text(finding, style) for finding in found.findings)]
        lines.append(f"{count_text(len(found.findings), 'finding')}.")
    elif not_asked:
        what = f"Nothing that could be asked is open and on no page. Not asked: {', '.join(not_asked)}."
        lines.append(style.paint(what, "yellow"))
    else:
        lines.append(style.paint("Closed: nothing is open that is on no page.", "green"))
    return "\n".join(lines)
