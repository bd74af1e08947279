"""Teams of agents: names of members, and what a question may cost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.services import base
from provisioner.services.base import ResolvedService
from provisioner.values.declared import Problem

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)
"""What every engine takes for the name of a tool."""
COORDINATOR = "coordinator"


class Knowledge(base.OnCpu):
    """Knowledge of a team of agents."""

    def problems(self, service: ResolvedService) -> Iterator[Problem]:
        """Members have names that tools may have, each its own, and what costs money has a limit."""
        members = service.written.get("members") or []
        if not members:
            yield service.problem("members", "the team has no members", "Write at least one.")
        yield from _names(service, members)
        yield from _costs(service, members)


def _names(service: ResolvedService, members: list[Mapping[str, Any]]) -> Iterator[Problem]:
    seen: set[str] = set()
    for place, member in enumerate(members):
        name, where = str(member["name"]), f"members.{place}.name"
        if not NAME.fullmatch(name):
            hint = 'Write a letter, and then letters, digits and "_", 64 in all.'
            yield service.problem(where, f'"{name}" is no name of a function, by which it is called', hint)
        elif name == COORDINATOR:
            yield service.problem(where, f'"{name}" is who asks the members', "Choose another name.")
        elif name in seen:
            yield service.problem(where, f'two members are called "{name}"', "Give one of them another name.")
        seen.add(name)


def _costs(service: ResolvedService, members: list[Mapping[str, Any]]) -> Iterator[Problem]:
    written = [(COORDINATOR, service.written.get(COORDINATOR) or {})]
    written += [(f"members.{place}", member) for place, member in enumerate(members)]
    priced = [(where, member["price"]) for where, member in written if member.get("price")]
    for where, price in priced:
        for word, value in price.items():
            if value < 0:
                yield service.problem(f"{where}.price.{word}", f"{value} is too small", "Write 0 or more.")
    has_limit = service.written.get("most_cost") is not None
    if priced and not has_limit:
        where = f"{priced[0][0]}.price"
        yield service.problem(where, "what costs money needs a limit", "Write most_cost, such as most_cost: 0.05.")
    if has_limit and not priced:
        hint = "Write price: {read: 0.5, written: 2} of a member whose upstream costs money, or leave most_cost out."
        yield service.problem("most_cost", "nothing has a price, so that no cost is known", hint)
