"""Looks into running containers, and leaves stamps there: one small call each, all in parallel, nothing installed."""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from provisioner import agent
from provisioner.errors import ProviderError
from provisioner.providers.base import Provider
from provisioner.stamp import change_text, owner, stamp_for
from provisioner.state import Fact, Instance

TIMEOUT_S = 30.0
FULL_TIMEOUT_S = 3600.0
"""Every byte of every model is read."""
PARALLEL = 20
DETAILS_CHARACTERS = 2000
NO_PYTHON = {126: "python3 cannot be run", 127: "python3 is missing"}
"""What an exit code of the call itself says."""
MANIFEST = "MANIFEST.sha256"
"""Every artifact has one at its top."""
_START = (
    "import sys, zlib; part = zlib.decompressobj(); source = part.decompress(sys.stdin.buffer.read()); "
    "scope = {'__name__': 'agent'}; exec(compile(source, 'agent', 'exec'), scope); scope['main'](part.unused_data)"
)


def probe(instances: Sequence[Instance], providers: Mapping[str, Provider], *, full: bool = False) -> tuple[Fact, ...]:
    """What the running ``instances`` say of themselves.

    Of each service ``unit`` (systemd's ActiveState), ``health`` (an HTTP status, or the words of the failure) and,
    where its proof noted what computes, ``verdict`` (what ``verify.processor`` reads); of each role ``stamp`` (what
    ``stamp.reasons_to_run`` reads); of a container ``leftovers`` (roles that have a stamp and are not asked for),
    ``damaged`` (artifacts whose bytes changed; looked for with ``full`` only), and ``agent`` when it cannot be looked
    into. Raises ``ProviderError`` when a container does not answer.
    """
    return tuple(
        fact for facts in _each(instances, lambda one: _look(one, providers[one.host], full=full)) for fact in facts
    )


def write_stamps(
    instances: Sequence[Instance], providers: Mapping[str, Provider], *, compare: Collection[str], ansible: str
) -> tuple[Fact, ...]:
    """Stamp the roles of ``instances``, which have proved themselves.

    Facts: of a container that could not be stamped ``unstamped`` (why); of each role in ``compare`` (addresses) that
    has left something as somebody else made it ``unmended`` (what, in words).
    """

    def write(one: Instance) -> list[Fact]:
        roles = [role for role in one.roles if not role.unstampable]
        stamps = [stamp_for(role, one.lab, ansible, secrets.token_hex(16)) for role in roles]
        compared = [role.role for role in roles if role.address in compare]
        request = {"do": "stamp", "stamps": stamps, "compare": compared}
        answer = _asked(providers[one.host], one.name, request, TIMEOUT_S)
        problem = answer if isinstance(answer, str) else answer.get("problem")
        if problem or isinstance(answer, str):
            return [Fact(one.name, "unstamped", problem)]
        left = {f"{one.name}/{role}": changes for role, changes in answer["unmended"].items() if changes}
        return [Fact(address, "unmended", [change_text(*one) for one in changes]) for address, changes in left.items()]

    return tuple(fact for facts in _each(instances, write) for fact in facts)


def _each(things: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
    if not things:
        return []
    with ThreadPoolExecutor(min(PARALLEL, len(things))) as pool:
        return list(pool.map(work, things))


def _look(instance: Instance, provider: Provider, *, full: bool) -> list[Fact]:
    services = [
        {"address": one.address, "unit": one.unit, "port": one.port, "health": one.health} for one in instance.services
    ]
    volumes = [device.properties["path"] for device in instance.devices if device.kind == "volume"]
    request = {
        "do": "look",
        "of": owner(instance.lab, instance.name),
        "roles": [one.role for one in instance.roles],
        "services": services,
        "manifests": [f"{path}/{MANIFEST}" for path in volumes] if full else [],
    }
    answer = _asked(provider, instance.name, request, FULL_TIMEOUT_S if full else TIMEOUT_S)
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


def _asked(provider: Provider, name: str, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any] | str:
    """The agent's answer; in words why there is no python3 to run it."""
    payload = _agent() + json.dumps(request).encode()
    ran = provider.execute(name, ["python3", "-IS", "-c", _START], stdin=payload, timeout_s=timeout_s)
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
def _agent() -> bytes:
    return zlib.compress(Path(agent.__file__).read_bytes())


def _unreadable(name: str, words: bytes) -> ProviderError:
    return ProviderError(
        f"Unable to look into container {name}",
        details=words.decode(errors="replace").strip()[-DETAILS_CHARACTERS:],
        resolution=f"Look at it with: provision exec {name}",
    )
