"""What may be wrong with the engines that members of a team name. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from provisioner.lab.aliases import ENGINE_STAGE, find_engines, flatten
from provisioner.lab.members import MEMBERS, MODEL, member_engines, upstream_address, written_members
from provisioner.lab.resolved import ENGINE_PROTOCOL, ResolvedLab
from provisioner.labfile.spec import provider_of
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService
from provisioner.services.routed import CHAT
from provisioner.values.declared import Problem
from provisioner.values.refusals import did_you_mean

LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


def member_names(lab: ResolvedLab) -> Iterator[Problem]:
    """Each member names an engine that chats or an upstream whose address is known, and never who may ask it."""
    for service in lab.services.values():
        for option, reference in service.page.references.items():
            if reference.kind != MEMBERS:
                continue
            for place, member in written_members(service, option):
                yield from _named(lab, service, f"{place}.{MODEL}", str(member[MODEL]))


def _named(lab: ResolvedLab, service: ResolvedService, place: str, name: str) -> Iterator[Problem]:
    engines = member_engines(lab.engines, name)
    if engines:
        engine = engines[0]
        if name not in engine.models and len(engine.models) > 1:
            hint = f"Write one of them: {', '.join(engine.models)}"
            yield service.problem(place, f"{name} serves several models", hint)
        if knowledge_of(engine.service.role).answers(engine.service) != CHAT:
            yield service.problem(place, f"{engine.address} answers no chats", "Name an engine that does.")
    elif name in lab.upstreams:
        if not upstream_address(lab.upstreams[name]):
            provider = provider_of(lab.upstreams[name].model)
            message = f"where {provider} answers in OpenAI's words is not known"
            yield service.problem(place, message, f"Write base_url in upstream {name}, such as https://HOST/v1.")
        asker = _asker_at(lab, service, upstream_address(lab.upstreams[name]))
        if asker is not None:
            message = f"upstream {name} is {asker.address} of this file, which asks others, and may ask this one"
            yield service.problem(place, message, "Name an engine, or one of upstreams that is none of this file.")
    else:
        yield _unknown(lab, service, place, name)


def _asker_at(lab: ResolvedLab, service: ResolvedService, url: str) -> ResolvedService | None:
    """The service of the file behind that address, as ``service`` reaches it, where it is none that computes itself."""
    try:
        host, port = urlsplit(url).hostname, urlsplit(url).port
    except ValueError:  # what is no address is refused where it stands
        return None
    for other in lab.services.values():
        names = {other.container, lab.hostname(other.container, service.container)}
        names |= LOOPBACK if other.container == service.container else set()
        if other.port == port and host in names and other.page.stage != ENGINE_STAGE:
            return other
    return None


def _unknown(lab: ResolvedLab, service: ResolvedService, place: str, name: str) -> Problem:
    for gateway in lab.services.values():
        if name in gateway.aliases:
            behind = flatten(gateway.aliases, name)
            message = f'"{name}" is an alias of {gateway.address}: a team that asks a gateway may ask itself'
            return service.problem(place, message, f"Name an engine: {', '.join(behind)}.")
    if find_engines(lab.engines, name) or name in lab.services:
        message = f"{name} computes no answers: it asks others, and may ask this one"
        return service.problem(place, message, "Name an engine, or one of upstreams.")
    if name in lab.models:
        example = lab.catalog.example(ENGINE_PROTOCOL, "engine")
        return service.problem(place, f'no service serves model "{name}"', f"Give it to an engine{example}.")
    known = {*lab.upstreams, *(model for engine in lab.engines for model in engine.models)}
    hint = did_you_mean(name, sorted(known), always=True) or "There is none in this file."
    return service.problem(place, f'no engine or upstream "{name}" in this file', hint)
