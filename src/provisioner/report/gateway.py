"""Where a lab answers and what it serves, for the programs that use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from provisioner.catalog import Catalog, ServiceType
from provisioner.gguf import Header
from provisioner.lab.aliases import Aliases, flatten, for_too_long
from provisioner.lab.engine_options import request_context, takes_images
from provisioner.lab.engines import Engine, engines_of, find_engines, port_of, served_models, services_of
from provisioner.lab.speech import PROTOCOL as SPEECH
from provisioner.lab.speech import speakers
from provisioner.loader import environment_name
from provisioner.report.client import Served
from provisioner.spec import ServiceSpec, Spec
from provisioner.state import Secret

PROTOCOL = "openai"
ORDER = ("gateway", "engine")

Headers = Mapping[str, Header]


@dataclass(frozen=True, slots=True)
class Entrance:
    """The service that clients should talk to."""

    container: str
    port: int
    is_on_lan: bool
    key_variable: str
    models: Mapping[str, Served]

    @property
    def address(self) -> str:
        """How the user calls it: ``container`` and its port."""
        return f"{self.container}:{self.port}"


def entrance_of(spec: Spec, catalog: Catalog, headers: Headers) -> Entrance | None:
    """The lab's first gateway, else its first engine that speaks OpenAI's protocol, else None.

    ``headers`` tells of the models whose files are known what they were trained with.
    """
    found = [
        (ORDER.index(page.stage), container, service, page)
        for container, service, page in services_of(spec, catalog)
        if page.protocol == PROTOCOL and page.stage in ORDER
    ]
    if not found:
        return None
    _, container, service, page = min(found, key=lambda one: one[0])
    return Entrance(
        container,
        port_of(service, page) or 0,
        service.expose == "lan",
        _key_variable(service, page),
        _models(spec, catalog, service, page, headers),
    )


@dataclass(frozen=True, slots=True)
class Mouth:
    """Where clients have texts spoken: through the lab's gateway, or by the service itself, which asks for no key."""

    entrance: Entrance
    model: str
    voice: str


def mouth_of(spec: Spec, catalog: Catalog, entrance: Entrance | None) -> Mouth | None:
    """Who speaks for clients that talk to ``entrance``: that one where it offers speech, else the first that speaks."""
    if entrance and any("aliases" in one.options for one in spec.containers[entrance.container].services.values()):
        for offered in speakers(spec, catalog, entrance.container).values():
            return Mouth(entrance, offered["name"], offered["voice"])
    for container, service, page in services_of(spec, catalog):
        if page.protocol == SPEECH:
            voice = service.options.get("default_voice", page.options["default_voice"].default)
            port = port_of(service, page) or 0
            return Mouth(Entrance(container, port, service.expose == "lan", "", {}), service.role, str(voice))
    return None


def _key_variable(service: ServiceSpec, page: ServiceType) -> str:
    option = page.key_option or ""
    key = service.options.get(option)
    if not isinstance(key, Secret):
        return ""
    # one in clear has its path for a name, which no variable could have
    return environment_name(option if "." in key.name else key.name)


def _models(
    spec: Spec, catalog: Catalog, service: ServiceSpec, page: ServiceType, headers: Headers
) -> dict[str, Served]:
    served = served_models(service, page)
    if served:
        return {
            str(service.options.get("alias") or name): _limits(spec, service, page, headers, name) for name in served
        }
    known = engines_of(spec, catalog)
    for option, reference in page.references.items():
        if reference.kind == "aliases":
            aliases = service.options.get(option, {})
            return {alias: _alias(spec, known, aliases, alias, headers) for alias in aliases}
    return {}


def _alias(spec: Spec, known: Sequence[Engine], aliases: Aliases, alias: str, headers: Headers) -> Served:
    """What its engines hold, or those that are named for what is too long for them where they hold more."""
    usual, rare = _behind(spec, known, flatten(aliases, alias), headers), for_too_long(aliases, alias)
    most = _behind(spec, known, rare, headers).context if rare else usual.context
    is_more = usual.context is not None and (most is None or most > usual.context)
    return Served(most, usual.vision) if is_more else usual


def _behind(spec: Spec, known: Sequence[Engine], names: Iterable[str], headers: Headers) -> Served:
    """The least of all that an alias stands for: whichever of them answers must be able to hold the request."""
    each: list[Served] = []
    for name in names:
        engines = find_engines(known, name)
        found = [_limits(spec, one.service, one.type, headers, one.model_for(name)) for one in engines]
        each += found or [Served()]  # an upstream, which tells nobody
    contexts = [one.context for one in each if one.context is not None]
    return Served(min(contexts) if each and len(contexts) == len(each) else None, all(one.vision for one in each))


def _limits(spec: Spec, service: ServiceSpec, page: ServiceType, headers: Headers, model: str) -> Served:
    asked = request_context(spec, service, page, model, headers.get(model))
    return Served(asked, takes_images(service))
