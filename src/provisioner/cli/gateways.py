"""Addresses for clients of a lab: its gateway with the URL, and its containers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from provisioner.catalog import Catalog
from provisioner.cli.session import Session
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import SPEECH_PROTOCOL
from provisioner.page.clients import PROTOCOL, Entrance, Gateway, Speech, entrance_of, speech_endpoint_of
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
    return Answering(Gateway(lab.name, url, first.key_variable, first.models, speech), first.has_own_root)


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
