"""What of the answers is a finding: sockets and routes that are on no page. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from provisioner.audit.questions import LAN, Asked, Extent, is_keyless
from provisioner.catalog import Socket
from provisioner.lab.resolved import ResolvedLab
from provisioner.openings import HEADERS, UNUSABLE, WITH_BODY
from provisioner.services.base import LAN as ON_LAN
from provisioner.values.address import Address
from provisioner.values.events import Check
from provisioner.values.state import Finding, Instance, Service, port_behind

MOST_ROUTES = 10
"""Findings of one service; how many more there are is said in the last one."""
NAME = "open"


@dataclass(frozen=True, slots=True)
class Audited:
    """What was looked at, in lines, and what of it is a finding."""

    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()

    def __add__(self, other: Audited) -> Audited:
        return Audited((*self.checks, *other.checks), (*self.findings, *other.findings))


def expected_sockets(service: Service, lab: ResolvedLab) -> tuple[Socket, ...]:
    """Every socket that the service's page says it has, its ports among them."""
    page = lab.services[service.address].page
    found = list(page.opens.sockets)
    offered = [service.port, *(lab.services[service.address].option(name) for name in page.also_listens)]
    ports = [int(port) for port in offered if port is not None]
    front = f"{page.behind}-{page.unit}" if page.behind else page.unit or ""
    found += [Socket(front, "network", port, "clients reach it there") for port in ports]
    if page.behind and service.port is not None:
        found.append(Socket(page.unit or "", "loopback", port_behind(service.port), "the switch reaches it there"))
    return tuple(found)


def judged_sockets(
    instance: Instance, lab: ResolvedLab, sockets: Sequence[Sequence[Any]], extent: Extent
) -> Iterator[Finding]:
    """A finding for each socket that is on no page; without ``every_socket`` of the lab's services alone."""
    known = list(lab.catalog.base_sockets)
    owners: dict[str, Address] = {}
    for service in instance.services:
        known += expected_sockets(service, lab)
        owners |= dict.fromkeys(lab.services[service.address].page.units, service.address)
    for protocol, address, port, unit in dict.fromkeys(map(tuple, sockets)):
        if any(_is_on(page, protocol, address, port, unit) for page in known):
            continue
        if unit in owners or extent.every_socket:
            who = unit or "A process that ss does not name"
            what = f"{who} listens on {_place(address, port)} ({protocol}), which is on no page"
            look = f"See: provision exec {instance.name} -- ss -tulnp"
            yield Finding(owners.get(unit, Address.of(instance.name)), what, resolution=look)


def _is_on(page: Socket, protocol: str, address: str, port: int, unit: str) -> bool:
    """Whether a socket is the one of the page; whose it is may be gone when it is looked for."""
    if page.protocol != protocol or page.port not in (None, port):
        return False
    if unit and page.unit != unit:
        return False
    if not unit and page.port is None:
        return False
    return page.reach == "network" or ip_address(address).is_loopback


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def judged_doors(asked: Sequence[Asked], answers: Sequence[Mapping[str, Any]], lab: ResolvedLab) -> Audited:
    """The routes of services that answer and are on no page, and a line for each service."""
    whole = Audited()
    for service in dict.fromkeys(one.service for one in asked):
        mine = [(one, answer) for one, answer in zip(asked, answers, strict=True) if one.service == service]
        findings = tuple(_open_routes(service, mine))
        checks = [_line(service, mine, findings)]
        resolved = lab.services[service]
        if is_keyless(resolved) and not resolved.sites:
            checks.append(Check(service, NAME, True, "no key asked for: whoever reaches its port may use it"))
        whole += Audited(tuple(checks), findings)
    return whole


def keyless_on_lan(instance: Instance, lab: ResolvedLab) -> Iterator[Finding]:
    """A finding for each service that everybody in the LAN may use."""
    for service in instance.services:
        resolved = lab.services[service.address]
        if resolved.expose == ON_LAN and service.health and is_keyless(resolved) and not resolved.sites:
            how = (
                "Give it a key, where it knows one; else take `expose: lan` out, and offer it by a gateway with a key."
            )
            yield Finding(service.address, "no key asked for, and the LAN reaches it", resolution=how)


def _open_routes(service: Address, mine: Sequence[tuple[Asked, Mapping[str, Any]]]) -> Iterator[Finding]:
    """A finding for each route, with all ways in which it answered; the rest in one where there are many."""
    routes: dict[tuple[str, str], list[_Answered]] = {}
    for one, answer in mine:
        for method, path, status, way in answer["answered"]:
            routes.setdefault((method, path), []).append(_Answered(one, answer["url"], method, path, status, way))
    for number, ((method, path), ways) in enumerate(routes.items()):
        if number == MOST_ROUTES:
            rest = ", ".join(f"{other} {spelled}" for other, spelled in list(routes)[MOST_ROUTES:])
            yield Finding(service, f"{len(routes) - MOST_ROUTES} more routes answer and are on no page", rest)
            return
        said = "; ".join(dict.fromkeys(f"{one.status} {one.way} {one.asked.place}" for one in ways))
        what = f"{method} {path} answers and is on no page: {said}"
        again = f"Repeat it: {ways[0].request}"
        yield Finding(service, what, again, f"Run: provision up --full {service.container}")


@dataclass(frozen=True, slots=True)
class _Answered:
    """A request that was answered although its route is on no page."""

    asked: Asked
    url: str
    method: str
    path: str
    status: int
    way: str

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


def _line(service: Address, mine: Sequence[tuple[Asked, Mapping[str, Any]]], findings: Iterable[Finding]) -> Check:
    asked = sum(answer["asked"] for _, answer in mine)
    silent = sum(answer["silent"] for _, answer in mine)
    left = sum(answer["left"] for _, answer in mine)
    problems = [answer["problem"] for _, answer in mine if answer["problem"]]
    count = len(tuple(findings))
    said = f"{count} routes answer that are on no page" if count else "nothing answers that is on no page"
    parts = [f"{asked} requests {', '.join(one.place for one, _ in mine)}: {said}"]
    if any(one.question["looks_only"] for one, _ in mine):
        parts.append("it is asleep or busy: only what its switch answers was asked")
    if silent:
        parts.append(f"{silent} were not answered in time")
    if left:
        parts.append(f"{left} were not asked")
    nobody = silent >= asked > 0
    return Check(service, NAME, None if nobody else not count, "; ".join([*parts, *problems]), not_asked=nobody)
