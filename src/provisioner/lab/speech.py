"""How a gateway offers the services that speak. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from provisioner.lab.resolved import ResolvedLab, speaks_for
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService

OFFERED_AS = "tts"
"""The name that clients know speech by."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """A service that speaks, as a gateway offers it: ``name`` is what clients ask for."""

    service: ResolvedService
    name: str
    model: str
    api_base: str
    voice: str

    def entry(self) -> dict[str, Any]:
        """What the gateway's role is told of it; the key, which it may ask for, as a ``Secret``."""
        told = {"name": self.name, "model": self.model, "api_base": self.api_base, "voice": self.voice}
        key = self.service.key
        return {**told, "api_key": key} if key is not None else told


def speakers_for(lab: ResolvedLab, gateway: ResolvedService) -> tuple[Speaker, ...]:
    """The services that the gateway offers, which speak on its own host.

    The first is offered as ``tts``, where that is no other name of the file; the others by their containers' names.
    """
    taken = _offered_names(lab, gateway)
    speakers: list[Speaker] = []
    for service in lab.speakers:
        if not speaks_for(lab.containers, gateway, service):
            continue
        is_first = not speakers and OFFERED_AS not in taken
        name = OFFERED_AS if is_first else f"{OFFERED_AS}-{service.container}"
        spoken = knowledge_of(service.role).speech(service)
        base = f"{lab.base_url(service, gateway.container)}/v1"
        speakers.append(Speaker(service, name, spoken.model, base, spoken.voice))
    return tuple(speakers)


def _offered_names(lab: ResolvedLab, gateway: ResolvedService) -> set[str]:
    """What the gateway's container offers already."""
    services = lab.containers[gateway.container].services
    aliases = {alias for service in services for alias in service.aliases}
    return {*lab.models, *lab.upstreams, *aliases}
