"""The verb ``doctor``: every host of the file looked at, all at once; then what of its cards arrived in containers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from provisioner.doctor import Diagnosis, diagnoses, packages
from provisioner.doctor.cards import NODES, Graphics, card_diagnoses, requirement_diagnosis, unseen_diagnosis
from provisioner.doctor.cuda import Build, cuda_diagnosis
from provisioner.doctor.diagnosis import Verdict, diagnosed
from provisioner.doctor.inside import inside_diagnoses
from provisioner.gpus.cards import Card
from provisioner.gpus.health import HostDriver
from provisioner.gpus.inside import SCRIPT, Inside, inside_in
from provisioner.lab import images_by_host
from provisioner.lab.cards import card_requests, choose_cards, lends
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import ResolvedLab
from provisioner.providers.base import Provider
from provisioner.reconcile.observe import kept_images
from provisioner.services import knowledge_of
from provisioner.values.errors import ProviderError, ProvisionError
from provisioner.values.facts import of_kind
from provisioner.values.host_facts import HostAnswers, HostFact
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Fleet, InstanceKind, Status
from provisioner.workflow.examining_downloads import download_diagnoses
from provisioner.workflow.examining_room import room_diagnoses

LOOK_TIMEOUT_S = 60.0
CARD = "card"
"""The option in which a service that computes on its container's card is told about it."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was found out about one host."""

    facts: tuple[HostFact, ...]
    graphics: Graphics
    error: ProvisionError | None = None
    """What kept its cards, or a container that has one, from being looked at."""
    inside: Mapping[str, Inside] = field(default_factory=dict)
    """What running containers with a card said."""
    further: tuple[Diagnosis, ...] = ()
    """Findings on downloads, ports and room for the file, and on the packages of running containers."""


def examine(lab: Lab, providers: Mapping[str, Provider]) -> tuple[Diagnosis, ...]:
    """What was seen of each host, its cards, the containers that have one and doors, and what is wrong with it."""
    with ThreadPoolExecutor(max(1, len(providers))) as pool:
        seen = list(pool.map(lambda name: _look(lab, providers[name]), sorted(providers)))
    found = tuple(diagnosis for one in seen for diagnosis in _judged(lab, one))
    if not any(service.sites for service in lab.resolved.services.values()):
        return found
    from provisioner.workflow.site_names import site_diagnoses  # nothing that a lab without a door needs

    return (*found, *site_diagnoses(lab, providers))


def mend(found: Iterable[Diagnosis], providers: Mapping[str, Provider]) -> tuple[str, ...]:
    """Do what is safe about what was found: make the nodes that cards lack, on a host that is this machine.

    What was done, in words; raises ``ProviderError`` where it was tried and failed.
    """
    hosts = {one.check.target for one in found if one.check.name == NODES and not one.check.ok}
    done = [(name, providers[name].mend_cards()) for name in sorted(hosts)]
    return tuple(f"{name}: {words}" for name, words in done if words)


def _look(lab: Lab, provider: Provider) -> _Seen:
    name = provider.host
    there = _observed(lab, provider)
    made_of = lab.resolved.with_known(replace(lab.resolved.known, images=kept_images(lab, there)))
    facts = provider.examine(images_by_host(made_of).get(name, frozenset()))
    requests = card_requests(lab.resolved).get(name, {})
    if any(answers.problem for answers in of_kind(facts, HostAnswers)):
        return _Seen(facts, Graphics(name))
    further = (*_room(lab, made_of, there, provider), *_packages(there, provider))
    try:
        cards = provider.cards()
        driver = provider.host_driver() if cards else HostDriver()
    except ProvisionError as error:
        return _Seen(facts, Graphics(name), error if requests else None, further=further)
    seen = Graphics(name, cards, driver, requests, lends=lends(lab.resolved.hosts[name]))
    try:
        return _Seen(facts, seen, inside=dict(_arrived(lab, provider, seen)), further=further)
    except ProvisionError as error:
        return _Seen(facts, seen, error, further=further)


