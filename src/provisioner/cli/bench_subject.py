"""The subject that is measured from outside: a service of the lab, an upstream of the file, or any address."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from provisioner.cli.bench_options import Asked
from provisioner.cli.options import Words
from provisioner.cli.session import Session
from provisioner.lab.opening import Lab
from provisioner.measuring import endpoints
from provisioner.measuring.endpoints import Endpoint
from provisioner.values.address import Address
from provisioner.values.errors import InputError
from provisioner.values.state import Secret


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: where, under which address it is kept, and by which words it is named.

    ``alone``: nobody changes it meanwhile.
    """

    endpoint: Endpoint
    address: Address
    words: str
    alone: AbstractContextManager[object]


def subject_of(session: Session, lab: Lab, words: Words, asked: Asked) -> Subject:
    """What is named, or the address that is given; raises ``InputError`` where that is nothing that answers chats."""
    if asked.url is not None:
        return _of_url(session, lab, asked, asked.url)
    _refuse("key", asked.key)
    (name,) = words.names
    if name in lab.resolved.upstreams and name not in lab.resolved.containers:
        _refuse("model", asked.model)
        endpoint = endpoints.endpoint_of_upstream(name, lab.resolved.upstreams[name])
        return Subject(endpoint, Address.of(endpoints.UPSTREAM, name), name, nullcontext())
    return _of_lab(session, lab, name, asked)


def _of_url(session: Session, lab: Lab, asked: Asked, url: str) -> Subject:
    """Any address; its key is a secret as the file would name it."""
    if not asked.model:
        raise InputError(f"Unable to measure {url}: nobody says which model is asked", resolution="Say --model.")
    endpoint = endpoints.elsewhere(url, url, asked.model, _key(session, lab, asked.key) if asked.key else None)
    words = f"--url {url} --model {asked.model}"
    return Subject(endpoint, endpoints.address_of_url(url), words, nullcontext())


def _key(session: Session, lab: Lab, name: str) -> Secret:
    from provisioner.labfile.loader import named_secret

    secret = named_secret(lab.loaded, name)
    session.console.hide([secret])
    return secret


def _of_lab(session: Session, lab: Lab, name: str, asked: Asked) -> Subject:
    from provisioner.cli.gateways import address_of

    service = endpoints.chat_service(lab.resolved, name)
    effects = session.effects(lab)

    def found(container: str, is_on_lan: bool) -> str:
        return address_of(session, lab, container, is_on_lan=is_on_lan)

    endpoint = endpoints.endpoint_of_service(lab, effects, service, asked.model, found)
    alone = effects.locked(lab.name, endpoints.VERB)
    return Subject(endpoint, service.address, service.address, alone)


def _refuse(name: str, value: object) -> None:
    """Raise ``InputError`` where an option was given that says nothing of what is measured."""
    if value is not None:
        raise InputError(f"Unable to measure that with --{name}", resolution="Leave it out, or say --url.")
