"""Looking at the cards of the hosts, and saying which container gets which."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from provisioner.gpus.cards import Card
from provisioner.lab import Lab
from provisioner.providers.base import Provider
from provisioner.resolve.cards import wanting


def cards_of(lab: Lab, providers: Mapping[str, Provider]) -> dict[str, Card]:
    """The card of each container that wants one; only the hosts of such containers are looked at, all at once.

    Raises ``PreflightError`` that says of all who get none why.
    """
    hosts = sorted(wanting(lab.spec))
    if not hosts:
        return {}
    with ThreadPoolExecutor(len(hosts)) as pool:
        seen = pool.map(lambda host: providers[host].cards(), hosts)
        return lab.cards(dict(zip(hosts, seen, strict=True)))
