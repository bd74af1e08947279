"""The card of a lab's hosts that ``suggest`` means, with what lies there by the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from provisioner.gpus.cards import Card
from provisioner.lab.opening import Lab
from provisioner.loads.budgets import Budget
from provisioner.loads.candidates import Candidate
from provisioner.loads.occupied import Occupied, Served
from provisioner.values.address import Address
from provisioner.workflow.fitting import budgets_of


def largest_card(lab: Lab, cards: Mapping[str, Card]) -> Occupied:
    """The largest of the cards that containers get, of several the one on which least lies.

    ``cards``: by container, one at least.
    """
    budgets = budgets_of(lab, cards)
    found: list[Occupied] = []
    for container, card in cards.items():
        host = lab.resolved.containers[container].host or ""
        found.append(Occupied(card, _budget_on(budgets, card, host)))
    return max(found, key=lambda one: (one.card.memory, -one.total))


def _budget_on(budgets: Iterable[Budget], card: Card, host: str) -> Budget | None:
    """The sum of what lies on that card of that host; None where nothing does."""
    for budget in budgets:
        is_there = budget.card is not None and budget.card.pci == card.pci
        if is_there and budget.engines[0].host == host:
            return budget
    return None


def served_by(lab: Lab, candidates: Iterable[Candidate]) -> list[Served]:
    """The files, each with the services of the lab that answer with it, by where it comes from."""
    found: list[Served] = []
    for candidate in candidates:
        source = candidate.written.get("source")
        names = {name for name, model in lab.spec.models.items() if model.source == source}
        found.append(Served(candidate, _answering_with(lab, names)))
    return found


def _answering_with(lab: Lab, names: set[str]) -> frozenset[Address]:
    services = lab.resolved.services.items()
    return frozenset(address for address, service in services if names.intersection(service.served_models))
