"""The verb ``audit``, and the short part of it that belongs to ``verify``: what is open and on no page."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from provisioner.inside import exposure
from provisioner.inside.answers import DamagedAnswerError, egress_answer, openings_answer, places_reached
from provisioner.lab.opening import Lab
from provisioner.reconcile.addresses import lan_address
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.gather import COMMAND
from provisioner.reconcile.observe import is_running, survey
from provisioner.serving.audit import (
    NAME,
    WHOLE,
    Asked,
    Audited,
    Extent,
    container_question,
    doors_from_lan,
    doors_inside,
    image_sockets,
    judged_doors,
    judged_egress,
    judged_publications,
    judged_sockets,
    keyless_on_lan,
)
from provisioner.values.address import Address
from provisioner.values.declared import REACHES
from provisioner.values.errors import ProviderError
from provisioner.values.events import ApplyProgress, Check
from provisioner.values.facts import ContainerFact, Health, UnitState, of_kind
from provisioner.values.plain_data import Foreign, answer_value, foreign
from provisioner.values.state import Execution, Finding, Fleet, Instance

EGRESS = ("python3", "-BIS", "/usr/local/lib/egress/egress.py", "prove")
"""The program of role ``egress``; the name of a service's unit follows, and further places, as ADDRESS:PORT."""
SPARE_S = 30.0
"""So much longer than its requests may take, a look into a container may take."""

Answer = dict[str, Any] | str
"""What a container said, or why it did not."""


