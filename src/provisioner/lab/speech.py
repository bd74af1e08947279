"""Services that speak: what their cards decide, and how a gateway offers them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.catalog import Catalog
from provisioner.gpus.cards import Card
from provisioner.lab.cards import described
from provisioner.lab.engines import base_url, services_of
from provisioner.lab.hosts import host_of, hostname
from provisioner.spec import Spec
from provisioner.state import Problem

ROLE, PROTOCOL = "kokoro", "speech"
NVIDIA = "nvidia"
MODEL = "openai/kokoro"
OFFERED_AS = "tts"
"""The name that clients know speech by."""


def told(written: Mapping[str, Any], card: Card) -> dict[str, Any]:
    """What follows for the service from its container's card, where the file leaves that open."""
    takes = card.vendor == NVIDIA and written.get("device", "auto") != "cpu"
    return {"torch": "cuda", "card": described(card)} if takes else {}


def speech_card_problems(spec: Spec, catalog: Catalog, cards: Mapping[str, Card]) -> Iterator[Problem]:
    """Who is to compute on a card of nvidia and gets none: never on the CPU in silence."""
    for name, service, page in services_of(spec, catalog):
        if page.protocol != PROTOCOL or service.options.get("device") != NVIDIA:
            continue
        path, card = ("containers", name, "services", service.role, "device"), cards.get(name)
        if card is None:
            hint = "Give the container one (gpu: …), or write device: cpu."
            yield Problem(path, "its container has no card of nvidia", hint)
        elif card.vendor != NVIDIA:
            yield Problem(path, f"{card.title} is not one of nvidia", "Write device: cpu, or give it another card.")


def speakers(
    spec: Spec, catalog: Catalog, gateway: str, addresses: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """The services that speak on the host of container ``gateway``, by address: what it must know of each.

    The first is offered as ``tts``, where that is no other name of the file; the others by their containers' names.
    ``addresses``: what ``hostname`` takes.
    """
    here = host_of(spec, spec.containers[gateway])
    found: dict[str, dict[str, Any]] = {}
    for name, service, page in services_of(spec, catalog):
        if page.protocol == PROTOCOL and host_of(spec, spec.containers[name]) == here:
            offered = f"{OFFERED_AS}-{name}" if found or OFFERED_AS in _names(spec, gateway) else OFFERED_AS
            host = hostname(spec, name, gateway, addresses or {})
            entry = {"name": offered, "model": MODEL, "api_base": f"{base_url(host, service, page)}/v1"}
            found[f"{name}/{service.role}"] = {**entry, "voice": service.options.get("default_voice", _voice(page))}
    return found


def _voice(page: Any) -> str:
    return str(page.options["default_voice"].default)


def _names(spec: Spec, gateway: str) -> set[str]:
    """What the gateway offers already."""
    services = spec.containers[gateway].services.values()
    aliases = {name for service in services for name in service.options.get("aliases") or {}}
    return {*spec.models, *spec.upstreams, *aliases}
