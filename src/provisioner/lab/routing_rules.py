"""The rules of who asks whom: members of teams, turns on one card, and sites of doors. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from provisioner.catalog import beyond_limit
from provisioner.lab.aliases import (
    ENGINE_STAGE,
    MEMBERS,
    MODEL,
    find_engines,
    flatten,
    member_engines,
    upstream_address,
    written_members,
)
from provisioner.lab.cards import others, others_hold_s, place_in_share
from provisioner.lab.resolved import ENGINE_PROTOCOL, ResolvedLab
from provisioner.labfile.hosts import LEAST_OF_GROUP, SHARE
from provisioner.labfile.spec import provider_of
from provisioner.services import knowledge_of
from provisioner.services.base import HOLD_OPTION, LAN, QUEUE_OPTION, SITES, Path, ResolvedService
from provisioner.services.gateway_routes import CHAT
from provisioner.values.address import Address
from provisioner.values.declared import Problem
from provisioner.values.quantities import NO_TIME
from provisioner.values.refusals import did_you_mean

# Members of teams, and the engines that they name.

LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


def member_names(lab: ResolvedLab) -> Iterator[Problem]:
    """Each member names an engine that chats or an upstream whose address is known, and never who may ask it."""
    for service in lab.services.values():
        for option, reference in service.page.references.items():
            if reference.kind != MEMBERS:
                continue
            for place, member in written_members(service, option):
                yield from _member_problems(lab, service, f"{place}.{MODEL}", str(member[MODEL]))


def _member_problems(lab: ResolvedLab, service: ResolvedService, place: str, name: str) -> Iterator[Problem]:
    engines = member_engines(lab.engines, name)
    if engines:
        engine = engines[0]
        if name not in engine.models and len(engine.models) > 1:
            hint = f"Write one of them: {', '.join(engine.models)}"
            yield service.problem(place, f"{name} serves several models", hint)
        if knowledge_of(engine.service.role).answers(engine.service) != CHAT:
            yield service.problem(place, f"{engine.address} answers no chats", "Name an engine that does.")
    elif name in lab.upstreams:
        if not upstream_address(lab.upstreams[name]):
            provider = provider_of(lab.upstreams[name].model)
            message = f"where {provider} answers in OpenAI's words is not known"
            yield service.problem(place, message, f"Write base_url in upstream {name}, such as https://HOST/v1.")
        asker = _asker_at(lab, service, upstream_address(lab.upstreams[name]))
        if asker is not None:
            message = f"upstream {name} is {asker.address} of this file, which asks others, and may ask this one"
            yield service.problem(place, message, "Name an engine, or one of upstreams that is none of this file.")
    else:
        yield _unknown_members(lab, service, place, name)


def _asker_at(lab: ResolvedLab, service: ResolvedService, url: str) -> ResolvedService | None:
    """The service of the file behind that address, as ``service`` reaches it, where it is none that computes itself."""
    try:
        host, port = urlsplit(url).hostname, urlsplit(url).port
    except ValueError:  # what is no address is refused where it stands
        return None
    for other in lab.services.values():
        names = {other.container, lab.hostname(other.container, service.container)}
        names |= LOOPBACK if other.container == service.container else set()
        if other.port == port and host in names and other.page.stage != ENGINE_STAGE:
            return other
    return None


def _unknown_members(lab: ResolvedLab, service: ResolvedService, place: str, name: str) -> Problem:
    for gateway in lab.services.values():
        if name in gateway.aliases:
            behind = flatten(gateway.aliases, name)
            message = f'"{name}" is an alias of {gateway.address}: a team that asks a gateway may ask itself'
            return service.problem(place, message, f"Name an engine: {', '.join(behind)}.")
    if find_engines(lab.engines, name) or name in lab.services:
        message = f"{name} computes no answers: it asks others, and may ask this one"
        return service.problem(place, message, "Name an engine, or one of upstreams.")
    if name in lab.models:
        example = lab.catalog.example(ENGINE_PROTOCOL, "engine")
        return service.problem(place, f'no service serves model "{name}"', f"Give it to an engine{example}.")
    known = {*lab.upstreams, *(model for engine in lab.engines for model in engine.models)}
    hint = did_you_mean(name, sorted(known), always=True) or "There is none in this file."
    return service.problem(place, f'no engine or upstream "{name}" in this file', hint)


# Services that take turns on one card: who they are, where, how long they wait.


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
            words = _turn_refusal(lab, group.host, name, named)
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


def _turn_refusal(lab: ResolvedLab, host: str, name: str, named: set[str]) -> tuple[str, str] | None:
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


# Sites of doors: something has to be behind each, and something that a browser can show.


def site_problems(lab: ResolvedLab) -> Iterator[Problem]:
    """What is wrong with the sites of the file's doors, each with its place."""
    for door in lab.services.values():
        for option, reference in door.page.references.items():
            if reference.kind != SITES:
                continue
            for name, written in (door.written.get(option) or {}).items():
                problem = _site_refusal(lab, written)
                if problem is not None:
                    yield Problem((*door.path, option, name), *problem)


def _site_refusal(lab: ResolvedLab, written: str) -> tuple[str, str] | None:
    """Why a door cannot have a site of what is written, and what to do; None where it can."""
    service = lab.services.get(Address(written))
    offered = [address for address, other in lab.services.items() if _answers_http(other)]
    if service is None:
        hint = did_you_mean(written, sorted(offered), always=True) or "There is none in this file that answers HTTP."
        return f'no service "{written}" in this file', hint
    if service.sites:
        return f"{written} is a door itself", "Name the service that answers behind it."
    if not _answers_http(service):
        return f"{service.page.title} answers no HTTP", "Leave the site out: its own clients reach it by its port."
    return None


def _answers_http(service: ResolvedService) -> bool:
    return service.health is not None and service.port is not None


def site_warnings(lab: ResolvedLab) -> list[Problem]:
    """The services that the LAN reaches past the door that has them as sites, without TLS."""
    doors: dict[Address, tuple[str, Address]] = {}
    for door in lab.services.values():
        for name, written in door.sites.items():
            doors.setdefault(Address(written), (name, door.address))
    found = []
    for used, (name, door_address) in doors.items():
        service = lab.services.get(used)
        if service is not None and service.expose == LAN:
            message = f"it is the site {name} of {door_address}, and the LAN also reaches its port without TLS"
            found.append(service.problem("expose", message, "Leave expose: lan out: the door reaches it without."))
    return found
