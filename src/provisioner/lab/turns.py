"""Services that take turns on one card: what each of them is told of the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from provisioner.lab.resolved import ResolvedLab
from provisioner.labfile.hosts import SHARE, SHARE_KEY
from provisioner.services.base import Path, ResolvedService
from provisioner.values.state import Service

TAKING_TURNS = "taking_turns"
"""Ansible's group of the containers with services that take turns."""


def turn_options(lab: ResolvedLab, service: ResolvedService) -> dict[str, Any]:
    """The options of a service that takes turns: all members of its group in the file's order, and their key."""
    members = [_entry(lab, service, lab.services[address]) for address in service.share]
    page = lab.containers[service.container].page
    return {SHARE: members, SHARE_KEY: page.share_key if page is not None else None}


def _entry(lab: ResolvedLab, service: ResolvedService, member: ResolvedService) -> dict[str, Any]:
    """A member as ``service`` reaches it: one in the same container at that container's own loopback address."""
    is_here = member.container == service.container
    url = f"http://127.0.0.1:{member.port}" if is_here else lab.base_url(member, service.container)
    return {"name": str(member.address), "url": url, "own": member.address == service.address}


def others(lab: ResolvedLab, service: ResolvedService) -> tuple[ResolvedService, ...]:
    """The services of the file that take turns with this one, without itself."""
    known = [lab.services[address] for address in service.share if address in lab.services]
    return tuple(other for other in known if other.address != service.address)


def others_hold_s(lab: ResolvedLab, service: ResolvedService) -> float:
    """How many seconds the others of its group may stay on the card, one after the other, before its turn comes."""
    return sum(other.hold_s for other in others(lab, service))


def place_in_share(lab: ResolvedLab, service: ResolvedService) -> Path:
    """Where the file names a service that takes turns: its first place in ``share`` of its host."""
    host = lab.containers[service.container].host or ""
    for number, group in enumerate(lab.hosts[host].share):
        if service.address in group:
            return ("hosts", host, SHARE, number, group.index(service.address))
    raise ValueError(f"{service.address} takes no turns")


def takes_turns(service: Service) -> bool:
    """Whether it shares a card with others."""
    return bool(service.variables.get(f"{service.role}_{SHARE}"))


def one_by_one(plays: Iterable[dict[str, Any]], groups: Mapping[str, Iterable[str]]) -> list[dict[str, Any]]:
    """The plays, each one container after the other where several of its group take turns with others.

    Ansible does each task for all containers at once: who has the card would keep it until all others had it as well.
    """
    taking = set(groups.get(TAKING_TURNS, ()))
    made = []
    for play in plays:
        has_several = len(taking.intersection(groups.get(play["hosts"], ()))) > 1
        made.append({**play, "serial": 1} if has_several and play["hosts"].startswith("service_") else play)
    return made
