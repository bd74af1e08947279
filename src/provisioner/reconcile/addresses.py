"""Addresses of containers for other hosts: told by their own host, by the file, or by this machine's routes."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from provisioner.hosts.base import Provider
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import ResolvedContainer, ResolvedLab
from provisioner.labfile.hosts import HostPage
from provisioner.labfile.spec import LOCAL_HOST, fixed_address
from provisioner.values.address import Address
from provisioner.values.errors import PreflightError
from provisioner.values.events import Diagnostic, Event
from provisioner.values.plain_data import json_value
from provisioner.values.plan import Plan
from provisioner.values.regular_files import text_of
from provisioner.values.state import Fleet

FILE = "addresses.json"
"""In the lab's folder: where containers were reached when they last ran."""
ANYWHERE = "192.0.2.1"
"""An address that nobody has (RFC 5737): the way to it is the way to whatever is not nearby."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """What is known of addresses in the LAN.

    ``users``: by each container whose address is needed, the services that need it; ``known``: the addresses;
    ``own``: the containers that have one of their own, which another container in their place may not get;
    ``remembered``: those of them that do not say it now, and had the known one when they last did.
    """

    users: Mapping[str, frozenset[Address]] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    remembered: frozenset[str] = frozenset()

    def unsettled(self, made: Plan) -> dict[Address, tuple[str, ...]]:
        """The services that have to learn an address once the plan is carried out, with the reasons, in words."""
        new = {one.container for one in made.of("create", "replace")}
        started = {one.container for one in made.of("start")} - (self.known.keys() - self.remembered)
        found: dict[Address, tuple[str, ...]] = {}
        for name in sorted(self.own & (new | started)):
            for user in self.users[name]:
                found[user] = (*found.get(user, ()), f"the address of {name} is known once it runs")
        return found

    def refuse_unknown(self, made: Plan) -> None:
        """Raise ``PreflightError`` when a service is to be configured with an address that nobody will know."""
        coming = {one.container for one in made.of("create", "replace", "start")}
        changed = {one.container for one in made.changes}
        for name in sorted(self.users.keys() - self.known.keys() - coming):
            users = sorted(user for user in self.users[name] if user.container in changed)
            if users:
                raise PreflightError(
                    f"Unable to plan {', '.join(users)}: nobody knows the address of {name}",
                    details=f"Container {name} does not run, is not there, or has no address of IPv4.",
                    resolution=f"Bring it up, too: provision up {name} {users[0].container}",
                )


def look_at_addresses(lab: Lab, providers: Mapping[str, Provider], actual: Fleet) -> Addresses:
    """The addresses that services have to know of containers elsewhere, as far as there are any by now.

    A container that is there and has none, because it does not run, is remembered: who uses it has not drifted by that.
    """
    users = users_of_addresses(lab.resolved)
    if not users:
        return Addresses()
    containers = lab.resolved.containers
    there = {name: containers[name].host or "" for name in users}
    own = frozenset(name for name in users if containers[name].has_own_address)
    with ThreadPoolExecutor(len(users)) as pool:
        asked = {name: pool.submit(providers[there[name]].network.address, name) for name in sorted(own)}
        found = {name: one.result() for name, one in asked.items()}
    kept = _remembered(lab.folder / FILE)
    said = {name: address for name, address in found.items() if address}
    remembered = {name: kept[name] for name in own - said.keys() if name in kept and actual.instance(name)}
    _remember(lab.folder / FILE, kept, {**remembered, **said})
    said |= {name: _of_host(lab.resolved, containers[name], min(users[name])) for name in sorted(users.keys() - own)}
    return Addresses(users, {**remembered, **said}, own, frozenset(remembered))


def _remembered(file: Path) -> dict[str, str]:
    try:
        content = json_value(text_of(file))
    except (FileNotFoundError, ValueError):  # not there, cut off, or not ours: it is asked for again
        return {}
    return {str(name): str(one) for name, one in content.items()} if isinstance(content, dict) else {}


def _remember(file: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    if now == before:
        return
    with suppress(OSError):  # who may not write here can look all the same
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(now, indent=2, sort_keys=True), encoding="utf-8")
        partial.replace(file)


def say(lab: Lab, addresses: Addresses, made: Plan, emit: Callable[[Event], None]) -> None:
    """Say of each service that another host's containers use, and that the plan concerns, where it will be reached."""
    changed = {one.container for one in made.changes}
    for used, users in lab.resolved.used_over_lan.items():
        name = used.container
        if changed.isdisjoint({name, *(user.container for user in users)}):
            continue
        port, host = lab.resolved.services[used].port, lab.resolved.containers[name].host
        is_own = name in addresses.own or name not in addresses.known
        kind = "the container's own" if is_own else f"that of host {host}"
        address = addresses.known.get(name, "an address")
        text = f"{used} is planned with expose: lan, because {', '.join(users)} on another host needs it"
        emit(Diagnostic("note", f"{text}: at {address}, {kind}, port {port}"))


