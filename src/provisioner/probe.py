"""Looks into running containers, and leaves stamps there: one small call a host, or each; nothing is installed."""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from provisioner import agent
from provisioner.errors import ProviderError
from provisioner.providers.base import Looked, Provider
from provisioner.stamp import change_text, owner, stamp_for
from provisioner.state import Execution, Fact, Instance

TIMEOUT_S = 30.0
FULL_TIMEOUT_S = 3600.0
"""Every byte of every model is read."""
DETAILS_CHARACTERS = 2000
NO_PYTHON = {126: "python3 cannot be run", 127: "python3 is missing"}
"""What an exit code of the call itself says."""
MANIFEST = "MANIFEST.sha256"
"""Every artifact has one at its top."""
_START = (
    "import sys, zlib; part = zlib.decompressobj(); source = part.decompress(sys.stdin.buffer.read()); "
    "scope = {'__name__': 'agent'}; exec(compile(source, 'agent', 'exec'), scope); scope['main'](part.unused_data)"
)
COMMAND = ("python3", "-IS", "-c", _START)


def probe(
    instances: Sequence[Instance],
    providers: Mapping[str, Provider],
    *,
    full: bool = False,
    hosts: Collection[str] = (),
) -> tuple[Fact, ...]:
    """What the running ``instances`` say of themselves, and what a look gives that ``observe`` does not.

    Of each service ``unit`` (systemd's ActiveState), ``health`` (an HTTP status, or the words of the failure) and,
    where its proof noted what computes, ``verdict`` (what ``verify.processor`` reads); of each role ``stamp`` (what
    ``stamp.reasons_to_run`` reads); of a container ``leftovers`` (roles that have a stamp and are not asked for),
    ``damaged`` (artifacts whose bytes changed; looked for with ``full`` only), and ``agent`` when it cannot be looked
    into; of a host ``volumes``. ``hosts`` are looked at even where no instance is on them. Raises ``ProviderError``
    when a container does not answer.
    """
    requests = {one.name: _request(one, full=full) for one in instances}
    answers, facts = _asked(instances, requests, providers, FULL_TIMEOUT_S if full else TIMEOUT_S, hosts)
    return (*facts, *(fact for one in instances for fact in _seen(one, answers[one.name])))


def write_stamps(
    instances: Sequence[Instance], providers: Mapping[str, Provider], *, compare: Collection[str], ansible: str
) -> tuple[Fact, ...]:
    """Stamp the roles of ``instances``, which have proved themselves.

    Facts: of a container that could not be stamped ``unstamped`` (why); of each role in ``compare`` (addresses) that
    has left something as somebody else made it ``unmended`` (what, in words).
    """

    def request(one: Instance) -> dict[str, Any]:
        roles = [role for role in one.roles if not role.unstampable]
        stamps = [stamp_for(role, one.lab, ansible, secrets.token_hex(16)) for role in roles]
        return {"do": "stamp", "stamps": stamps, "compare": [role.role for role in roles if role.address in compare]}

    answers, _ = _asked(instances, {one.name: request(one) for one in instances}, providers, TIMEOUT_S)
    return tuple(fact for one in instances for fact in _written(one.name, answers[one.name]))


def _written(name: str, answer: dict[str, Any] | str) -> list[Fact]:
    problem = answer if isinstance(answer, str) else answer.get("problem")
    if problem or isinstance(answer, str):
        return [Fact(name, "unstamped", problem)]
    left = {f"{name}/{role}": changes for role, changes in answer["unmended"].items() if changes}
    return [Fact(address, "unmended", [change_text(*one) for one in changes]) for address, changes in left.items()]


def _request(instance: Instance, *, full: bool) -> dict[str, Any]:
    services = [
        {"address": one.address, "unit": one.unit, "port": one.port, "health": one.health} for one in instance.services
    ]
    volumes = [device.properties["path"] for device in instance.devices if device.kind == "volume"]
    return {
        "do": "look",
        "of": owner(instance.lab, instance.name),
        "roles": [one.role for one in instance.roles],
        "services": services,
        "manifests": [f"{path}/{MANIFEST}" for path in volumes] if full else [],
    }


def _seen(instance: Instance, answer: dict[str, Any] | str) -> list[Fact]:
    if isinstance(answer, str):
        return [Fact(instance.name, "agent", answer)]
    return [
        *(Fact(f"{instance.name}/{role}", "stamp", stamp) for role, stamp in answer["stamps"].items()),
        *(
            Fact(address, name, value)
            for name in ("unit", "health", "verdict")
            for address, value in answer[name].items()
        ),
        Fact(instance.name, "leftovers", answer["leftovers"]),
        Fact(instance.name, "damaged", answer["damaged"]),
    ]


def _asked(
    instances: Sequence[Instance],
    requests: Mapping[str, Mapping[str, Any]],
    providers: Mapping[str, Provider],
    timeout_s: float,
    hosts: Collection[str] = (),
) -> tuple[dict[str, dict[str, Any] | str], list[Fact]]:
    """The agents' answers by container, and facts of hosts; every host is asked once, and all of them at the same time.

    In the place of an answer stands, in words, why there is no python3 to give one.
    """

    def look(host: str) -> Looked:
        mine = {one.name: json.dumps(requests[one.name]).encode() for one in instances if one.host == host}
        return providers[host].look(COMMAND, mine, shared=agent_text(), timeout_s=timeout_s)

    asked = sorted({one.host for one in instances}.union(hosts))
    with ThreadPoolExecutor(max(1, len(asked))) as pool:
        looked = dict(zip(asked, pool.map(look, asked), strict=True))
    facts = [Fact(host, "volumes", one.volumes) for host, one in looked.items() if one.volumes is not None]
    return {name: _answer(name, ran) for one in looked.values() for name, ran in one.executions.items()}, facts


def _answer(name: str, ran: Execution) -> dict[str, Any] | str:
    if ran.returncode in NO_PYTHON:
        return NO_PYTHON[ran.returncode]
    if ran.returncode != 0:
        raise _unreadable(name, ran.stderr)
    try:
        answer: dict[str, Any] = json.loads(ran.stdout)
    except ValueError as error:
        raise _unreadable(name, ran.stdout or b"python3 said nothing") from error
    return answer


@cache
def agent_text() -> bytes:
    """The container's side, as it is sent: what follows it is the request."""
    return zlib.compress(Path(agent.__file__).read_bytes())


def _unreadable(name: str, words: bytes) -> ProviderError:
    return ProviderError(
        f"Unable to look into container {name}",
        details=words.decode(errors="replace").strip()[-DETAILS_CHARACTERS:],
        resolution=f"Look at it with: provision exec {name}",
    )
