"""What stands for a reference in the options of a service: files of models, engines, addresses, keys. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from provisioner.lab.aliases import Aliases, Engine, find_engines, flatten, for_too_long, routed_aliases
from provisioner.lab.artifacts import ModelFile, folder_with, given_path
from provisioner.lab.resolved import ResolvedLab
from provisioner.labfile.spec import Upstream
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService
from provisioner.services.gateway_routes import RoutedEngine
from provisioner.values.address import Address

CONTEXT_OPTION = "context"
"""A model's own ``context`` is the default of an engine's option of that name."""

Filled = dict[str, Any]
"""Options with their values."""


@dataclass(frozen=True, slots=True)
class Place:
    """A service in its lab; ``files`` holds the file of every model that a service uses."""

    lab: ResolvedLab
    service: ResolvedService
    files: Mapping[str, ModelFile]


def filled_in(place: Place, option: str) -> Filled:
    """What the written ``option``, which refers to something, becomes."""
    return _BY_KIND[place.service.page.references[option].kind](place, option)


def _model(place: Place, option: str) -> Filled:
    service, page = place.service, place.service.page
    model = str(service.written[option])
    folder_to, name_to = page.references[option].folder_to, page.references[option].name_to
    if folder_to is not None:  # it finds the model by its name in that folder
        return {option: model, folder_to: folder_with(place.files[model])}
    filled: dict[str, Any] = {option: _model_file(place, model)}
    if name_to is None:  # it helps the one that gives its name
        return filled
    filled[name_to] = service.name_of(model)
    window = place.lab.models[model].context
    if window is not None and CONTEXT_OPTION in page.options:
        filled[CONTEXT_OPTION] = service.said.get(CONTEXT_OPTION, window)
    return filled


def _models(place: Place, option: str) -> Filled:
    """Each by its name; its context is its own where the file says it, else the service's."""
    listed = []
    for model in place.service.written[option]:
        entry: dict[str, Any] = {"alias": model, "path": _model_file(place, model)}
        window = place.lab.models[model].context
        if window is not None:
            entry[CONTEXT_OPTION] = window
        listed.append(entry)
    return {option: listed}


def _model_file(place: Place, model: str) -> str:
    return given_path(model, place.files[model])


def _aliases(place: Place, option: str) -> Filled:
    written, reference = place.service.written[option], place.service.page.references[option]
    if not reference.routes_to:
        return {}
    engines = [engine for name in _engine_names(written) for engine in _routed_engines(place, name)]
    routed = routed_aliases(written, place.lab.engines)
    return {reference.routes_to: knowledge_of(place.service.role).routes(routed, engines)}


def _engine_names(aliases: Aliases) -> list[str]:
    """The engines of all aliases in the order of the file, then those that are only asked what is too long."""
    usual = [name for alias in aliases for name in flatten(aliases, alias)]
    rare = [name for alias in aliases for name in for_too_long(aliases, alias)]
    return list(dict.fromkeys([*usual, *rare]))


def _routed_engines(place: Place, name: str) -> Iterator[RoutedEngine]:
    """The engines of the lab that ``name`` means, and the upstream of that name."""
    for engine in find_engines(place.lab.engines, name):
        yield _own_engine(place, name, engine)
    if name in place.lab.upstreams:
        yield _upstream_engine(name, place.lab.upstreams[name])


def _upstream_engine(name: str, upstream: Upstream) -> RoutedEngine:
    address = (upstream.base_url or "").rstrip("/")  # a gateway puts a path of its own behind the address
    return RoutedEngine(name, upstream.model, is_ours=False, api_base=address, api_key=upstream.api_key)


def _own_engine(place: Place, name: str, engine: Engine) -> RoutedEngine:
    service = engine.service
    served = service.name_of(engine.model_for(name)) or knowledge_of(service.role).offers(service)[0]
    address = f"{place.lab.base_url(service, place.service.container)}/v1"
    answers = knowledge_of(service.role).answers(service)
    model = f"openai/{served}"
    return RoutedEngine(name, model, is_ours=True, api_base=address, api_key=service.key, answers=answers)


