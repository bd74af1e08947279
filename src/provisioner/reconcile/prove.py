"""Proofs of services: the verb ``verify``, which of them can be had now, how they are told, and what is stored."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from provisioner.lab.opening import Lab
from provisioner.labfile.whole_files import replace_text
from provisioner.reconcile import journal
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.evidence import explained, gather
from provisioner.reconcile.gather import probe, require_answers
from provisioner.reconcile.judge import judge
from provisioner.reconcile.observe import asleep_words, is_running, survey
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.declared import masked
from provisioner.values.errors import InputError, ProviderError, VerificationError
from provisioner.values.events import Check, Diagnostic, Event
from provisioner.values.facts import (
    ASLEEP,
    BUSY,
    ContainerFact,
    Health,
    Proof,
    ProofStep,
    Rest,
    UnitState,
    by_address,
    of_kind,
)
from provisioner.values.plain_data import json_value
from provisioner.values.plan import Change
from provisioner.values.regular_files import text_of
from provisioner.values.state import Finding, Fleet, Instance, Secret, Status

AFTER_REBOOT = "it is to prove itself after a start"
RESTART = "restart"
"""What is noted of a container from its stop to its start."""
NOTHING: Mapping[Address, str] = {}


@dataclass(frozen=True, slots=True)
class Verified:
    """What is not as it should be, and why services could not be asked, by their addresses."""

    findings: tuple[Finding, ...]
    not_asked: Mapping[Address, str]


def verify(lab: Lab, effects: Effects, targets: Sequence[str] = (), *, wake: bool = False) -> Verified:
    """Prove every service again by its role's own verification; changes and stops nothing.

    One that is busy is waited for, and is no finding where it stays so; one that is asleep is left so, unless ``wake``.
    """
    from provisioner.reconcile.audit import audited
    from provisioner.serving.audit import SHORT
    from provisioner.serving.fit import remember_use

    seen = survey(lab, effects, targets, needs_cards=False)
    provable = tuple(one for one in seen.wanted if one.name not in seen.cardless)
    running = tuple(one for one in provable if is_running(one, seen.actual))
    asked = proofs_of(running, seen.facts, effects, wake=wake)
    remember_use(lab, seen.models.files, seen.cards, asked.proofs, effects.emit)
    keep_proofs(lab, "verify", asked.proofs, effects.emit)
    gather(running, effects.providers, lab.folder, effects.emit)
    cardless = (
        Finding(Address.of(one.name), "it gets no card", seen.cardless[one.name], "See: provision doctor")
        for one in seen.wanted
        if one.name in seen.cardless
    )
    judged = judge(Fleet(lab.name, provable), seen.actual, (*asked.facts, *asked.proofs))
    opened = audited(lab, running, asked.facts, effects, SHORT)
    left = [check for check in opened.checks if check.not_asked]
    _say_what_was_left(left, asked.not_asked, effects)
    findings = (*explained(judged, running, effects.providers, asked.facts), *cardless, *opened.findings)
    announce_checks(seen.wanted, findings, effects, asked)
    return Verified(findings, asked.not_asked)


def _say_what_was_left(left: Sequence[Check], not_asked: Mapping[Address, str], effects: Effects) -> None:
    """Say of what services open the short audit did not see all; of those that nobody asked it is known already."""
    for check in left:
        if check.target in not_asked:
            continue
        effects.emit(Diagnostic("note", f"Not all that {check.target} opens was looked at: {check.message}"))


def restart(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> tuple[str, ...]:
    """Stop and start containers that run, and wait until their services have come up by themselves; their names.

    All that have services, or those that are named: what came up once by hand, and would not after a start of the
    host, shows itself. Holds the lab's lock. One that does not come up keeps no other one from being started;
    ``VerificationError`` then says which it was and why.
    """
    from provisioner.reconcile.apply import apply_instances  # a verb that changes nothing needs it not
    from provisioner.reconcile.observe import settled

    with effects.locked(lab.name, "verify") as lease:
        seen = survey(lab, effects, targets)
        stopped = journal.noted(lab.name, RESTART, effects)
        candidates = [one for one in seen.wanted if one.services or targets]
        running = [one for one in candidates if is_running(one, seen.actual) or one.name in stopped]
        there = []
        for one in running:
            found = seen.actual.instance(one.name)
            if found is not None:
                there.append(replace(found, stop_s=one.stop_s))
        lease.check()
        journal.note(there, RESTART, effects)
        up = [one for one in there if one.status is Status.RUNNING]
        stops = [Change("stop", one.name, one, one, AFTER_REBOOT) for one in up]
        apply_instances(stops, effects.providers, effects.emit)
        failures = _start(there, effects)
        journal.forget(there, effects)
        _refuse_failures(failures)
        settled(running, effects)
    return tuple(one.name for one in running)


def _start(stopped: Sequence[Instance], effects: Effects) -> list[ProviderError]:
    """What kept containers from coming up; one that does not keeps no other one from being started."""
    from provisioner.reconcile.apply import apply_instances

    failures = []
    for one in stopped:
        change = Change("start", one.name, one, replace(one, status=None), AFTER_REBOOT)
        try:
            apply_instances([change], effects.providers, effects.emit)
        except ProviderError as error:
            failures.append(error)
    return failures


def _refuse_failures(failures: Sequence[ProviderError]) -> None:
    if failures:
        raise VerificationError(
            "Unable to prove that the lab works after a start of its containers",
            details="\n".join(f"{error.message}\n{error.details}" for error in failures),
            resolution=failures[0].resolution or "Look at the host: provision doctor",
        )


def announce_checks(
    wanted: Sequence[Instance],
    findings: Sequence[Finding],
    effects: Effects,
    asked: Proofs | None = None,
) -> None:
    """Say of each service whether it works, or why it was not asked."""
    not_asked = asked.not_asked if asked else NOTHING
    failed = {finding.subject: finding for finding in findings}
    for one in wanted:
        for service in one.services:
            finding = failed.get(service.address) or failed.get(Address.of(one.name))
            if finding is None and service.address in not_asked:
                why = f"not asked: {not_asked[service.address]}"
                is_asleep = asked is not None and service.address in asked.asleep
                effects.emit(Check(service.address, service.role, None, why, not_asked=True, asleep=is_asleep))
                continue
            message = finding.message if finding else "works"
            effects.emit(Check(service.address, service.role, finding is None, message))


# Proofs that can be had now: a service that computes for somebody is waited for, not accused.

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
    from provisioner.reconcile.configure import prove  # nothing that a plan needs

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


# The record of the last proof of each service: what it asked and what came of it, kept beside the lab's measurements.

FILE = "proofs.json"
MOST_STEPS = 100
"""Of one proof; the longest of our roles has fewer than 60."""
MOST_CHARACTERS = 1600
"""Of what a task said, more than ``task_event`` lets through of one that went well: the word of a container is not
trusted with the controller's disk."""


