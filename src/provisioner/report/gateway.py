"""Where a lab answers and what it serves, for the programs that use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.catalog import Catalog, ServiceType
from provisioner.loader import environment_name
from provisioner.resolve.engines import flatten, model_of, port_of, services_of
from provisioner.spec import ServiceSpec, Spec
from provisioner.state import Secret

PROTOCOL = "openai"
ORDER = ("gateway", "engine")


@dataclass(frozen=True, slots=True)
class Entrance:
    """The service that clients should talk to."""

    container: str
    port: int
    is_on_lan: bool
    key_variable: str
    models: Mapping[str, int | None]

    @property
    def address(self) -> str:
        """How the user calls it: ``container`` and its port."""
        return f"{self.container}:{self.port}"


def entrance_of(spec: Spec, catalog: Catalog) -> Entrance | None:
    """The lab's first gateway, else its first engine that speaks OpenAI's protocol, else None."""
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
        _models(spec, service, page),
    )


def _key_variable(service: ServiceSpec, page: ServiceType) -> str:
    option = page.key_option or ""
    key = service.options.get(option)
    if not isinstance(key, Secret):
        return ""
    # one in clear has its path for a name, which no variable could have
    return environment_name(option if "." in key.name else key.name)


def _models(spec: Spec, service: ServiceSpec, page: ServiceType) -> dict[str, int | None]:
    served = model_of(service, page)
    if served is not None:
        return {str(service.options.get("alias") or served): spec.models[served].context}
    for option, reference in page.references.items():
        if reference.kind == "aliases":
            aliases = service.options.get(option, {})
            return {alias: _context(spec, flatten(aliases, alias)) for alias in aliases}
    return {}


def _context(spec: Spec, engines: tuple[str, ...]) -> int | None:
    """The smallest context behind an alias: whichever of them answers must be able to hold it."""
    contexts = [spec.models[name].context for name in engines if name in spec.models]
    known = [one for one in contexts if one is not None]
    return min(known) if known and len(known) == len(contexts) else None
