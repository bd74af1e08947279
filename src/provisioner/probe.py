"""Reads facts from running containers: one small call each, all in parallel, nothing installed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from provisioner import paths
from provisioner.errors import ProviderError
from provisioner.providers.base import Provider
from provisioner.state import Fact, Instance

TIMEOUT_S = 30.0
PARALLEL = 20


def probe(instances: Sequence[Instance], providers: Mapping[str, Provider]) -> tuple[Fact, ...]:
    """Facts ``unit`` and ``health`` of every service of the running ``instances``.

    Raises ``ProviderError`` when a container does not answer, or has no python3.
    """
    asked = [one for one in instances if one.services]
    if not asked:
        return ()
    with ThreadPoolExecutor(min(PARALLEL, len(asked))) as pool:
        found = pool.map(lambda one: _probe_one(one, providers[one.host]), asked)
        return tuple(fact for facts in found for fact in facts)


def _probe_one(instance: Instance, provider: Provider) -> list[Fact]:
    request = [
        {"address": one.address, "unit": one.unit, "port": one.port, "health": one.health} for one in instance.services
    ]
    agent = (paths.data() / "probe_agent.py").read_bytes()
    ran = provider.execute(
        instance.name, ["python3", "-IS", "-", json.dumps(request)], stdin=agent, timeout_s=TIMEOUT_S
    )
    if ran.returncode != 0:
        raise ProviderError(
            f"Unable to probe container {instance.name}",
            details=ran.stderr.decode(errors="replace").strip(),
            resolution="Run: provision up, which installs what is missing.",
        )
    answers = json.loads(ran.stdout)
    return [
        Fact(address, name, value)
        for address, seen in answers.items()
        for name, value in seen.items()
        if value is not None
    ]
