"""Addresses for people and clients of a lab: its pages and desktops, its gateway, and its containers."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from provisioner.catalog import Catalog
from provisioner.cli.options import DEFAULT_FILE
from provisioner.cli.session import Session
from provisioner.hosts.base import Provider
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import ENGINE_PROTOCOL, SPEECH_PROTOCOL
from provisioner.labfile.loader import place_of_secret
from provisioner.page.clients import (
    PROTOCOL,
    Endpoint,
    Entrance,
    Gateway,
    Speech,
    endpoints_of,
    entrance_of,
    speech_endpoint_of,
)
from provisioner.report.style import table
from provisioner.services.base import LAN
from provisioner.values.errors import InputError, PreflightError

# The gateway: where clients ask, and where they have texts spoken.


class FindAddress(Protocol):
    """Finds the address of a container; ``PreflightError`` where it has none now."""

    def __call__(self, name: str, /, *, is_on_lan: bool) -> str:
        """``is_on_lan``: that at which its host shows it to the LAN, where there is one."""


@dataclass(frozen=True, slots=True)
class Answering:
    """Where a lab answers; ``needs_root``: clients have to trust the root of its own authority."""

    gateway: Gateway
    needs_root: bool


def answering(lab: Lab, find_address: FindAddress) -> Answering:
    """Where clients ask; ``InputError`` where no service of the file speaks with them."""
    entrance = entrance_of(lab.resolved)
    endpoint = speech_endpoint_of(lab.resolved, entrance)
    first = entrance or (endpoint.entrance if endpoint else None)
    if first is None:
        raise InputError(
            f"Unable to tell clients where lab {lab.name} answers: no service of the file speaks their protocol",
            resolution=_what_to_add(lab.resolved.catalog),
        )
    url = _url(first, find_address)
    speech = None
    if endpoint is not None:
        speaks_at = url if endpoint.entrance == first else _url(endpoint.entrance, find_address)
        speech = Speech(speaks_at, endpoint.entrance.key_variable, endpoint.model, endpoint.voice)
    key = place_of_secret(lab.loaded, first.key)
    gateway = Gateway(lab.name, url, first.key_variable, first.models, speech, key.command)
    return Answering(gateway, first.has_own_root)


def _what_to_add(catalog: Catalog) -> str:
    gateway, engine = catalog.example(PROTOCOL, "gateway"), catalog.example(PROTOCOL, "engine")
    return f"Add a gateway{gateway}, an engine{engine}, or speech{catalog.example(SPEECH_PROTOCOL)}."


def _url(entrance: Entrance, find_address: FindAddress) -> str:
    if entrance.site:
        return f"{entrance.site}/v1"
    address = find_address(entrance.container, is_on_lan=entrance.is_on_lan)
    return f"http://{address}:{entrance.port}/v1"


# The address of a container: its own, or its host's where that shows it to the LAN.


def address_of(session: Session, lab: Lab, name: str, *, is_on_lan: bool) -> str:
    """The address of a service in that container; ``PreflightError`` where it does not run."""
    from provisioner.reconcile.addresses import lan_address

    return (lan_address(lab, name) if is_on_lan else None) or _observed_address(session, lab, name)


def _observed_address(session: Session, lab: Lab, name: str) -> str:
    from provisioner.reconcile import observe

    actual = observe.observe(lab.name, session.effects(lab).providers)
    there = actual.instance(name)
    what = f"Unable to tell the address of container {name}"
    if there is None:
        why, hint = actual.absence(name, lab.loaded.path)
        raise PreflightError(f"{what}: {why}", resolution=hint)
    if there.address is None:
        raise PreflightError(f"{what}: it does not run", resolution=f"Run: provision up {lab.loaded.path}")
    return there.address


# All addresses that people need, as `up` and `status` tell them at their end.

HEAD = ("ADDRESS", "SERVICE", "SIGN IN", "NEXT")


@dataclass(frozen=True, slots=True)
class Shown:
    """One address of the lab as it is told: ``url`` is empty while its container has none.

    ``secret`` says where the password or the key lies, and ``next`` is the command that goes on from here.
    """

    service: str
    kind: str
    url: str
    user: str
    secret: str
    next: str


def say_endpoints(session: Session, lab: Lab, addresses: Mapping[str, str | None], names: Collection[str] = ()) -> None:
    """Tell where people go from here, of these containers (none: of all).

    ``addresses``: those of containers, None for one that has none now; one that is reached otherwise needs none.
    """
    console = session.console
    rows = list[tuple[str, ...]]()
    for shown in _shown(lab, addresses, names):
        console.line("endpoint", shown)
        if shown.url:
            rows.append((shown.url, shown.service, _sign_in(shown), shown.next))
    if rows:
        console.say(f"\n{table(HEAD, rows, console.style)}")


def asked_addresses(lab: Lab, providers: Mapping[str, Provider], names: Collection[str] = ()) -> dict[str, str | None]:
    """Ask the hosts for addresses of containers that no door and no host stands before; those with them need none.

    Of a container whose host is not among the ``providers`` none is known.
    """
    from provisioner.lab.resolved import host_name
    from provisioner.reconcile import observe

    containers = lab.resolved.containers
    hosts = {
        name: host_name(containers[name])
        for name in sorted({one.service.container for one in _named(lab, names) if not _is_reached(lab, one)})
    }
    asked = {host: providers[host] for host in sorted(set(hosts.values()) & providers.keys())}
    actual = observe.observe(lab.name, asked)
    return dict.fromkeys(hosts) | {instance.name: instance.address for instance in actual.instances}


def _named(lab: Lab, names: Collection[str]) -> Iterator[Endpoint]:
    """The addresses of these containers, or of all where none is named."""
    for endpoint in endpoints_of(lab.resolved):
        if not names or endpoint.service.container in names:
            yield endpoint


def _is_reached(lab: Lab, endpoint: Endpoint) -> bool:
    """Return True where the file alone says the address at which people reach the service."""
    return bool(endpoint.site) or _lan_address(lab, endpoint) is not None


def _lan_address(lab: Lab, endpoint: Endpoint) -> str | None:
    """The address of the host that shows the service to the LAN; None where none does."""
    from provisioner.reconcile.addresses import lan_address

    service = endpoint.service
    return lan_address(lab, service.container) if service.expose == LAN else None


def _shown(lab: Lab, addresses: Mapping[str, str | None], names: Collection[str]) -> Iterator[Shown]:
    """Each address as it is told; one of a container that does not run is empty, also behind a door."""
    for endpoint in _named(lab, names):
        service = endpoint.service
        address = addresses.get(service.container, "")
        if address is not None:
            address = _lan_address(lab, endpoint) or address
        url = "" if address is None else endpoint.url(address)
        secret = place_of_secret(lab.loaded, endpoint.secret).words
        yield Shown(
            service=service.address,
            kind=endpoint.kind,
            url=url,
            user=endpoint.user,
            secret=secret,
            next=next_command(lab, endpoint),
        )


def next_command(lab: Lab, endpoint: Endpoint) -> str:
    """The command that opens a page or a desktop, or says what clients of an API need; empty for other APIs."""
    file = () if str(lab.loaded.path) == DEFAULT_FILE else (str(lab.loaded.path),)
    if endpoint.kind != "api":
        return shlex.join(("provision", "open", *file, str(endpoint.service.address)))
    speaks = endpoint.service.page.protocol in (ENGINE_PROTOCOL, SPEECH_PROTOCOL)
    return shlex.join(("provision", "show", "--client", "openai", *file)) if speaks else ""


def _sign_in(shown: Shown) -> str:
    """The account and where its password lies, or where the key lies; a dash where nobody is asked who comes."""
    if not shown.secret:
        return shown.user or "-"
    return f"{shown.user}, password: {shown.secret}" if shown.user else f"key: {shown.secret}"
