"""The models and voices that an engine or a gateway can be asked for, and what each model takes of a request. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from provisioner.lab.aliases import Aliases, chat_aliases, find_engines, flatten, for_too_long
from provisioner.lab.resolved import ResolvedLab, speaks_for
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService

OFFERED_AS = "tts"
"""The name that clients know speech by."""
_OUTPUT_TOKENS = 8192
_OUTPUT_SHARE = 4


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


@dataclass(frozen=True, slots=True)
class Served:
    """What a model takes: tokens of one request with its answer (None when nobody here knows), and perhaps images."""

    context: int | None = None
    vision: bool = False

    @property
    def output(self) -> int | None:
        """How many of the tokens a client should leave for the answer."""
        return min(self.context // _OUTPUT_SHARE, _OUTPUT_TOKENS) if self.context else None


def models_of(lab: ResolvedLab, service: ResolvedService) -> dict[str, Served]:
    """What can be asked of an engine or a gateway, by the names by which it is asked."""
    if service.served_models:
        return {service.name_of(name): _limits(service, name) for name in service.served_models}
    return {alias: _alias(lab, service.aliases, alias) for alias in chat_aliases(lab.engines, service.aliases)}


def _alias(lab: ResolvedLab, aliases: Aliases, alias: str) -> Served:
    """What its engines hold, or those that are named for what is too long for them where they hold more."""
    usual, rare = _behind(lab, flatten(aliases, alias)), for_too_long(aliases, alias)
    if usual.context is None or not rare:
        return usual
    most = _behind(lab, rare).context
    if most is None or most > usual.context:
        return Served(most, usual.vision)
    return usual


def _behind(lab: ResolvedLab, names: Iterable[str]) -> Served:
    """The least of all that an alias stands for: whichever of them answers must be able to hold the request."""
    each: list[Served] = []
    for name in names:
        engines = find_engines(lab.engines, name)
        found = [_limits(engine.service, engine.model_for(name)) for engine in engines]
        each += found or [Served()]  # an upstream, which tells nobody
    contexts = [served.context for served in each if served.context is not None]
    is_known = bool(each) and len(contexts) == len(each)
    return Served(min(contexts) if is_known else None, all(served.vision for served in each))


def _limits(service: ResolvedService, model: str) -> Served:
    limits = knowledge_of(service.role).limits(service, model)
    return Served(limits.context, limits.vision)


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
