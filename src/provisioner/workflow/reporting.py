"""The verb ``report``: what can be found out about a lab without changing anything, whoever does not answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from provisioner.gpus.cards import Card
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import host_name
from provisioner.providers.base import Provider
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.observe import Survey, look_around
from provisioner.values.address import Address
from provisioner.values.errors import ProvisionError
from provisioner.values.facts import Health, UnitState, by_address
from provisioner.values.plan import Change, ImpossiblePlanError
from provisioner.values.state import ContainerStatus


@dataclass(frozen=True, slots=True)
class Answer:
    """One thing that a service was asked, what came, and whether that is as it should be."""

    question: str
    answer: str
    well: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a lab. ``changes`` is None where no plan can be made, and ``no_plan`` says why.

    ``error``: why hosts could not all be looked at; what is known of them is told all the same.
    """

    containers: tuple[ContainerStatus, ...]
    answers: Mapping[Address, tuple[Answer, ...]] = field(default_factory=dict)
    cards: Mapping[str, Card] = field(default_factory=dict)
    changes: tuple[Change, ...] | None = None
    no_plan: str = ""
    error: ProvisionError | None = None


def look(lab: Lab, effects: Effects) -> Seen:
    """The lab as it is, as far as its hosts answer; changes nothing, and raises nothing for a host that is away."""
    try:
        survey, containers = look_around(lab, effects)
    except ProvisionError as error:
        return Seen(_seen_from_outside(lab, effects.providers), no_plan=error.message, error=error)
    changes, no_plan = _planned(survey)
    return Seen(containers, _answers(survey), survey.cards, changes, no_plan)


def _planned(survey: Survey) -> tuple[tuple[Change, ...] | None, str]:
    """What ``up`` would do, and why that cannot be told; what gets no card is left out, as it is warned of."""
    try:
        made = survey.plan()
    except ImpossiblePlanError as error:
        return None, error.reasons[0].message if error.reasons else str(error)
    except ProvisionError as error:
        return None, error.message
    return tuple(one for one in made.changes if one.container not in survey.cardless), ""


def _answers(survey: Survey) -> dict[Address, tuple[Answer, ...]]:
    """What units and health pages have said of each service."""
    units, pages = by_address(survey.facts, UnitState), by_address(survey.facts, Health)
    found = {}
    for instance in survey.wanted:
        for service in instance.services:
            own = []
            unit, health = units.get(service.address), pages.get(service.address)
            if unit is not None:
                own.append(Answer(f"systemd: how is {service.unit}?", unit.state, unit.is_well))
            if health is not None:
                question = f"GET {service.health} on port {service.port}"
                own.append(Answer(question, _in_words(health), health.is_well))
            if own:
                found[service.address] = tuple(own)
    return found


def _in_words(health: Health) -> str:
    return f"HTTP {health.answer}" if isinstance(health.answer, int) else health.answer


def _seen_from_outside(lab: Lab, providers: Mapping[str, Provider]) -> tuple[ContainerStatus, ...]:
    """The file's containers as those hosts say that answer; nobody looks into them."""
    return tuple(_outside_statuses(lab, providers))


def _outside_statuses(lab: Lab, providers: Mapping[str, Provider]) -> Iterator[ContainerStatus]:
    names_by_host: dict[str, list[str]] = {}
    for name, container in lab.resolved.containers.items():
        names_by_host.setdefault(host_name(container), []).append(name)
    for host, names in names_by_host.items():
        try:
            fleet = providers[host].observe(lab.name)
        except ProvisionError:
            for name in names:
                yield ContainerStatus(name, host, elsewhere="not seen: its host does not answer")
            continue
        for name in names:
            there = fleet.instance(name)
            yield ContainerStatus(name, host, there.status, there.address) if there else ContainerStatus(name, host)
