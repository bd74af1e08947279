"""Looks into running containers, and leaves stamps there: one small call a host, or each; nothing is installed."""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from provisioner import agent
from provisioner.agent_answers import DamagedAnswerError, look_answer, stamp_answer
from provisioner.providers.base import Looked, Provider
from provisioner.stamp import owner, stamp_for, texts_of
from provisioner.values.address import Address
from provisioner.values.errors import ProviderError
from provisioner.values.facts import (
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
    of_kind,
)
from provisioner.values.plain_data import Foreign, answer_value, foreign
from provisioner.values.state import Execution, Instance

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
    instances: Sequence[Instance], providers: Mapping[str, Provider], *, compare: Collection[str]
) -> tuple[Unstamped | Unmended, ...]:
    """Stamp the roles of ``instances``, which have proved themselves.

    Gives ``Unstamped`` of each container that could not be stamped, and ``Unmended`` of each role in ``compare``
    (addresses) that has left something as somebody else made it.
    """

    def request(one: Instance) -> dict[str, Any]:
        roles = [role for role in one.roles if not role.unstampable]
        stamps = [stamp_for(role, one.lab, secrets.token_hex(16)) for role in roles]
        return {"do": "stamp", "stamps": stamps, "compare": [role.role for role in roles if role.address in compare]}

    answers, _ = _asked(instances, {one.name: request(one) for one in instances}, providers, TIMEOUT_S)
    return tuple(fact for one in instances for fact in _written(one.name, answers[one.name]))


def _written(name: str, answer: Answer) -> list[Unstamped | Unmended]:
    address = Address.of(name)
    if isinstance(answer, ProviderError):
        return [Unstamped(address, answer.details or answer.message)]
    if isinstance(answer, str):
        return [Unstamped(address, answer)]
    if answer.get("problem"):
        return [Unstamped(address, answer["problem"])]
    unmended: list[Unstamped | Unmended] = []
    for role, changes in answer["unmended"].items():
        if changes:
            unmended.append(Unmended(Address.of(name, role), texts_of(changes)))
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
        answers.update(one.failures)
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
        return _damaged(name, str(error))
    except ValueError as error:
        return _damaged(name, f"{error}: {ran.stdout[:EXCERPT_BYTES].decode(errors='replace')}")


@cache
def agent_text() -> bytes:
    """The container's side, as it is sent: what follows it is the request."""
    return zlib.compress(Path(agent.__file__).read_bytes())


def _unreadable(name: str, words: bytes) -> ProviderError:
    return ProviderError(
        f"Unable to look into container {name}",
        details=Foreign.of_output(words),
        resolution=f"Look at it with: provision exec {name}",
    )


def _damaged(name: str, words: str) -> ProviderError:
    return ProviderError(
        f"Unable to look into container {name}: its answer is damaged",
        details=Foreign(" ".join(words.split())),
        resolution=f"Something in {name} answers in the place of python3; no other container is touched by it. "
        f"See: provision exec {name} -- sh -c 'command -v python3; dpkg --verify'",
    )
