"""Where a lab answers and what it serves, for the programs that use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from provisioner.lab.aliases import Aliases, chat_aliases, find_engines, flatten, for_too_long
from provisioner.lab.resolved import SPEECH_OPTION, ResolvedLab
from provisioner.lab.speech import speakers_for
from provisioner.labfile.loader import environment_name
from provisioner.report.client import Served
from provisioner.services import knowledge_of
from provisioner.services.base import LAN, ResolvedService
from provisioner.services.routed import CHAT
from provisioner.values.state import Secret

PROTOCOL = "openai"
ORDER = ("gateway", "engine")
HTTPS_PORT = 443


@dataclass(frozen=True, slots=True)
class Entrance:
    """The service that clients should talk to."""

    container: str
    port: int
    is_on_lan: bool
    key_variable: str
    models: Mapping[str, Served]
    site: str = ""
    """Its URL behind a door of the lab, ``https://api.home.example``; empty where no door has it as a site."""
    has_own_root: bool = False
    """Whether clients have to trust the lab's own authority for that."""

    @property
    def address(self) -> str:
        """How the user calls it: ``container`` and its port."""
        return f"{self.container}:{self.port}"


def entrance_of(lab: ResolvedLab) -> Entrance | None:
    """The lab's first gateway, else its first engine that answers chats in OpenAI's protocol, else None."""
    service = _first(lab)
    if service is None:
        return None
    return _entrance(lab, service, models_of(lab, service))


def _entrance(lab: ResolvedLab, service: ResolvedService, models: Mapping[str, Served]) -> Entrance:
    site, has_own_root = _site_of(lab, service)
    is_on_lan, key = service.expose == LAN, _key_variable(service)
    return Entrance(service.container, service.port or 0, is_on_lan, key, models, site, has_own_root)


def _site_of(lab: ResolvedLab, service: ResolvedService) -> tuple[str, bool]:
    """The URL of its first site, and whether the lab's own authority signs for it; an empty URL where it has none."""
    for door in lab.services.values():
        for name, used in door.sites.items():
            if used == service.address:
                port = "" if door.port == HTTPS_PORT else f":{door.port}"
                return f"https://{name}{port}", door.authority is not None
    return "", False


def _first(lab: ResolvedLab) -> ResolvedService | None:
    for stage in ORDER:
        for service in lab.services.values():
            is_chat = knowledge_of(service.role).answers(service) == CHAT
            if service.page.protocol == PROTOCOL and service.page.stage == stage and is_chat:
                return service
    return None


@dataclass(frozen=True, slots=True)
class SpeechEndpoint:
    """Where clients have texts spoken: through the lab's gateway, or by the service itself."""

    entrance: Entrance
    model: str
    voice: str


def speech_endpoint_of(lab: ResolvedLab, entrance: Entrance | None) -> SpeechEndpoint | None:
    """Who speaks for clients that talk to ``entrance``: that one where it offers speech, else the first that speaks."""
    through = _speech_through(lab, entrance) if entrance is not None else None
    if through is not None or not lab.speakers:
        return through
    service = lab.speakers[0]
    own = _entrance(lab, service, {})
    speech = knowledge_of(service.role).speech(service)
    return SpeechEndpoint(own, speech.model.removeprefix(f"{PROTOCOL}/"), speech.voice)


def _speech_through(lab: ResolvedLab, entrance: Entrance) -> SpeechEndpoint | None:
    """Speech as the gateway at ``entrance`` offers it; None where it offers none."""
    for gateway in lab.containers[entrance.container].services:
        speakers = speakers_for(lab, gateway) if SPEECH_OPTION in gateway.page.options else ()
        for speaker in speakers:
            return SpeechEndpoint(entrance, speaker.name, speaker.voice)
    return None


def _key_variable(service: ResolvedService) -> str:
    option = service.page.key_option or ""
    key = service.written.get(option)
    if not isinstance(key, Secret):
        return ""
    # one in clear has its path for a name, which no variable could have
    return environment_name(option if "." in key.name else key.name)


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