@dataclass(frozen=True, slots=True)
class Proved:
    """The last proof of a service: when it ended (ISO 8601), of which verb, its steps, and why it failed, if it did."""

    at: str
    verb: str
    steps: tuple[ProofStep, ...]
    failure: str = ""


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


def ended_proofs(
    verb: str, at: str, facts: Iterable[ContainerFact], failed: Collection[str] = ()
) -> dict[Address, Proved]:
    """The proofs of services that were asked something, by what was found out about them.

    ``failed``: containers whose run failed; where nothing judged a service of theirs, its first failed step says why,
    and one without such a step is left out: it is not proved by what went well before.
    """
    known = tuple(facts)
    outcomes = by_address(known, Proof)
    steps: dict[Address, list[ProofStep]] = {}
    for step in of_kind(known, ProofStep):
        steps.setdefault(step.address, []).append(step)
    found = {}
    for address in dict.fromkeys((*steps, *outcomes)):
        own = steps.get(address, [])
        outcome = outcomes.get(address)
        failure = outcome.failure if outcome else ""
        if outcome is None and address.container in failed:  # elsewhere a role has made up for it
            failure = _words_of_failed(own)
            if not failure:  # nobody knows whether its proof came to its end
                continue
        found[address] = Proved(at, verb, tuple(own[:MOST_STEPS]), failure)
    return found


def _words_of_failed(steps: Sequence[ProofStep]) -> str:
    for step in steps:
        if not step.well:
            return step.words or f"{step.asked}: failed"
    return ""


def remember(lab: str, ended: Mapping[Address, Proved], secrets: Sequence[Secret] = ()) -> None:
    """Keep these instead of older ones of the same services; raises ``OSError`` or ``InputError`` where that fails.

    No value of ``secrets`` is written, whoever said it.
    """
    if not ended:
        return
    content = _read(lab)
    for address, one in ended.items():
        content[str(address)] = {
            "at": one.at,
            "verb": one.verb,
            "failure": masked(one.failure, secrets)[:MOST_CHARACTERS],
            "steps": [_plain_step(step, secrets) for step in one.steps],
        }
    folder = paths.state(lab)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(folder / FILE, json.dumps(content, indent=1, sort_keys=True))


def _plain_step(step: ProofStep, secrets: Iterable[Secret]) -> dict[str, Any]:
    plain = asdict(replace(step, words=masked(step.words, secrets)[:MOST_CHARACTERS]))
    del plain["address"]
    return plain


def proofs_in(lab: str) -> dict[Address, Proved]:
    """The last proofs of a lab's services; nothing of those whose record cannot be read."""
    try:
        content = _read(lab)
    except OSError:
        return {}
    found = {}
    for name, one in content.items():
        try:
            address = Address(name)
            steps = tuple(_step(address, step) for step in one["steps"])
            found[address] = Proved(str(one["at"]), str(one["verb"]), steps, str(one["failure"]))
        except (AttributeError, KeyError, TypeError, ValueError):  # another version wrote it: it is proved again
            continue
    return found


def _step(address: Address, said: Mapping[str, Any]) -> ProofStep:
    return ProofStep(address, str(said["asked"]), said["well"] is True, str(said["words"]), float(said["took_s"]))


def _read(lab: str) -> dict[str, Any]:
    try:
        content = json_value(text_of(paths.state(lab) / FILE))
    except FileNotFoundError:
        return {}
    except ValueError:  # cut off, or not ours: what it held is proved again
        return {}
    return content if isinstance(content, dict) else {}