def _observed(lab: Lab, provider: Provider) -> Fleet:
    """The lab's containers there; none where the host does not let us look, which is looked at and told by itself."""
    try:
        return provider.observe(lab.name, detailed=False)
    except ProvisionError:
        return Fleet(lab.name)


def _room(lab: Lab, resolved: ResolvedLab, there: Fleet, provider: Provider) -> Iterator[Diagnosis]:
    """Yield whether downloads can be had and there is room for what is made, as far as is known, and why no further."""
    if provider.host not in there.hosts:
        return  # it does not let us look at its containers, which is told already
    try:
        desired = lab.fleet(resolved, there.hosts, needs_wheels=False, needs_hashes=False)
        yield from download_diagnoses(resolved, desired, there, provider.host)
        yield from room_diagnoses(lab, desired, there, provider)
    except ProvisionError as error:
        yield diagnosed(provider.host, "plan", Verdict("", error.message, error.resolution, error.details))


def _packages(there: Fleet, provider: Provider) -> Iterator[Diagnosis]:
    """What the lab's running containers know of newer versions of what is installed in them."""
    for one in there.instances:
        if one.status is not Status.RUNNING or one.kind is not InstanceKind.SERVING:
            continue
        try:
            done = provider.execute(one.name, ["sh", "-c", packages.SCRIPT], timeout_s=LOOK_TIMEOUT_S)
        except ProvisionError as error:
            yield packages.unread_diagnosis(one.name, error.message)
            continue
        seen = packages.packages_in(done.stdout.decode(errors="replace"))
        if done.returncode:
            yield packages.unread_diagnosis(one.name, Foreign.of_output(done.stderr))
        elif seen is not None:
            yield packages.packages_diagnosis(one.name, seen)


def _arrived(lab: Lab, provider: Provider, seen: Graphics) -> Iterator[tuple[str, Inside]]:
    """What the running containers say that get a card."""
    cards = seen.given
    if not cards:
        return
    resolved = lab.resolved.with_known(replace(lab.resolved.known, cards=cards))
    for one in provider.observe(lab.name, detailed=False).instances:
        if one.name in cards and one.status is Status.RUNNING:
            services = resolved.containers[one.name].services
            units = [service.page.unit for service in services if CARD in service.derived and service.page.unit]
            done = provider.execute(one.name, ["sh", "-c", SCRIPT, "sh", *units], timeout_s=LOOK_TIMEOUT_S)
            if done.returncode:
                said = Foreign.of_output(done.stderr)
                raise ProviderError(f"Unable to look into container {one.name}", details=said)
            yield one.name, inside_in(done.stdout.decode(errors="replace"))


def _judged(lab: Lab, seen: _Seen) -> Iterator[Diagnosis]:
    yield from diagnoses(seen.facts)
    yield from seen.further
    yield from card_diagnoses(seen.graphics)
    cards = seen.graphics.given
    _, problems = choose_cards(lab.resolved, {seen.graphics.host: seen.graphics.cards})
    for problem in problems:
        if problem.path[1] in cards:  # of those that get none it has been said
            yield requirement_diagnosis(seen.graphics.host, problem)
    for container, inside in seen.inside.items():
        yield from inside_diagnoses(container, cards[container], inside, seen.graphics.driver.module)
    for container, build in _builds(lab, cards):
        yield cuda_diagnosis(build, cards[container])
    if seen.error is not None:
        yield unseen_diagnosis(seen.graphics.host, seen.error)


def _builds(lab: Lab, cards: Mapping[str, Card]) -> Iterator[tuple[str, Build]]:
    """The engines that are built with CUDA for a card, by their containers."""
    resolved = lab.resolved.with_known(replace(lab.resolved.known, cards=cards))
    for service in resolved.services.values():
        build = knowledge_of(service.role).cuda_build(service)
        if service.card is not None and build is not None:
            yield service.container, Build(service.address, build.version, build.architectures)