def _members(place: Place, option: str) -> Filled:
    """As they are written, and beside them where each of them is asked."""
    from provisioner.lab.aliases import (
        MODEL,
        member_engines,
        written_members,
    )  # nothing that a lab without a team needs

    written, reference = place.service.written[option], place.service.page.references[option]
    asked: list[dict[str, Any]] = []
    for _, member in written_members(place.service, option):
        name = str(member[MODEL])
        engines = member_engines(place.lab.engines, name)[:1]
        routed = [_own_engine(place, name, engine) for engine in engines] or [_asked_upstream(place, name)]
        asked += [_asked(engine) for engine in routed]
    return {option: written, str(reference.routes_to): asked}


def _asked_upstream(place: Place, name: str) -> RoutedEngine:
    from provisioner.lab.aliases import upstream_address  # nothing that a lab without a team needs

    upstream = place.lab.upstreams[name]
    return replace(_upstream_engine(name, upstream), api_base=upstream_address(upstream))


def _asked(engine: RoutedEngine) -> dict[str, Any]:
    """Where an engine is asked by who knows nothing of providers."""
    model = engine.model.partition("/")[2]
    asked: dict[str, Any] = {"model": model, "base_url": engine.api_base, "local": engine.is_ours}
    return asked if engine.api_key is None else {**asked, "api_key": engine.api_key}


def _service(place: Place, option: str) -> Filled:
    """The other service's address, and its key and what it is asked for where the page has options for them."""
    other = place.lab.services[Address(place.service.written[option])]
    filled: dict[str, Any] = {option: place.lab.base_url(other, place.service.container)}
    reference = place.service.page.references[option]
    if reference.key_to and other.key is not None:
        filled[reference.key_to] = other.key
    if reference.answers and reference.model_to:
        from provisioner.lab.connections import asked_for  # nothing that a lab without them needs

        filled[reference.model_to] = (
            place.service.written.get(reference.model_to) or asked_for(place.lab, other, reference.answers)[0]
        )
    return filled


def _services(place: Place, option: str) -> Filled:
    """Where each of the services answers, with its key, and what it is asked for."""
    from provisioner.lab.connections import connection  # nothing that a lab without them needs

    user = place.service.container
    return {option: [connection(place.lab, user, Address(used)) for used in place.service.written[option]]}


def _sites(place: Place, option: str) -> Filled:
    """Of each site where its service answers that it is well."""
    addresses: dict[str, str] = {}
    for name, written in place.service.written[option].items():
        service = place.lab.services[Address(written)]
        addresses[name] = f"{place.lab.base_url(service, place.service.container)}{service.health}"
    return {option: addresses}


def _stack(place: Place, option: str) -> Filled:
    """Its name; its wheels are among the derived options."""
    return {option: place.service.written[option]}


def _fetched(place: Place, option: str) -> Filled:
    """What it fetches by itself, as it is written."""
    return {option: place.service.written[option]}


def _file(place: Place, option: str) -> Filled:
    """What is in it."""
    return {option: place.service.texts[option]}


def _files(place: Place, option: str) -> Filled:
    """The name of each, and what is in it."""
    listed = []
    for number, written in enumerate(place.service.written[option]):
        text = place.service.texts[f"{option}.{number}"]
        listed.append({"name": PurePath(written).name, "text": text})
    return {option: listed}


def _reaches(place: Place, option: str) -> Filled:
    """The addresses of what it may reach."""
    from provisioner.lab.egress import destinations  # nothing that a lab without others' code needs

    return {option: destinations(place.lab, place.service)}


_BY_KIND: Mapping[str, Callable[[Place, str], Filled]] = {
    "model": _model,
    "models": _models,
    "aliases": _aliases,
    "service": _service,
    "services": _services,
    "stack": _stack,
    "sites": _sites,
    "file": _file,
    "files": _files,
    "fetched": _fetched,
    "members": _members,
    "reaches": _reaches,
}
