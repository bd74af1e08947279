"""What a stamp says: why a role has to be run again, and what is written when it has proved itself. Pure.

The container's side, and the functions that both sides share, are in ``agent``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from provisioner.agent import canonical, keyed_digest
from provisioner.values.address import Address
from provisioner.values.declared import INTERNET, REACHES
from provisioner.values.facts import (
    STILL_CLOSED,
    Closed,
    ContainerFact,
    Health,
    NoAgent,
    RoleStamp,
    Silent,
    UnitState,
    by_address,
)
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Instance, Secret, Service, secrets_of

CARD = frozenset({"card", "driver_version", "nodes"})
"""Options that nobody writes: what the host says of the card that the container got."""
PROCESSOR = "processor_flags"
"""An option that nobody writes: what the host says that its processor can do."""
MOST_NAMED = 20
"""A container may say that 100,000 things have changed."""
_NOUNS = {"units": "unit", "helpers": "unit", "packages": "package", "users": "user", "venvs": "virtual environment"}


def reasons_to_run(instance: Instance, facts: Collection[ContainerFact]) -> dict[Address, tuple[str, ...]]:
    """Why each role of a container that was looked at has to be run, by address; those that need not are left out.

    ``facts`` are those of ``probe``; a role that they do not speak of was not looked at, which is a reason as well.
    """
    of_all = _reason_of_all(instance, facts)
    if of_all:
        return {role.address: (of_all,) for role in instance.roles}
    stamps, units, pages = by_address(facts, RoleStamp), by_address(facts, UnitState), by_address(facts, Health)
    closed = by_address(facts, Closed)
    found: dict[Address, tuple[str, ...]] = {}
    for role in instance.roles:
        own = [*_stamp_reasons(role, stamps.get(role.address))]
        own += _running_reasons(role, units.get(role.address), pages.get(role.address))
        if role.address in closed:
            own.append(STILL_CLOSED)
        if own:
            found[role.address] = tuple(dict.fromkeys(own))
    return found


def _reason_of_all(instance: Instance, facts: Collection[ContainerFact]) -> str:
    """Why every role of a container has to be run: it cannot be looked into, or did not answer; empty where it did."""
    container = Address.of(instance.name)
    without_agent = by_address(facts, NoAgent).get(container)
    if without_agent is not None:
        return without_agent.why
    silent = by_address(facts, Silent).get(container)
    if silent is None:
        return ""
    return Foreign(f"it cannot be looked into: {' '.join((silent.error.details or silent.error.message).split())}")


def stamp_for(service: Service, lab: str, salt: str) -> dict[str, Any]:
    """What the container's side writes down, together with the state of what is managed; holds no secret."""
    return {
        "role": service.role,
        "of": owner(lab, service.container),
        "inputs": inputs_of(service),
        "secrets": _secret_digests(service, salt),
        "salt": salt,
        "managed": asdict(service.managed),
    }


def texts_of(changes: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return changes of what is managed in words, each given as kind, name and words; of many the first ones."""
    texts = []
    for kind, name, words in changes[:MOST_NAMED]:
        texts.append(f"{_NOUNS[kind]} {name}: {words}" if kind in _NOUNS else f"{name}: {words}")
    left = len(changes) - MOST_NAMED
    return (*texts, f"and {left} more") if left > 0 else tuple(texts)


def has_same_wishes(service: Service, facts: Iterable[ContainerFact]) -> bool:
    """Whether the service's stamp was written for what it is to be now: only its container has changed since."""
    stamp = by_address(facts, RoleStamp).get(service.address)
    if stamp is None or stamp.problem:
        return False
    return not [*_changed_inputs(service, stamp, inputs_of(service))]


def owner(lab: str, container: str) -> str:
    """Whose stamp it is: one that came here in a copy of another container does not count."""
    return f"{lab}/{container}"


def inputs_of(service: Service) -> dict[str, Any]:
    """What the role was run with, but for secrets: each variable by its digest, so that a changed one can be named.

    By whom it was run is no input: two people with different versions of Ansible share a lab.
    """
    variables = {
        name: hashlib.sha256(canonical(_plain(value))).hexdigest() for name, value in service.variables.items()
    }
    return {"role": service.digest, "variables": variables}


def _plain(value: Any) -> Any:
    if isinstance(value, Secret):
        return {"!secret": value.name}
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _cut_off(service: Service) -> str:
    """Say what a service that ran others' code without limits reaches from now on."""
    reaches = service.variables[f"{service.role}_{REACHES}"]
    needed = ", ".join(service.needs)
    given = f" ({needed})" if needed else ""
    advice = "" if INTERNET in reaches else f"; {REACHES}: {INTERNET} leaves it the {INTERNET}"
    return f"from now on it reaches what the file connects it to{given} or {REACHES} names, and nothing else{advice}"


def _is_followed(service: Service, option: str) -> bool:
    """Whether a change of the option leaves people something to do; what is no longer asked for leaves nothing."""
    return option in service.after_change and bool(service.variables.get(f"{service.role}_{option}"))


def _secret_digests(service: Service, salt: str) -> dict[str, str]:
    secrets = secrets_of(service.variables)
    return {name: keyed_digest(salt, secret.reveal().encode()) for name, secret in sorted(secrets.items())}


def _stamp_reasons(service: Service, stamp: RoleStamp | None) -> Iterator[str]:
    if service.unstampable:
        yield f"it cannot be stamped: {service.unstampable}"
    elif stamp is None:
        yield "nobody has looked"
    elif stamp.problem:
        yield stamp.problem
    else:
        yield from _changed_inputs(service, stamp, inputs_of(service))
        yield from texts_of(stamp.changed)


def _running_reasons(service: Service, unit: UnitState | None, health: Health | None) -> Iterator[str]:
    if unit is not None and not unit.is_well:
        yield f"unit {service.unit} is {unit.state}"
    elif health is not None and not health.is_well:
        yield f"its health page answers {health.answer}"


def _changed_inputs(service: Service, stamp: RoleStamp, now: Mapping[str, Any]) -> Iterator[str]:
    was = stamp.inputs or {"role": "", "variables": {}}
    if was["role"] != now["role"]:
        yield "the role has changed"
    before, after = was["variables"], now["variables"]
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    plain = [name.removeprefix(f"{service.role}_") for name in names]
    if CARD.intersection(plain):
        yield "the host's card or its driver changed"
    if PROCESSOR in plain and f"{service.role}_{PROCESSOR}" in before:
        yield "the host's processor is another one"
    if not set(service.given).isdisjoint(plain):
        yield "another build is mounted for it"
    observed = {*CARD, PROCESSOR, *service.given}
    is_new = before and f"{service.role}_{REACHES}" not in before
    if is_new and REACHES in plain:
        yield _cut_off(service)
        observed.add(REACHES)
    written = [name for name in plain if name not in observed]
    if written:
        yield f"{', '.join(written)} changed in the file"
    yield from (service.after_change[name] for name in written if _is_followed(service, name))
    secrets, known = _secret_digests(service, stamp.salt), stamp.secrets or {}
    changed = sorted(name for name in secrets if secrets[name] != known.get(name))
    if changed:
        yield f"{'secret' if len(changed) == 1 else 'secrets'} {', '.join(changed)} changed"
