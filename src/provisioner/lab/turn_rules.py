"""What may be wrong with services that take turns on one card: who they are, where, how long they wait. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from provisioner.catalog import beyond_limit
from provisioner.lab.resolved import ResolvedLab
from provisioner.lab.turns import others, others_hold_s, place_in_share
from provisioner.labfile.hosts import LEAST_OF_GROUP, SHARE
from provisioner.services.base import HOLD_OPTION, QUEUE_OPTION, Path, ResolvedService
from provisioner.values.address import Address
from provisioner.values.declared import Problem
from provisioner.values.quantities import NO_TIME
from provisioner.values.refusals import did_you_mean


@dataclass(frozen=True, slots=True)
class _Group:
    """A group as a host names it."""

    host: str
    place: Path
    names: Sequence[str]


def turn_problems(lab: ResolvedLab) -> Iterator[Problem]:
    """What is wrong with the groups of hosts, and with how long their members hold a card and wait for it."""
    named: set[str] = set()
    for group in _groups(lab):
        if len(group.names) < LEAST_OF_GROUP:
            message = f"a group needs at least two services to take turns, and this one has {len(group.names)}"
            yield Problem(group.place, message, "Name another service, or leave the group out.")
        members: list[ResolvedService] = []
        for number, name in enumerate(group.names):
            words = _refusal(lab, group.host, name, named)
            named.add(name)
            if words is not None:
                yield Problem((*group.place, number), *words)
                continue
            member = lab.services[Address(name)]
            members.append(member)
            yield from _lacking_card(members[0], member, (*group.place, number))
        for member in members:
            yield from _too_short_queue(lab, member)
    yield from _holding_alone(lab)


def _groups(lab: ResolvedLab) -> Iterator[_Group]:
    for host, page in lab.hosts.items():
        for number, names in enumerate(page.share):
            yield _Group(host, ("hosts", host, SHARE, number), names)


def _refusal(lab: ResolvedLab, host: str, name: str, named: set[str]) -> tuple[str, str] | None:
    """Why the named service cannot take turns there, and what to do; None where it can."""
    service = lab.services.get(Address(name))
    if service is None:
        known = [str(address) for address, other in lab.services.items() if _takes_turns(other)]
        hint = did_you_mean(name, sorted(known), always=True) or "There is none in this file that takes turns."
        return f'no service "{name}" in this file', hint
    if name in named:
        return f"{name} is named twice", "Leave one of them out: a service takes turns in one group."
    there = lab.containers[service.container].host
    if there != host:
        where = f"on host {there}" if there is not None else "on no host that the file decides"
        return f"container {service.container} is {where}", f"Name services of host {host}: they share its card."
    if not _takes_turns(service):
        hint = f"Leave it out: only engines, whose options include {HOLD_OPTION}, take turns."
        return f"{service.page.title} takes no turns", hint
    return None


def _takes_turns(service: ResolvedService) -> bool:
    return HOLD_OPTION in service.page.options


def _lacking_card(first: ResolvedService, member: ResolvedService, place: Path) -> Iterator[Problem]:
    """One of both has a card and the other one has none."""
    if member.wants_card != first.wants_card:
        having, lacking = (first, member) if first.wants_card else (member, first)
        message = f"container {having.container} has a card and container {lacking.container} has none"
        yield Problem(place, message, "Give all containers of a group the same card with gpu, or none of them.")


def _too_short_queue(lab: ResolvedLab, member: ResolvedService) -> Iterator[Problem]:
    """Whoever asks a member waits until its turn comes: all others may hold the card first."""
    is_written = QUEUE_OPTION in member.written
    place = (*member.path, QUEUE_OPTION) if is_written else place_in_share(lab, member)
    queue = member.option(QUEUE_OPTION)
    if queue == NO_TIME:
        message = f"requests wait for its turn on the card, and {QUEUE_OPTION}: {NO_TIME} lets none wait"
        yield Problem(place, message, f"Write a longer {QUEUE_OPTION}, or take it out of {SHARE} of its host.")
        return
    before = others(lab, member)
    if not all(_is_known(other, HOLD_OPTION) for other in before) or not _is_known(member, QUEUE_OPTION):
        return
    held_s = others_hold_s(lab, member)
    if member.queue_s <= held_s:  # its own start comes on top
        message = (
            f"requests to {member.address} wait for {queue} at most ({QUEUE_OPTION}), and the others of its group may "
            f"hold the card for {held_s:.0f}s before its turn ({HOLD_OPTION})"
        )
        yield Problem(place, message, f"Write a longer {QUEUE_OPTION}, or a shorter {HOLD_OPTION} for the others.")


def _is_known(service: ResolvedService, name: str) -> bool:
    """Whether the option is a duration; one that is none is refused by the limits of its page."""
    option = service.page.options.get(name)
    return option is not None and not list(beyond_limit(option, service.option(name)))


def _holding_alone(lab: ResolvedLab) -> Iterator[Problem]:
    """A service that says how long it holds a card takes turns with somebody."""
    for service in lab.services.values():
        if HOLD_OPTION in service.written and not service.share:
            hint = f"Name it in {SHARE} of its host, or leave {HOLD_OPTION} out."
            yield service.problem(HOLD_OPTION, "it takes turns with nobody", hint)


def different_cards(lab: ResolvedLab) -> Iterator[Problem]:
    """The containers whose services take turns, and that get another card than the first of their group."""
    for group in _groups(lab):
        members = [lab.services[Address(name)] for name in group.names]
        having = [member for member in members if member.card is not None]
        for member in having[1:]:
            first = having[0]
            if first.card is None or member.card is None or member.card.pci == first.card.pci:
                continue
            message = (
                f"{member.address} takes turns with {first.address} on one card, and gets {member.card.title} "
                f"where that one gets {first.card.title}"
            )
            hint = f'Describe the same card for both: gpu: {{ pci: "{first.card.pci}" }}.'
            yield Problem(("containers", member.container, "gpu"), message, hint)
