"""The models that an engine or a gateway can be asked for, and what each of them takes of a request. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from provisioner.lab.aliases import Aliases, chat_aliases, find_engines, flatten, for_too_long
from provisioner.lab.resolved import ResolvedLab
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService

_OUTPUT_TOKENS = 8192
_OUTPUT_SHARE = 4


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
