"""Facts from running containers, by one small call a host, or each; and the stamps that say why a role runs again."""

from __future__ import annotations

import hashlib
import json
import secrets
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from provisioner.hosts.base import Looked, Provider
from provisioner.inside import agent
from provisioner.inside.agent import canonical, keyed_digest
from provisioner.inside.answers import DamagedAnswerError, look_answer, stamp_answer
from provisioner.values.address import Address
from provisioner.values.declared import INTERNET, REACHES
from provisioner.values.errors import ProviderError
from provisioner.values.facts import (
    STILL_CLOSED,
    Changed,
    Closed,
    ContainerFact,
    DamagedArtifacts,
    Health,
    HostVolumes,
    Leftovers,
    NoAgent,
    Rest,
    RoleStamp,
    Silent,
    UnitState,
    Unmended,
    Unstamped,
    Verdict,
    by_address,
    of_kind,
)
from provisioner.values.plain_data import Foreign, answer_value, foreign
from provisioner.values.state import Execution, Instance, Secret, Service, secrets_of

# The look into containers, in which nothing is installed: a program is sent with the call.

TIMEOUT_S = 30.0
FULL_TIMEOUT_S = 3600.0
"""Every byte of every model is read."""
EXCERPT_BYTES = 200
NO_PYTHON = {126: "python3 cannot be run", 127: "python3 is missing"}
"""What an exit code of the call itself says."""
MANIFEST = "MANIFEST.sha256"
"""Every artifact has one at its top."""
_START = (
    "import sys, zlib; part = zlib.decompressobj(); source = part.decompress(sys.stdin.buffer.read()); "
    "scope = {'__name__': 'agent'}; exec(compile(source, 'agent', 'exec'), scope); scope['main'](part.unused_data)"
)
COMMAND = ("python3", "-IS", "-c", _START)
_LOOK = "Look at it with: provision exec {}"

Answer = dict[str, Any] | str | ProviderError
"""What the agent of a container said; in words, why there is no python3 to ask; or why there is no answer."""


def probe(
    instances: Sequence[Instance],
    providers: Mapping[str, Provider],
    *,
    full: bool = False,
    hosts: Collection[str] = (),
    late: Collection[str] = (),
) -> tuple[ContainerFact, ...]:
    """What the running ``instances`` say of themselves, and what a look gives that ``observe`` does not.

    Of each service ``UnitState``, ``Health`` and, where its proof noted what computes, ``Verdict``, where it ends when
    nobody asks it, ``Rest``, where it keeps people out, ``Closed``; of each role ``RoleStamp``; of a container
    ``Leftovers``, ``DamagedArtifacts`` (looked for with ``full`` only), and ``NoAgent`` where it cannot be looked into,
    ``Silent`` where it does not answer, or not as it should; of a host ``HostVolumes``.
    ``hosts`` are looked at even where no instance is on them. ``late``: addresses of services that let a proof wait,
    which may be busy although their health pages answer.
    """
    requests = {one.name: _request(one, full=full, late=late) for one in instances}
    answers, facts = _asked(instances, requests, providers, FULL_TIMEOUT_S if full else TIMEOUT_S, hosts)
    return (*facts, *(fact for one in instances for fact in _seen(one, answers[one.name])))


def require_answers(facts: Iterable[ContainerFact]) -> None:
    """Raise the ``ProviderError`` of containers that did not answer, all of them named."""
    silent = [fact.error for fact in of_kind(facts, Silent)]
    if len(silent) == 1:
        raise silent[0]
    if silent:
        raise ProviderError(
            "Unable to look into containers",
            details="\n".join(f"{error.message}: {error.details}" for error in silent),
            resolution=silent[0].resolution,
        )