def users_of_addresses(lab: ResolvedLab) -> dict[str, frozenset[Address]]:
    """By the containers whose address only their host can tell: the services that must know it.

    With an address of its own, each that asks for it and that somebody uses; else each that another host's use, for
    they reach it at its host's address. Those that take turns ask one another.
    """
    found: dict[str, set[Address]] = {}
    pairs = ((use.user, use.used) for use in lab.uses)
    for user, used in (*pairs, *_pairs_in_turns(lab)):
        here, there = lab.containers[user.container], lab.containers[used.container]
        if here.host is None or there.host is None or here is there:
            continue
        if not fixed_address(there.written) if there.has_own_address else here.host != there.host:
            found.setdefault(there.name, set()).add(user)
    return {name: frozenset(users) for name, users in sorted(found.items())}


def _pairs_in_turns(lab: ResolvedLab) -> Iterator[tuple[Address, Address]]:
    """Every (user, used) among services that take turns."""
    for service in lab.services.values():
        for other in service.share:
            if other != service.address:
                yield service.address, other


def _of_host(lab: ResolvedLab, container: ResolvedContainer, user: Address) -> str:
    """The address of a host in the LAN: the file's, that of its API, or this machine's on the way to ``user``."""
    host, page = container.host or "", container.page
    if page is not None and page.address:
        return page.address
    if page is not None and not page.is_here:
        return _of_api(page, host)
    other = lab.containers[user.container].page
    towards = other.api_host if other is not None else ""
    return own_address(towards or ANYWHERE, host)


def _of_api(page: HostPage, host: str) -> str:
    """Name or address of a host elsewhere, where others may reach it, too; ``PreflightError`` where they cannot."""
    found = page.api_host
    if ":" in found:
        why = "is one of IPv6, and services are shown on the host's addresses of IPv4"
    elif _is_loopback(found):
        why = "is this machine's own way to it, by which no container elsewhere gets there"
    else:
        return found
    written = f"{host}: {{ {page.kind}: {page.url}, address: 192.168.1.5, … }}"
    raise PreflightError(
        f"Unable to find the address of host {host} in the LAN: {found}, where its API is, {why}",
        resolution=f"Write `address:` on the host's page: {written}",
    )


def lan_address(lab: Lab, name: str) -> str | None:
    """The address at which the container's host shows it to the LAN; None where it has one there itself, or none."""
    container = lab.resolved.containers[name]
    host, page = container.host, container.page
    if container.has_own_address:
        return None
    if page is not None and (page.address or not page.is_here):
        return page.address or page.api_host
    try:
        return own_address(ANYWHERE, host or LOCAL_HOST)
    except PreflightError:  # a machine without a network: what runs here is reached on the bridge
        return None


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:  # a name
        return name == "localhost" or name.endswith(".localhost")


def own_address(towards: str, host: str) -> str:
    """This machine's address as ``towards`` sees it; nothing is sent. ``PreflightError`` where there is no way."""
    for target in (towards, ANYWHERE):
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
                way.connect((target, 9))
                found = str(way.getsockname()[0])
        except OSError:
            continue  # a name that leads nowhere, or no way there
        if not ip_address(found).is_loopback:
            return found
    raise PreflightError(
        f"Unable to find the address of host {host} in the LAN: this machine has no way to {towards}",
        resolution=f"Write it on the page of host {host}: address: 192.168.1.5",
    )
