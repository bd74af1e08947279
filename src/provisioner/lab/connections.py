"""Services that another one lists as those it asks: for completions, or to speak. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from provisioner.lab.aliases import chat_aliases
from provisioner.lab.resolved import ENGINE_PROTOCOL, SPEECH_PROTOCOL, ResolvedLab
from provisioner.services import knowledge_of
from provisioner.services.base import CHAT, ResolvedService
from provisioner.values.address import Address
from provisioner.values.refusals import did_you_mean
from provisioner.values.state import Problem


def connection(lab: ResolvedLab, user: str, address: Address) -> dict[str, Any]:
    """What the role of a service in container ``user`` is told of one that it asks; the key as a ``Secret``.

    ``model`` is what it is asked for by a proof: the first alias of a gateway, or the first model of an engine.
    """
    service = lab.services[address]
    told: dict[str, Any] = {
        "name": str(address),
        "protocol": service.page.protocol,
        "url": f"{lab.base_url(service, user)}/v1",
        "model": _offered(lab, service)[0],
    }
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
    return chat_aliases(lab.engines, service.aliases) or models or (service.role,)


def connection_problems(lab: ResolvedLab, user: ResolvedService, option: str) -> Iterator[Problem]:
    """What of a list of services is not there, cannot be asked, or lets everybody ask it."""
    able = [str(one.address) for one in lab.services.values() if _can_be_asked(lab, one)]
    names = list(user.written[option])
    for place, written in enumerate(names):
        found = _objection(lab, written, able)
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
    key = service.page.key_option
    if key and service.key is None:
        secret = f"{service.container.replace('-', '_')}_key"
        message = f"{written} asks for no key, so that everybody on its network may ask it"
        return message, f"Give {written} one: {key}: !secret {secret}"
    return None


def _who(service: ResolvedService, written: str) -> str:
    """What answers nothing: all services of its kind, or this one by its options."""
    return written if service.page.protocol == ENGINE_PROTOCOL else service.page.title


def _can_be_asked(lab: ResolvedLab, service: ResolvedService) -> bool:
    """Whether it speaks or answers chats: a gateway may offer embeddings alone, as an engine may make nothing else."""
    if service.page.protocol != ENGINE_PROTOCOL:
        return service.page.protocol == SPEECH_PROTOCOL
    is_chat = knowledge_of(service.role).answers(service) == CHAT
    return is_chat and (not service.aliases or bool(chat_aliases(lab.engines, service.aliases)))
