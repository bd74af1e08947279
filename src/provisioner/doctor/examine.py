"""The verb ``doctor``: hosts, cards and containers are asked, and what is wrong with them is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from provisioner.doctor import hosts
from provisioner.doctor.cards import (
    NODES,
    Build,
    Graphics,
    card_diagnoses,
    cuda_diagnosis,
    requirement_diagnosis,
    unseen_diagnosis,
)
from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed
from provisioner.doctor.downloads import download_diagnoses
from provisioner.doctor.inside import inside_diagnoses
from provisioner.gpus.cards import Card
from provisioner.gpus.health import HostDriver
from provisioner.gpus.inside import SCRIPT, Inside, inside_in
from provisioner.hosts.base import Provider
from provisioner.lab import desired_fleet, images_by_host
from provisioner.lab.artifacts import BUILD_HINT, dhcp_doubts
from provisioner.lab.cards import card_requests, choose_cards
from provisioner.lab.opening import Lab, find_files
from provisioner.lab.resolved import ResolvedLab
from provisioner.reconcile.capacity import PORTS_HINT, taken_ports
from provisioner.reconcile.observe import kept_images
from provisioner.reconcile.plan import make_plan
from provisioner.report.messages import check_text, finding_text
from provisioner.report.style import PLAIN, Style, count_text
from provisioner.services import knowledge_of
from provisioner.values.errors import ProviderError, ProvisionError
from provisioner.values.facts import of_kind
from provisioner.values.host_facts import DISK_HINT, MEMORY_HINT, HostAnswers, HostFact
from provisioner.values.plain_data import Foreign
from provisioner.values.plan import ImpossiblePlanError
from provisioner.values.state import Fleet, InstanceKind, Status

# Room: memory, disks and ports that the file asks for, held against one of its hosts.


def room_diagnoses(lab: Lab, desired: Fleet, there: Fleet, provider: Provider) -> Iterator[Diagnosis]:
    """Yield which ports of the provider's host are taken, what was seen of its memory, and which storages are tight.

    Raises ``PreflightError`` in the end for new disks that the host cannot have.
    """
    host = provider.host
    containers = tuple(container for container in desired.instances if container.host == host)
    taken = "; ".join(taken_ports(lab, containers, there))
    if taken:
        yield diagnosed(host, "ports", Verdict("", taken, PORTS_HINT))
    try:
        plan = make_plan(Fleet(lab.name, containers), there)
    except ImpossiblePlanError as error:
        plan = error.plan
    has = provider.capacity(plan.growing_on(host))
    short = has.short_memory(containers)
    if short:
        yield diagnosed(host, "memory", Verdict(short, warning=MEMORY_HINT))
    elif has.memory:
        yield diagnosed(host, "memory", Verdict("it has what the containers of the file may take together"))
    for words in dhcp_doubts(artifact for artifact in desired.artifacts if artifact.host == host):
        yield diagnosed(host, "builders", Verdict(words, warning=BUILD_HINT))
    for words in has.require_room(host):
        yield diagnosed(host, "room", Verdict(words, warning=DISK_HINT))


# The look at each host, and the judgement of what was seen.

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
    from provisioner.doctor.site_names import site_diagnoses  # nothing that a lab without a door needs

    return (*found, *site_diagnoses(lab, providers))


def examine_machine(provider: Provider) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of this machine where there is no file of a lab yet."""
    return hosts.diagnoses(provider.examine(frozenset(), ""))


def mend(found: Iterable[Diagnosis], providers: Mapping[str, Provider]) -> tuple[str, ...]:
    """Do what is safe about what was found: make the nodes that cards lack, on a host that is this machine.

    What was done, in words; raises ``ProviderError`` where it was tried and failed.
    """
    lacking = {one.check.target for one in found if one.check.name == NODES and not one.check.ok}
    done = [(name, providers[name].cards.repair()) for name in sorted(lacking)]
    return tuple(f"{name}: {words}" for name, words in done if words)


def _look(lab: Lab, provider: Provider) -> _Seen:
    name = provider.host
    there = _observed(lab, provider)
    made_of = lab.resolved.with_known(replace(lab.resolved.known, images=kept_images(lab, there)))
    facts = provider.examine(images_by_host(made_of).get(name, frozenset()), lab.name)
    requests = card_requests(lab.resolved).get(name, {})
    if any(answers.problem for answers in of_kind(facts, HostAnswers)):
        return _Seen(facts, Graphics(name))
    further = (*_room(lab, made_of, there, provider), *_packages(there, provider))
    try:
        cards = provider.cards.read()
        driver = provider.cards.driver() if cards else HostDriver()
    except ProvisionError as error:
        return _Seen(facts, Graphics(name), error if requests else None, further=further)
    page = lab.resolved.hosts[name]
    seen = Graphics(name, cards, driver, requests, lends=page.attaches_cards, is_here=page.is_here)
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
        lab.check_stacks(there.hosts)
        desired = desired_fleet(resolved, find_files(lab).files, there.hosts)
        yield from download_diagnoses(resolved, desired, there, provider.host)
        yield from room_diagnoses(lab, desired, there, provider)
    except ProvisionError as error:
        yield diagnosed(provider.host, "plan", Verdict("", error.message, error.resolution, error.details))


def _packages(there: Fleet, provider: Provider) -> Iterator[Diagnosis]:
    """What the lab's running containers know of newer versions of what is installed in them.

    The first of them says, too, how far it gets on the way to its packages: they share their host's bridge.
    """
    environment = {hosts.WAY: "1"}
    for one in there.instances:
        if one.status is not Status.RUNNING or one.kind is not InstanceKind.SERVING:
            continue
        command = ["sh", "-c", hosts.SCRIPT]
        try:
            done = provider.execute(one.name, command, environment=environment, timeout_s=LOOK_TIMEOUT_S)
        except ProvisionError as error:
            yield hosts.unread_diagnosis(one.name, error.message)
            continue
        environment = {}
        answer = done.stdout.decode(errors="replace")
        yield from hosts.way_diagnoses(one.name, answer)
        seen = hosts.packages_in(answer)
        if done.returncode:
            yield hosts.unread_diagnosis(one.name, Foreign.of_output(done.stderr))
        elif seen is not None:
            yield hosts.packages_diagnosis(one.name, seen)


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
    yield from hosts.diagnoses(seen.facts)
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


# The report: a line for each thing that was seen, and below it what is wrong and what to do.


def diagnoses_text(diagnoses: Sequence[Diagnosis], style: Style = PLAIN, subject: str = "this lab") -> str:
    """All of it; what is wrong is told a second time, with what to do. ``subject``: what nothing is in the way of."""
    lines = [check_text(diagnosis.check, style) for diagnosis in diagnoses]
    findings = [diagnosis.finding for diagnosis in diagnoses if diagnosis.finding is not None]
    if findings:
        lines += ["", *(finding_text(finding, style) for finding in findings)]
        lines.append(f"{count_text(len(findings), 'finding')}.")
    else:
        lines.append(style.paint(f"Healthy: nothing is in the way of {subject}.", "green"))
    return "\n".join(lines)
