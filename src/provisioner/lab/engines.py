"""Who answers under which name: models, services and upstreams that an alias can list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.catalog import Catalog, ServiceType
from provisioner.lab.hosts import hostname
from provisioner.spec import ServiceSpec, Spec, Upstream

ENGINE_STAGE = "engine"
ENGINE_PROTOCOL = "openai"


@dataclass(frozen=True, slots=True)
class Engine:
    """One service of the file that answers completions, and the models that it serves."""

    container: str
    service: ServiceSpec
    type: ServiceType
    models: tuple[str, ...]

    @property
    def address(self) -> str:
        """``container/service``."""
        return f"{self.container}/{self.service.role}"

    def model_for(self, name: str) -> str:
        """Which of its models an alias' ``name`` means: the one of that name, else the first; empty without any."""
        return name if name in self.models else next(iter(self.models), "")


def services_of(spec: Spec, catalog: Catalog) -> Iterator[tuple[str, ServiceSpec, ServiceType]]:
    """Every service of the file with its container's name and its page."""
    for name, container in spec.containers.items():
        for service in container.services.values():
            yield name, service, catalog.services[service.role]


def has_stacks(spec: Spec, catalog: Catalog) -> bool:
    """Whether a service is installed with a stack of wheels."""
    return any(
        one.kind == "stack" and option in service.options
        for _, service, page in services_of(spec, catalog)
        for option, one in page.references.items()
    )


def model_options(service: ServiceSpec, page: ServiceType) -> Iterator[tuple[str, int | None, str]]:
    """The names of all models that the options refer to, each with its option and, of several, its place there."""
    for option, reference in page.references.items():
        written = service.options.get(option)
        if reference.kind == "model" and isinstance(written, str):
            yield option, None, written
        if reference.kind == "models":
            yield from ((option, place, name) for place, name in enumerate(written or ()))


def models_of(service: ServiceSpec, page: ServiceType) -> tuple[str, ...]:
    """The names of all models that the service's options refer to."""
    return tuple(dict.fromkeys(name for _, _, name in model_options(service, page)))


def served_models(service: ServiceSpec, page: ServiceType) -> tuple[str, ...]:
    """The names of the models that the service answers with: all of a list, else the first; others help it."""
    listed = tuple(name for _, place, name in model_options(service, page) if place is not None)
    return listed or models_of(service, page)[:1]


def engines_of(spec: Spec, catalog: Catalog) -> tuple[Engine, ...]:
    """Every engine of the file, in its order."""
    return tuple(
        Engine(name, service, page, served_models(service, page))
        for name, service, page in services_of(spec, catalog)
        if page.stage == ENGINE_STAGE and page.protocol == ENGINE_PROTOCOL
    )


def find_engines(engines: Sequence[Engine], name: str) -> tuple[Engine, ...]:
    """The engines that ``name`` means: all that serve the model of that name, or the one at that address."""
    return tuple(engine for engine in engines if name in {*engine.models, engine.address})


def engine_entries(
    spec: Spec, catalog: Catalog, names: Sequence[str], gateway: str, addresses: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What a gateway must know of each engine: name, model, api_base, api_key (``Secret``), whether it is ours.

    ``gateway``: its container; ``addresses``: what ``hostname`` takes.
    """
    engines = engines_of(spec, catalog)
    entries: list[dict[str, Any]] = []
    for name in names:
        entries += [_own_entry(spec, name, engine, gateway, addresses) for engine in find_engines(engines, name)]
        if name in spec.upstreams:
            entries.append(_upstream_entry(name, spec.upstreams[name]))
    return entries


def _upstream_entry(name: str, upstream: Upstream) -> dict[str, Any]:
    # LiteLLM puts a path of its own behind the address.
    address = upstream.base_url and upstream.base_url.rstrip("/")
    entry = {"name": name, "model": upstream.model, "api_base": address, "api_key": upstream.api_key}
    return {**{key: value for key, value in entry.items() if value is not None}, "local": False}


def _own_entry(spec: Spec, name: str, engine: Engine, gateway: str, addresses: Mapping[str, str]) -> dict[str, Any]:
    options = engine.service.options
    served = options.get("alias") or engine.model_for(name) or engine.service.role
    host = hostname(spec, engine.container, gateway, addresses)
    entry: dict[str, Any] = {
        "name": name,
        "model": f"openai/{served}",
        "api_base": f"{base_url(host, engine.service, engine.type)}/v1",
        "local": True,
    }
    key = options.get(engine.type.key_option or "")
    return {**entry, "api_key": key} if key is not None else entry


def port_of(service: ServiceSpec, page: ServiceType) -> int | None:
    """The port that the service listens on: its option's, else its page's."""
    return service.options.get("port", page.port)


def base_url(host: str, service: ServiceSpec, page: ServiceType) -> str:
    """Where the service is reached on ``host``, a name or an address."""
    return f"http://{host}:{port_of(service, page)}"