def audit(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> Audited:
    """Ask the running containers for all that is open in them, and say what is on no page; changes nothing."""
    seen = survey(lab, effects, targets, needs_cards=False, needs_answers=False)
    running = [one for one in seen.wanted if is_running(one, seen.actual)]
    stopped = [one for one in seen.wanted if one not in running]
    not_asked = tuple(Check(one.name, NAME, None, "not asked: it does not run", not_asked=True) for one in stopped)
    for one in running:
        effects.emit(ApplyProgress(one.name, "see what is open"))
    found = audited(lab, running, seen.facts, effects, WHOLE)
    keyless = tuple(finding for one in running for finding in keyless_on_lan(one, lab.resolved))
    found += Audited(not_asked, (*keyless, *_passed_on(running, effects)))
    return sum(ways_out(lab.resolved.hostname, running, seen.actual, effects), found)


def _passed_on(running: Sequence[Instance], effects: Effects) -> Iterator[Finding]:
    """Ask the hosts what they pass on to the containers, and yield what the file does not ask for."""
    for one in running:
        try:
            yield from judged_publications(one, effects.providers[one.host].network.publications(one.name))
        except ProviderError as error:
            yield _unseen(one, _words(error))


def ways_out(
    hostname: Callable[[str, str], str], running: Sequence[Instance], actual: Fleet, effects: Effects
) -> Iterator[Audited]:
    """Ask as each service that runs others' code for what it must not reach, the lab's other containers among it.

    ``hostname``: under which name or address the first container is reached by the second.
    """
    addresses = {one.name: one.address for one in actual.instances if one.address}
    for one in running:
        neighbours = [other for other in running if other is not one and other.name in addresses]
        places = {
            f"{addresses[other.name]}:{service.port}": f"{hostname(other.name, one.name)}:{service.port}"
            for other in neighbours
            for service in other.services
            if service.port
        }
        for service in one.services:
            if f"{service.role}_{REACHES}" not in service.variables:
                continue
            command = [*EGRESS, str(service.unit).removesuffix(".service"), *places]
            effects.emit(ApplyProgress(service.address, "ask for what it must not reach"))
            try:
                ran = effects.providers[one.host].execute(one.name, command, timeout_s=SPARE_S + len(places))
                told = foreign(egress_answer(answer_value(ran.stdout)))
                past = _past_its_host(actual.instance(one.name), told["asked"], places, effects)
            except ProviderError as error:
                yield Audited(findings=(_unseen(one, _words(error)),))
            except (DamagedAnswerError, ValueError) as error:
                said = Foreign.of_output(ran.stderr) or f"its answer is damaged: {error}"
                yield Audited(findings=(_unseen(one, f"{' '.join(EGRESS)}: {said}"),))
            else:
                yield judged_egress(service.address, told, past)


def _past_its_host(
    there: Instance | None, asked: Iterable[str], names: Mapping[str, str], effects: Effects
) -> list[str] | None:
    """Ask as root, whom no rule in the container keeps in; return what was reached, None where its host has no rules.

    ``names``: of places that its host may know by a name.
    """
    if there is None or there.reaches is None or there.refused_by:
        return None
    places = []
    for place in asked:
        if {place, names.get(place)}.isdisjoint(there.reaches):
            host, _, port = place.rpartition(":")
            places.append([host, int(port)])
    stdin, limit_s = json.dumps(places).encode(), SPARE_S + len(places)
    ran = effects.providers[there.host].execute(there.name, [*EGRESS[:-1], "ask"], stdin=stdin, timeout_s=limit_s)
    return places_reached(answer_value(ran.stdout))


def audited(
    lab: Lab, running: Sequence[Instance], facts: Iterable[ContainerFact], effects: Effects, extent: Extent
) -> Audited:
    """What of the running containers is open and on no page; each is asked once, all of a host at the same time."""
    quiet = _only_looked_at(facts)
    inside = {one.name: doors_inside(one, lab.resolved, extent, quiet) for one in running}
    outside = {one.name: _from_lan(lab, one, extent, quiet) for one in running}
    with ThreadPoolExecutor(2) as pool:  # both ask the same services, from two sides
        from_lan = pool.submit(_asked_from_here, outside, extent)
        answers = _asked_inside(running, inside, effects, extent)
        here = from_lan.result()
    whole = Audited()
    for one in running:
        answer = answers[one.name]
        if isinstance(answer, str):
            whole += Audited(findings=(_unseen(one, answer),))
            continue
        sockets = tuple(judged_sockets(one, lab.resolved, answer["sockets"], extent))
        problem = (_unseen(one, answer["problem"]),) if answer["problem"] else ()
        images = tuple(image_sockets(one, lab.resolved, answer["sockets"])) if extent.every_socket else ()
        whole += Audited(images, (*problem, *sockets))
        doors = (*inside[one.name], *outside[one.name])
        whole += judged_doors(doors, (*answer["doors"], *here[one.name]), lab.resolved)
    return whole


def _only_looked_at(facts: Iterable[ContainerFact]) -> frozenset[Address]:
    """The services that are asleep, busy, or not there: nothing is asked that would wake them or wait for them."""
    known = tuple(facts)
    units = (unit.address for unit in of_kind(known, UnitState) if not unit.is_active)
    busy = (health.address for health in of_kind(known, Health) if health.is_busy)
    return frozenset((*units, *busy))


def _unseen(instance: Instance, why: str) -> Finding:
    """What was not looked at is never closed."""
    return Finding(
        Address.of(instance.name),
        "nobody could see what is open in it",
        details=why,
        resolution=f"Look at it: provision exec {instance.name}",
    )


def _from_lan(lab: Lab, instance: Instance, extent: Extent, quiet: frozenset[Address]) -> tuple[Asked, ...]:
    """What is asked at the host's address; nothing of containers that have their own one in the LAN."""
    address = lan_address(lab, instance.name)
    return () if address is None else doors_from_lan(instance, lab.resolved, address, extent, quiet)


def _asked_from_here(outside: Mapping[str, Sequence[Asked]], extent: Extent) -> dict[str, list[dict[str, Any]]]:
    """The answers to this machine, by containers."""

    def ask(doors: Sequence[Asked]) -> list[dict[str, Any]]:
        question = container_question(doors, extent, len(doors)) | {"sockets": False}
        return list(exposure.look(question)["doors"]) if doors else []

    with ThreadPoolExecutor(max(1, len(outside))) as pool:
        return dict(zip(outside, pool.map(ask, outside.values()), strict=True))


def _asked_inside(
    running: Sequence[Instance], inside: Mapping[str, Sequence[Asked]], effects: Effects, extent: Extent
) -> dict[str, Answer]:
    """What each container said of itself."""
    questions = dict[str, dict[str, Any]]()
    for one in running:
        doors = inside[one.name]
        questions[one.name] = container_question(doors, extent, len(one.services))

    def look(host: str) -> dict[str, Answer]:
        mine = dict[str, bytes]()
        for one in running:
            if one.host == host:
                mine[one.name] = json.dumps(questions[one.name]).encode()
        program = zlib.compress(Path(exposure.__file__).read_bytes())
        looked = effects.providers[host].look(
            COMMAND,
            mine,
            shared=program,
            timeout_s=extent.within_s + SPARE_S,
        )
        told: dict[str, Answer] = {name: _answer(ran, questions[name]) for name, ran in looked.executions.items()}
        return told | {name: _words(error) for name, error in looked.failures.items()}

    hosts = sorted({one.host for one in running})
    with ThreadPoolExecutor(max(1, len(hosts))) as pool:
        return {name: answer for told in pool.map(look, hosts) for name, answer in told.items()}


def _answer(ran: Execution, asked: Mapping[str, Any]) -> Answer:
    """What a container said, where that is what was asked."""
    if ran.returncode:
        said = Foreign.of_output(ran.stderr)
        return f"python3 ended with {ran.returncode}: {said or 'it said nothing'}"
    try:
        return foreign(openings_answer(answer_value(ran.stdout), asked))
    except (DamagedAnswerError, ValueError) as error:
        return f"its answer is damaged: {error}"


def _words(error: ProviderError) -> str:
    return f"{error.message}: {error.details}" if error.details else error.message
