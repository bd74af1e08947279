"""Looking at the cards of the hosts, and saying which container gets which."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from provisioner.lab.opening import Lab
from provisioner.providers.base import Provider
from provisioner.values.errors import PreflightError

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card


def cards_of(lab: Lab, providers: Mapping[str, Provider]) -> dict[str, Card]:
    """The card of each container that wants one; ``PreflightError`` says of all who get none why."""
    found, refused = look_at_cards(lab, providers)
    require_cards(refused)
    return found


def look_at_cards(lab: Lab, providers: Mapping[str, Provider]) -> tuple[dict[str, Card], dict[str, str]]:
    """The card of each container that wants one, and why others get none, by their names.

    Only the hosts of such containers are looked at, all at once.
    """
    if not lab.resolved.wants_cards:
        return lab.cards({})
    from provisioner.lab.cards import card_requests  # nothing that a lab without cards needs

    hosts = sorted(card_requests(lab.resolved))
    with ThreadPoolExecutor(len(hosts)) as pool:
        seen = pool.map(lambda host: providers[host].cards(), hosts)
        return lab.cards(dict(zip(hosts, seen, strict=True)))


def require_cards(refused: Mapping[str, str]) -> None:
    """Raise ``PreflightError`` when a container gets no card."""
    if refused:
        raise PreflightError(
            "Unable to give each container the graphics card that it wants", details="\n".join(refused.values())
        )
