"""Proofs of services, and of which none can be had now: one that computes for somebody is waited for, not accused."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from provisioner.configure import prove
from provisioner.lab.opening import Lab
from provisioner.probe import probe, require_answers
from provisioner.proofs import ended_proofs, remember
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.errors import InputError
from provisioner.values.events import Diagnostic, Event
from provisioner.values.facts import (
    ASLEEP,
    BUSY,
    ContainerFact,
    Health,
    Proof,
    Rest,
    UnitState,
    by_address,
    of_kind,
)
from provisioner.values.state import Instance
from provisioner.workflow.effects import Effects
from provisioner.workflow.resting import asleep_words

PATIENCE_S = 120.0
POLL_S = 2.0
WAITED = re.compile(r"timed out|did not answer 200 within|HTTP -1\b|\bnot asked\b|[Tt]imeout")
"""How the words of a proof read that ended in waiting: of a busy service that is no accusation."""


@dataclass(frozen=True, slots=True)
class Proofs:
    """Facts of the proofs, the newest of the containers, and the services that were not asked, with the reason.

    ``asleep`` are those of them that would have had to be woken, or whoever they ask.
    """

    proofs: tuple[ContainerFact, ...]
    facts: tuple[ContainerFact, ...]
    not_asked: Mapping[Address, str]
    asleep: frozenset[Address] = frozenset()


def proofs_of(running: Sequence[Instance], facts: Sequence[ContainerFact], effects: Effects, *, wake: bool) -> Proofs:
    """Have each service of running containers prove itself, but for those that stay busy for ``PATIENCE_S``.

    ``facts`` are those that were seen of the containers. Who asks a busy one is not asked either; the same of those
    that are asleep, unless they are to be woken (``wake``).
    """
    newest = _waited(running, tuple(facts), effects)
    sleeping = {} if wake else _asleep(newest)
    asleep = _with_askers(running, sleeping, ASLEEP)
    not_asked = {**asleep, **_left_out(running, _busy(newest))}
    while True:
        left = [_without(one, not_asked) for one in running]
        asked = [one for one in left if one.services]
        proofs = prove(asked, effects.providers, run_playbook=effects.run_playbook, emit=effects.emit)
        late = _became_busy(asked, proofs, effects)
        if not late:
            return Proofs(proofs, newest, not_asked, frozenset(asleep))
        not_asked = {**not_asked, **_left_out(running, late)}
        newest = (*newest, *(Health(address, BUSY) for address in sorted(late)))


def keep_proofs(
    lab: Lab,
    verb: str,
    facts: Iterable[ContainerFact],
    emit: Callable[[Event], None],
    failed: Collection[str] = (),
) -> None:
    """Keep what the proofs of services asked and what came of it, without the lab's secrets.

    ``failed``: the containers whose run failed.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        remember(lab.name, ended_proofs(verb, at, facts, failed), tuple(lab.loaded.secrets.values()))
    except (OSError, InputError) as error:
        message = f"What the proofs asked is not kept: {error}"
        emit(Diagnostic("warning", message, resolution=f"Make {paths.state(lab.name)} writable."))


def _waited(
    running: Sequence[Instance], facts: tuple[ContainerFact, ...], effects: Effects
) -> tuple[ContainerFact, ...]:
    """The facts once no service is busy any more, or once they were waited for long enough."""
    deadline = time.monotonic() + PATIENCE_S
    busy = _busy(facts)
    if busy:
        who = f"{', '.join(sorted(busy))}: busy. Waiting for at most {PATIENCE_S:.0f} s until it can be asked"
        effects.emit(Diagnostic("note", who))
    while busy and time.monotonic() < deadline:
        time.sleep(POLL_S)
        names = {address.container for address in busy}
        newest = probe([one for one in running if one.name in names], effects.providers)
        require_answers(newest)
        facts = (*(fact for fact in facts if fact.address.container not in names), *newest)
        busy = _busy(facts)
    return facts


def _busy(facts: Iterable[ContainerFact]) -> frozenset[Address]:
    return frozenset(health.address for health in of_kind(facts, Health) if health.is_busy)


def _left_out(running: Iterable[Instance], busy: frozenset[Address]) -> dict[Address, str]:
    """Why services are not asked: they are busy, or would ask one that is."""
    why = "it is busy: it computes for somebody, and answers nobody else"
    return _with_askers(running, dict.fromkeys(busy, why), BUSY)


def _asleep(facts: Iterable[ContainerFact]) -> dict[Address, str]:
    """Since when services are asleep, in words."""
    facts = tuple(facts)
    sleeping = {unit.address for unit in of_kind(facts, UnitState) if unit.is_asleep}
    rests = by_address(facts, Rest)
    return {address: asleep_words(rests[address]) for address in sleeping if address in rests}


def _with_askers(running: Iterable[Instance], reasons: Mapping[Address, str], are: str) -> dict[Address, str]:
    """The same reasons, and that of every service which asks one of those: they are busy, or asleep."""
    found = dict(reasons)
    for instance in running:
        for service in instance.services:
            asks = sorted(set(reasons).intersection(service.needs))
            if asks and service.address not in found:
                found[service.address] = f"it asks {', '.join(asks)}, which is {are}"
    return found


def _without(instance: Instance, left_out: Mapping[Address, str]) -> Instance:
    kept = tuple(service for service in instance.services if service.address not in left_out)
    return replace(instance, services=kept)


def _became_busy(asked: Sequence[Instance], proofs: Iterable[ContainerFact], effects: Effects) -> frozenset[Address]:
    """The services that are busy now, where a proof ended in waiting: those themselves, and the ones that they ask."""
    waited = {proof.address for proof in of_kind(proofs, Proof) if WAITED.search(proof.failure)}
    if not waited:
        return frozenset()
    late = set(waited)
    for instance in asked:
        for service in instance.services:
            if service.address in waited:
                late.update(service.needs)
    return _busy(probe(asked, effects.providers, late=late))