def write_stamps(
    instances: Sequence[Instance], providers: Mapping[str, Provider], *, compare: Mapping[Address, Sequence[Changed]]
) -> tuple[Unstamped | Unmended, ...]:
    """Stamp the roles of ``instances``, which have proved themselves.

    ``compare``: by the addresses of roles that were run as before, what had changed by then (``RoleStamp.changed``).
    Gives ``Unstamped`` of each container that could not be stamped, and ``Unmended`` of each of those roles that has
    left such a change. What else differs from the former stamp a role has written itself, such as a new password.
    """

    def request(one: Instance) -> dict[str, Any]:
        roles = [role for role in one.roles if not role.unstampable]
        stamps = [stamp_for(role, one.lab, secrets.token_hex(16)) for role in roles]
        return {"do": "stamp", "stamps": stamps, "compare": [role.role for role in roles if role.address in compare]}

    answers, _ = _asked(instances, {one.name: request(one) for one in instances}, providers, TIMEOUT_S)
    return tuple(fact for one in instances for fact in _written(one.name, answers[one.name], compare))


def _written(name: str, answer: Answer, compare: Mapping[Address, Sequence[Changed]]) -> list[Unstamped | Unmended]:
    address = Address.of(name)
    if isinstance(answer, ProviderError):
        return [Unstamped(address, answer.details or answer.message)]
    if isinstance(answer, str):
        return [Unstamped(address, answer)]
    if answer.get("problem"):
        return [Unstamped(address, answer["problem"])]
    unmended: list[Unstamped | Unmended] = []
    for role, changes in answer["unmended"].items():
        address = Address.of(name, role)
        by_hand = {(kind, thing) for kind, thing, _ in compare[address]}
        left = [change for change in changes if (change[0], change[1]) in by_hand]
        if left:
            unmended.append(Unmended(address, texts_of(left)))
    return unmended


def _request(instance: Instance, *, full: bool, late: Collection[str] = ()) -> dict[str, Any]:
    services = []
    for one in instance.services:
        is_late = bool(one.health) and one.address in late
        asked = {"address": one.address, "unit": one.unit, "health": one.health, "late": is_late}
        services.append({**asked, "port": one.port, "own_port": one.own_port, "closed_by": one.closed_by})
    volumes = [device.properties["path"] for device in instance.devices if device.kind == "volume"]
    return {
        "do": "look",
        "of": owner(instance.lab, instance.name),
        "roles": [one.role for one in instance.roles],
        "services": services,
        "manifests": [f"{path}/{MANIFEST}" for path in volumes] if full else [],
    }


def _seen(instance: Instance, answer: Answer) -> list[ContainerFact]:
    container = Address.of(instance.name)
    if isinstance(answer, ProviderError):
        return [Silent(container, answer)]
    if isinstance(answer, str):
        return [NoAgent(container, answer)]
    return [
        *(_stamp(Address.of(instance.name, role), stamp) for role, stamp in answer["stamps"].items()),
        *(UnitState(Address(address), state) for address, state in answer["unit"].items()),
        *(Health(Address(address), said) for address, said in answer["health"].items()),
        *(Rest(Address(address), **noted) for address, noted in answer["rest"].items()),
        *(Closed(Address(address)) for address in answer["closed"]),
        *(Verdict(Address(address), **noted) for address, noted in answer["verdict"].items()),
        Leftovers(container, tuple(answer["leftovers"])),
        DamagedArtifacts(container, tuple(answer["damaged"])),
    ]


def _stamp(address: Address, stamp: Mapping[str, Any]) -> RoleStamp:
    if "problem" in stamp:
        return RoleStamp(address, stamp["problem"])
    changed = tuple((kind, name, words) for kind, name, words in stamp["changed"])
    return RoleStamp(address, "", stamp["inputs"], stamp["secrets"], stamp["salt"], changed)


