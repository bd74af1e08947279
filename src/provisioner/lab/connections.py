"""Services that another one names as those it asks: for completions, to speak, or for embeddings. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from provisioner.catalog import STAGES
from provisioner.lab.aliases import chat_aliases, flatten, kinds_of
from provisioner.lab.resolved import ENGINE_PROTOCOL, SPEECH_PROTOCOL, ResolvedLab
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService
from provisioner.services.gateway_routes import CHAT, EMBEDDING, RERANK
from provisioner.values.address import Address
from provisioner.values.declared import Problem
from provisioner.values.refusals import did_you_mean

_DOES_NOT = {CHAT: "answers no chats", EMBEDDING: "makes no embeddings", RERANK: "orders no documents"}


def connection(lab: ResolvedLab, user: str, address: Address) -> dict[str, Any]:
    """What the role of a service in container ``user`` is told of one that it asks; the key as a ``Secret``.

    ``model`` is what it is asked for by a proof: the first alias of a gateway, or the first model of an engine.
    ``models`` are the aliases that people are offered, where a gateway has others, which answer no chats.
    """
    service = lab.services[address]
    told: dict[str, Any] = {
        "name": str(address),
        "protocol": service.page.protocol,
        "url": f"{lab.base_url(service, user)}/v1",
        "model": _offered(lab, service)[0],
    }
    chats = chat_aliases(lab.engines, service.aliases)
    if chats and len(chats) < len(service.aliases):
        told["models"] = list(chats)
    if service.page.protocol == SPEECH_PROTOCOL:
        speech = knowledge_of(service.role).speech(service)
        _, _, model = speech.model.partition("/")
        told["model"] = model
        told["voice"] = speech.voice
    if service.key is not None:
        told["api_key"] = service.key
    return told


def _offered(lab: ResolvedLab, service: ResolvedService) -> tuple[str, ...]:
    """The names under which it answers chats; those of a gateway are its aliases."""
    models = tuple(map(service.name_of, service.served_models))
    return chat_aliases(lab.engines, service.aliases) or models or knowledge_of(service.role).offers(service)


def connection_problems(lab: ResolvedLab, user: ResolvedService, option: str) -> Iterator[Problem]:
    """What of a list of services is not there, cannot be asked, or lets everybody ask it."""
    able = [str(one.address) for one in lab.services.values() if _can_be_asked(lab, one)]
    names = list(user.written[option])
    for place, written in enumerate(names):
        found = _objection(lab, written, able) or _too_late(user, lab.services[Address(written)])
        if written in names[:place]:
            found = f"{written} is named twice", "Name it once."
        if found is not None:
            message, hint = found
            yield user.problem(f"{option}.{place}", message, hint)


def _objection(lab: ResolvedLab, written: str, able: list[str]) -> tuple[str, str] | None:
    """Why a service cannot be asked, and what to do; None where it can."""
    service = lab.services.get(Address(written))
    if service is None:
        hint = did_you_mean(written, sorted(able), always=True)
        return f'no service "{written}" in this file', hint
    if not _can_be_asked(lab, service):
        listed = ", ".join(sorted(able))
        return f"{_who(service, written)} answers no completions, and does not speak", f"Name one that does: {listed}"
    return _open_to_all(service)


def _too_late(user: ResolvedService, service: ResolvedService) -> tuple[str, str] | None:
    """That it is made after who would ask it, which it may itself ask; None where that is well."""
    if STAGES.index(service.page.stage) < STAGES.index(user.page.stage):
        return None
    message = f"{service.address} ({service.page.stage}) is not made before {user.address} ({user.page.stage})"
    return message, "Name the engines that it asks."


def _open_to_all(service: ResolvedService) -> tuple[str, str] | None:
    """That it could have a key and has none, and what to write; None where that is well."""
    key = service.page.key_option
    if not key or service.key is not None:
        return None
    secret = f"{service.container.replace('-', '_')}_key"
    message = f"{service.address} asks for no key, so that everybody on its network may ask it"
    return message, f"Give {service.address} one: {key}: !secret {secret}"


def asked_for(lab: ResolvedLab, service: ResolvedService, kind: str) -> tuple[str, ...]:
    """The aliases or models by which a service is asked for one kind of answer; empty where it gives none."""
    if service.aliases:
        return tuple(alias for alias in service.aliases if kind in _kinds_of(lab, service, alias))
    if service.page.protocol != ENGINE_PROTOCOL or knowledge_of(service.role).answers(service) != kind:
        return ()
    return tuple(map(service.name_of, service.served_models)) or knowledge_of(service.role).offers(service)


def _kinds_of(lab: ResolvedLab, gateway: ResolvedService, alias: str) -> tuple[str, ...]:
    """What the engines of an alias answer; empty where nobody knows it, as all of them are elsewhere."""
    return tuple(kinds_of(lab.engines, flatten(gateway.aliases, alias)))


def asked_problems(lab: ResolvedLab, user: ResolvedService, option: str) -> Iterator[Problem]:
    """What keeps a service from asking the one that it names: it does something else, by no name, or for everybody."""
    model_to = str(user.page.references[option].model_to)
    written = user.written.get(option)
    if not written and user.written.get(model_to):
        message = f"it is a name at the service in {option}, which is missing"
        yield user.problem(model_to, message, f"Add {option}.")
    if not written:
        return
    service = lab.services[Address(written)]
    unnamed = _name_problem(lab, user, option, service)
    if unnamed is not None:
        yield unnamed
    found = _open_to_all(service)
    if found is not None:
        message, hint = found
        yield user.problem(option, message, hint)


def _name_problem(lab: ResolvedLab, user: ResolvedService, option: str, service: ResolvedService) -> Problem | None:
    """Why nobody knows by which name the service is to be asked; None where that is known."""
    reference = user.page.references[option]
    kind, model_to = str(reference.answers), str(reference.model_to)
    model = user.written.get(model_to)
    names = asked_for(lab, service, kind)
    unknown = list[str]()
    for alias in service.aliases:
        if not _kinds_of(lab, service, alias):
            unknown.append(alias)
    is_named_elsewhere = bool(model and unknown)
    if not names and not is_named_elsewhere:
        hint = _able(lab, kind, tuple(unknown), model_to)
        return user.problem(option, f"{service.address} {_DOES_NOT[kind]}", hint)
    candidates = sorted((*names, *unknown))
    if model and model not in candidates:
        hint = did_you_mean(model, candidates, always=True)
        return user.problem(model_to, f"{model} of {service.address} {_DOES_NOT[kind]}", hint)
    if not model and len(names) > 1:
        message = f"{service.address} has several names for that: {', '.join(names)}"
        return user.problem(option, message, f"Write {model_to} beside it, with one of them.")
    return None


def _able(lab: ResolvedLab, kind: str, unknown: tuple[str, ...], model_to: str) -> str:
    """Whom one could name instead, or which alias, of which nobody knows what it answers."""
    able = sorted(str(one.address) for one in lab.services.values() if asked_for(lab, one, kind))
    if able:
        return f"Name one that does: {', '.join(able)}"
    if unknown:
        return f"If one of its aliases does, elsewhere, write {model_to}: {' | '.join(unknown)}"
    roles = " or ".join(role for role, page in lab.catalog.offered.items() if kind in page.options)
    return f"Add an engine that does: {roles} with {kind}: true." if roles else "No engine here does."


def _who(service: ResolvedService, written: str) -> str:
    """What answers nothing: all services of its kind, or this one by its options."""
    return written if service.page.protocol == ENGINE_PROTOCOL else service.page.title


def _can_be_asked(lab: ResolvedLab, service: ResolvedService) -> bool:
    """Whether it speaks or answers chats: a gateway may offer embeddings alone, as an engine may make nothing else."""
    if service.page.protocol != ENGINE_PROTOCOL:
        return service.page.protocol == SPEECH_PROTOCOL
    is_chat = knowledge_of(service.role).answers(service) == CHAT
    return is_chat and (not service.aliases or bool(chat_aliases(lab.engines, service.aliases)))
