"""A lab as an inventory of Ansible's: its groups, how each container is reached, and its services' variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.hosts.base import Provider
from provisioner.lab import desired_fleet
from provisioner.lab.cards import TAKING_TURNS, takes_turns
from provisioner.lab.opening import Lab, find_files
from provisioner.lab.resolved import ResolvedLab
from provisioner.reconcile.addresses import look_at_addresses
from provisioner.reconcile.inventory import CONTAINER_PYTHON
from provisioner.reconcile.observe import cards_of, kept_images, observe
from provisioner.values.events import Event
from provisioner.values.state import Instance

CONTAINERS, NOT_THERE = "containers", "not_there"


@dataclass(frozen=True, slots=True)
class Listing:
    """``variables`` by containers that are there; ``groups``: their names; ``missing``: what the file has besides."""

    variables: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, tuple[str, ...]]
    missing: tuple[str, ...] = ()


def listing(
    lab: Lab, providers: Mapping[str, Provider], emit: Callable[[Event], None] = lambda _event: None
) -> Listing:
    """The lab as its hosts have it at this moment; nothing is changed there.

    ``emit`` is told how far the reading of a large model is.

    A container that is not there has no variables, and is in group ``not_there`` alone: nothing of how it would be
    reached is made up.
    """
    actual = observe(lab.name, providers, detailed=False)
    addresses = look_at_addresses(lab, providers, actual).known
    resolved = lab.on_hosts(cards_of(lab, providers), addresses=addresses, images=kept_images(lab, actual))
    lab.check_stacks(actual.hosts)
    wanted = desired_fleet(resolved, find_files(lab).hashed(emit).files, actual.hosts).instances
    there = {one.name for one in actual.instances}
    variables: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {CONTAINERS: []}
    missing = tuple(one.name for one in wanted if one.name not in there)
    for one in wanted:
        if one.name in missing:
            groups.setdefault(NOT_THERE, []).append(one.name)
            continue
        variables[one.name] = _variables(one, providers[one.host])
        for group in _groups(one, lab.name, resolved):
            groups.setdefault(group, []).append(one.name)
    return Listing(variables, {name: tuple(members) for name, members in groups.items()}, missing)


def _variables(one: Instance, provider: Provider) -> dict[str, Any]:
    reached = provider.connection_variables(one.name)
    found: dict[str, Any] = {"ansible_python_interpreter": CONTAINER_PYTHON, **reached}
    address = provider.network.address(one.name)
    if address:  # one that is stopped has none
        found["provision_address"] = address
    for service in one.services:
        found |= {**service.variables, **service.estimates}
    return found


def _groups(one: Instance, lab: str, resolved: ResolvedLab) -> list[str]:
    names = [CONTAINERS, _group("lab", lab), _group("host", one.host)]
    names += [f"service_{service.role}" for service in one.services]
    card = resolved.containers[one.name].card
    if card is not None:
        names.append(_group("card", card.vendor))
    if any(takes_turns(service) for service in one.services):
        names.append(TAKING_TURNS)
    return names


def _group(kind: str, name: str) -> str:
    """No dash may stand in a group's name."""
    return f"{kind}_{name.replace('-', '_')}"