def _asked(
    instances: Sequence[Instance],
    requests: Mapping[str, Mapping[str, Any]],
    providers: Mapping[str, Provider],
    timeout_s: float,
    hosts: Collection[str] = (),
) -> tuple[dict[str, Answer], list[HostVolumes]]:
    """The agents' answers by container, and facts of hosts; every host is asked once, all at the same time."""

    def look(host: str) -> Looked:
        mine = {one.name: json.dumps(requests[one.name]).encode() for one in instances if one.host == host}
        return providers[host].look(COMMAND, mine, shared=agent_text(), timeout_s=timeout_s)

    asked = sorted({one.host for one in instances}.union(hosts))
    with ThreadPoolExecutor(max(1, len(asked))) as pool:
        looked = dict(zip(asked, pool.map(look, asked), strict=True))
    facts = [HostVolumes(Address(host), one.volumes) for host, one in looked.items() if one.volumes is not None]
    answers: dict[str, Answer] = {}
    for one in looked.values():
        answers.update({name: _answer(name, ran, requests[name]) for name, ran in one.executions.items()})
        answers.update(failures_of(one))
    return answers, facts


def _answer(name: str, ran: Execution, asked: Mapping[str, Any]) -> Answer:
    if ran.returncode in NO_PYTHON:
        return NO_PYTHON[ran.returncode]
    if ran.returncode != 0:
        return _unreadable(name, ran.stderr)
    if not ran.stdout:
        return _unreadable(name, b"python3 said nothing")
    schema = {"look": look_answer, "stamp": stamp_answer}[asked["do"]]
    try:
        return foreign(schema(answer_value(ran.stdout), asked))
    except DamagedAnswerError as error:
        return damaged(name, str(error))
    except ValueError as error:
        return damaged(name, f"{error}: {ran.stdout[:EXCERPT_BYTES].decode(errors='replace')}")


@cache
def agent_text() -> bytes:
    """The container's side, as it is sent: what follows it is the request."""
    return zlib.compress(Path(agent.__file__).read_bytes())


def _unreadable(name: str, words: bytes) -> ProviderError:
    return ProviderError(
        f"Unable to look into container {name}",
        details=Foreign.of_output(words),
        resolution=_LOOK.format(name),
    )


def failures_of(looked: Looked) -> Mapping[str, ProviderError]:
    """Return the errors of containers that could not be asked, or were killed, each with what to do."""
    for name, error in looked.failures.items():
        error.resolution = error.resolution or _LOOK.format(name)
    return looked.failures


def damaged(name: str, words: str) -> ProviderError:
    """Return the error of a container whose program answered what none of ours does."""
    return ProviderError(
        f"Unable to look into container {name}: its answer is damaged",
        details=Foreign(" ".join(words.split())),
        resolution=f"Something in {name} answers in the place of python3; no other container is touched by it. "
        f"See: provision exec {name} -- sh -c 'command -v python3; dpkg --verify'",
    )


# Stamps: why a role has to be run again, and what is written when it has proved itself. Pure; the container's side, and
# the functions that both sides share, are in `inside.agent`.

CARD = frozenset({"card", "driver_version", "nodes"})
"""Options that nobody writes: what the host says of the card that the container got."""
PROCESSOR = "processor_flags"
"""An option that nobody writes: what the host says that its processor can do."""
MOST_NAMED = 20
"""A container may say that 100,000 things have changed."""
_NOUNS = {
    "units": "unit ",
    "helpers": "unit ",
    "packages": "package ",
    "users": "user ",
    "passwords": "user ",
    "venvs": "virtual environment ",
}


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
        texts.append(f"{_NOUNS.get(kind, '')}{name}: {words}")
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


def _other_secrets(service: Service, stamp: RoleStamp) -> list[str]:
    known = stamp.secrets or {}
    return [name for name, digest in _secret_digests(service, stamp.salt).items() if digest != known.get(name)]


def has_other_secrets(service: Service, stamp: RoleStamp) -> bool:
    """Return whether the role was proved with other secrets than it has now, as far as its stamp can be read."""
    return not stamp.problem and bool(_other_secrets(service, stamp))


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
    if changed := _other_secrets(service, stamp):
        yield f"{'secret' if len(changed) == 1 else 'secrets'} {', '.join(changed)} changed"
