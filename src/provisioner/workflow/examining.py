"""The verb ``doctor``: every host of the file looked at, all at once."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from provisioner.doctor import Diagnosis, diagnoses
from provisioner.lab import Lab
from provisioner.providers.base import Provider
from provisioner.resolve import images_by_host


def examine(lab: Lab, providers: Mapping[str, Provider]) -> tuple[Diagnosis, ...]:
    """What was seen of each host, and what is wrong with it."""
    images = images_by_host(lab.spec, lab.catalog)
    with ThreadPoolExecutor(max(1, len(providers))) as pool:
        seen = pool.map(lambda name: providers[name].examine(images.get(name, frozenset())), sorted(providers))
        return diagnoses(fact for facts in seen for fact in facts)
