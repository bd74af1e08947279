"""What stands for a reference in the options of a service: files of models, engines, addresses. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.catalog import Catalog, ServiceType
from provisioner.gpus.cards import Card
from provisioner.lab.aliases import alias_settings, flatten, for_too_long
from provisioner.lab.artifacts import MODELS_PATH, ModelFile, given_path
from provisioner.lab.engines import base_url, engine_entries, engines_of, find_engines
from provisioner.lab.hosts import hostname
from provisioner.spec import ServiceSpec, Spec

CONTEXT_OPTION = "context"
"""A model's own ``context`` is the default of an engine's option of that name."""

Filled = tuple[dict[str, Any], set[str]]
"""Options with their values, and the addresses of the services that are needed for them."""


@dataclass(frozen=True, slots=True)
class Context:
    """The file and all that is known beside it."""

    spec: Spec
    catalog: Catalog
    models: Mapping[str, ModelFile]
    architectures: Mapping[str, str]
    cards: Mapping[str, Card]
    addresses: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """A service in its container."""

    context: Context
    container: str
    service: ServiceSpec
    page: ServiceType


def filled_in(place: Place, option: str) -> Filled:
    """What the written ``option``, which refers to something, becomes."""
    return _BY_KIND[place.page.references[option].kind](place, option)


def _model(place: Place, option: str) -> Filled:
    context, service, page = place.context, place.service, place.page
    model = str(service.options[option])
    folder_to, name_to = page.references[option].folder_to, page.references[option].name_to
    if folder_to is not None:  # it finds its models by their names below one folder
        return {option: model, folder_to: MODELS_PATH}, set()
    filled: dict[str, Any] = {option: _model_file(context, model)}
    if name_to is None:  # it helps the one that gives its name
        return filled, set()
    filled[name_to] = service.options.get(name_to, model)
    window = context.spec.models[model].context
    if window is not None and CONTEXT_OPTION in page.options:
        filled[CONTEXT_OPTION] = service.options.get(CONTEXT_OPTION, window)
    return filled, set()


def _models(place: Place, option: str) -> Filled:
    """Each by its name; its context is its own where the file says it, else the service's."""
    listed = []
    for model in place.service.options[option]:
        window = place.context.spec.models[model].context
        one = {"alias": model, "path": _model_file(place.context, model), CONTEXT_OPTION: window}
        listed.append({name: value for name, value in one.items() if value is not None})
    return {option: listed}, set()


def _model_file(context: Context, model: str) -> str:
    return given_path(model, context.models[model])


def _aliases(place: Place, option: str) -> Filled:
    spec, catalog, page = place.context.spec, place.context.catalog, place.page
    aliases = place.service.options[option]
    flat = {alias: list(flatten(aliases, alias)) for alias in aliases}
    rare = [name for alias in aliases for name in for_too_long(aliases, alias)]
    names = list(dict.fromkeys([*(name for engines in flat.values() for name in engines), *rare]))
    known = engines_of(spec, catalog)
    filled: dict[str, Any] = {option: flat}
    engines_to, settings_to = page.references[option].engines_to, page.references[option].settings_to
    if engines_to:
        filled[engines_to] = engine_entries(spec, catalog, names, place.container, place.context.addresses)
    if settings_to:
        filled[settings_to] = alias_settings(aliases)
    return filled, {engine.address for name in names for engine in find_engines(known, name)}


def _service(place: Place, option: str) -> Filled:
    spec, address = place.context.spec, str(place.service.options[option])
    container, role = address.split("/", 1)
    other = spec.containers[container].services[role]
    host = hostname(spec, container, place.container, place.context.addresses)
    return {option: base_url(host, other, place.context.catalog.services[role])}, {address}


def _stack(place: Place, option: str) -> Filled:
    """Its wheels were filled in before, by ``with_stacks``."""
    return {option: place.service.options[option]}, set()


_BY_KIND: Mapping[str, Callable[[Place, str], Filled]] = {
    "model": _model,
    "models": _models,
    "aliases": _aliases,
    "service": _service,
    "stack": _stack,
}
