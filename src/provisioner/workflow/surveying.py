"""Looking before doing: the file's lab beside the hosts' lab, the running containers looked into."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from provisioner.lab.opening import Lab
from provisioner.lab.rules import short_keys
from provisioner.probe import probe, require_answers
from provisioner.providers.base import Provider
from provisioner.reconcile.plan import make_plan
from provisioner.services import knowledge_of
from provisioner.stamp import reasons_to_run
from provisioner.values.address import Address
from provisioner.values.errors import VerificationError
from provisioner.values.events import Diagnostic
from provisioner.values.facts import (
    ASLEEP,
    BUSY,
    ContainerFact,
    DamagedArtifacts,
    Health,
    HostVolumes,
    Leftovers,
    Rest,
    Silent,
    UnitState,
    Verdict,
    by_address,
    of_kind,
)
from provisioner.values.plan import AS_WRITTEN, Inside, Plan, Wishes, differences
from provisioner.values.state import (
    ContainerStatus,
    Fleet,
    Instance,
    InstanceKind,
    Screen,
    Service,
    ServiceStatus,
    Status,
)
from provisioner.workflow.addressing import Addresses, look_at_addresses
from provisioner.workflow.effects import Effects
from provisioner.workflow.selecting import look_at_cards, require_cards

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card

FULL = "everything is run again (--full)"
NOT_THERE = "not there"
"""The agent's word for a unit that the container does not have yet."""
NOWHERE = Addresses()
"""Nothing has to be known of addresses."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The lab as it should be and as it is, limited to what was asked for."""

    desired: Fleet
    actual: Fleet
    wanted: tuple[Instance, ...]
    facts: tuple[ContainerFact, ...]
    inside: Inside
    cards: Mapping[str, Card] = field(default_factory=dict)
    """The cards of the containers that want one, by their names."""
    cardless: Mapping[str, str] = field(default_factory=dict)
    """Why containers that want a card get none."""
    addresses: Addresses = NOWHERE
    kept: Mapping[str, str] = field(default_factory=dict)
    """The images of containers that are there and whose file names none, by their names."""

    def plan(self, wishes: Wishes = AS_WRITTEN) -> Plan:
        """What has to change."""
        made = make_plan(self.desired, self.actual, inside=self.inside, wishes=wishes)
        self.addresses.refuse_unknown(made)
        unsettled = self.addresses.unsettled(made)
        if not unsettled:
            return made
        reasons = {**self.inside.reasons}
        for address, why in unsettled.items():
            reasons[address] = (*reasons.get(address, ()), *why)
        return make_plan(self.desired, self.actual, inside=replace(self.inside, reasons=reasons), wishes=wishes)

    def unsure(self, made: Plan) -> frozenset[Address]:
        """The services that are in the plan only because an address may turn out to be another one."""
        return frozenset(self.addresses.unsettled(made)) - self.inside.reasons.keys()

    def readdressed(self, lab: Lab, effects: Effects) -> Survey:
        """The same with what services have to know of addresses elsewhere as those are by now."""
        if not self.addresses.users:
            return self
        addresses = look_at_addresses(lab, effects.providers, self.actual)
        resolved = lab.on_hosts(self.cards, addresses=addresses.known, images=self.kept)
        desired = lab.fleet(resolved, self.actual.hosts)
        names = {one.name for one in self.wanted}
        wanted = tuple(one for one in desired.instances if one.name in names)
        return replace(self, desired=desired, wanted=wanted, addresses=addresses)


def observe(
    lab: str, providers: Mapping[str, Provider], *, detailed: bool = True, adopt: Collection[str] = ()
) -> Fleet:
    """The lab as it is: every host asked at once; raises ``UnavailableError`` when one does not answer.

    ``detailed`` False leaves out addresses and snapshots; containers named in ``adopt`` are told although nobody's.
    """

    def look(provider: Provider) -> Fleet:
        return provider.observe(lab, detailed=detailed, adopt=adopt)

    with ThreadPoolExecutor(max(1, len(providers))) as pool:
        seen = list(pool.map(look, providers.values()))
    instances = sorted((one for fleet in seen for one in fleet.instances), key=lambda one: (one.host, one.name))
    return Fleet(lab, tuple(instances), hosts={name: state for fleet in seen for name, state in fleet.hosts.items()})


def survey(
    lab: Lab,
    effects: Effects,
    targets: Iterable[str] = (),
    *,
    full: bool = False,
    detailed: bool = False,
    needs_cards: bool = True,
    needs_answers: bool = True,
    anew: Collection[str] = (),
) -> Survey:
    """The lab beside its file, its running containers looked into.

    With ``full`` every byte of every artifact is read, and every role counts as one that has to be run; raises
    ``VerificationError`` for an artifact that is not what it was, ``PreflightError`` for a container that gets no card,
    unless that may be (``needs_cards`` False), and ``ProviderError`` for one that does not answer (``needs_answers``).
    Those that are made ``anew`` get the image that new ones get.
    """
    adopt = frozenset(name for name, one in lab.spec.containers.items() if one.adopt)
    with ThreadPoolExecutor(1) as pool:  # nvidia-smi may take as long as all else
        looked = pool.submit(look_at_cards, lab, effects.providers)
        actual = observe(lab.name, effects.providers, detailed=detailed, adopt=adopt)
        cards, cardless = looked.result()
    if needs_cards:
        require_cards(cardless)
    addresses = look_at_addresses(lab, effects.providers, actual)
    kept = kept_images(lab, actual, anew)
    resolved = lab.on_hosts(cards, addresses=addresses.known, images=kept)
    desired = lab.fleet(resolved, actual.hosts, emit=effects.emit)
    for note in lab.models().notes:
        effects.emit(Diagnostic("note", f"{note}; up notes it in {lab.lock_file}"))
    limit = frozenset(targets)
    wanted = tuple(one for one in desired.instances if not limit or one.name in limit)
    running = [one for one in wanted if is_running(one, actual)]
    facts = probe(running, effects.providers, full=full, hosts=actual.hosts)
    if needs_answers:
        require_answers(facts)
    actual = _with_volumes(actual, facts)
    _refuse_damage(facts)
    reasons = {address: why for one in running for address, why in reasons_to_run(one, facts).items()}
    if full:
        reasons = {role.address: (*reasons.get(role.address, ()), FULL) for one in running for role in one.roles}
    leftovers = tuple(
        Address.of(fact.address.container, role) for fact in of_kind(facts, Leftovers) for role in fact.roles
    )
    starts = {rest.address: rest.start_s for rest in of_kind(facts, Rest) if rest.start_s}
    closed = frozenset(service.address for one in running for service in closable(one, facts))
    inside = Inside(reasons, leftovers, starts, closed)
    return Survey(desired, actual, wanted, facts, inside, cards, cardless, addresses, kept)


def closable(one: Instance, facts: Collection[ContainerFact]) -> list[Service]:
    """The services of a container that people write into, and that were there when it was looked into."""
    units = by_address(facts, UnitState)
    found = list[Service]()
    for service in one.services:
        unit = units.get(service.address)
        was_there = unit is not None and unit.state != NOT_THERE
        if service.closed_by and was_there:
            found.append(service)
    return found


def kept_images(lab: Lab, actual: Fleet, anew: Collection[str] = ()) -> dict[str, str]:
    """The images that containers keep by their marks, by their names: those that are there and whose file names none.

    A default that changes is for containers that are made from now on; it never asks for a replacement.
    """
    kept = {}
    for name, container in lab.spec.containers.items():
        there = actual.instance(name)
        if there is None or there.lab != lab.name or name in anew:
            continue
        if container.image is None and there.image:
            kept[name] = there.image
    return kept


def warn_of_kept_images(lab: Lab, survey: Survey, effects: Effects) -> None:
    """Say which containers are made of another image than the same file would make them of today."""
    for name, image in survey.kept.items():
        usual = lab.resolved.containers[name].default_image
        if image != usual:
            message = f"Container {name} stays {image}, of which it was made; new ones are made of {usual}."
            how = (
                f"Write image: {image} to keep it so, or make it anew, which deletes what is in it: "
                f"provision up --replace {name}"
            )
            effects.emit(Diagnostic("warning", message, resolution=how))


def _with_volumes(actual: Fleet, facts: Iterable[ContainerFact]) -> Fleet:
    """The same with the volumes of hosts where looking tells them."""
    listed = {str(host): fact.volumes for host, fact in by_address(facts, HostVolumes).items()}
    hosts = {name: replace(one, volumes=listed.get(name, one.volumes)) for name, one in actual.hosts.items()}
    return replace(actual, hosts=hosts)


def is_running(wanted: Instance, actual: Fleet) -> bool:
    """Whether the container runs now."""
    there = actual.instance(wanted.name)
    return there is not None and there.status is Status.RUNNING


def warn_of_moved(actual: Fleet, effects: Effects) -> None:
    """Say which containers of the lab were moved to where no driver of the file works: nothing is done to them."""
    for host in actual.hosts.values():
        for name, where in host.moved.items():
            if actual.instance(name) is None:
                what = f"container {name} of this lab is not on host {host.name} but {where}"
                effects.emit(Diagnostic("warning", f"{what}: it is left alone. {host.moved_hints[name]}"))


def check_seen(lab: Lab, seen: Survey, effects: Effects) -> None:
    """Warn of kept images; raise ``InputError`` where requests would wait for less than a service takes to start.

    A key that can be guessed is refused as well where its container is not there yet; others were warned of.
    """
    if any(device.kind == "publish" for one in seen.wanted for device in one.devices):
        from provisioner.workflow.taken_ports import refuse_taken_ports  # nothing that a lab needs which publishes none

        refuse_taken_ports(lab, seen)
    new = {one.name for one in seen.wanted if seen.actual.instance(one.name) is None}
    if guessed := [problem for service, problem in short_keys(lab.resolved) if service.container in new]:
        raise lab.loaded.error(guessed)
    ends = any(service.idle_s or service.share for service in lab.resolved.services.values())
    if ends and of_kind(seen.facts, Rest):
        from provisioner.workflow.resting import require_queues  # nothing that a lab needs whose services never end

        require_queues(lab, seen.facts)
    warn_of_kept_images(lab, seen, effects)


def status(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> tuple[ContainerStatus, ...]:
    """Every container of the file and every orphan as it is now, with what has drifted in it."""
    return look_around(lab, effects, targets)[1]


def look_around(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> tuple[Survey, tuple[ContainerStatus, ...]]:
    """What ``status`` tells, and the survey from which it does."""
    from provisioner.screens import gather

    seen = survey(lab, effects, targets, detailed=True, needs_cards=False, needs_answers=False)
    warn_of_moved(seen.actual, effects)
    warn_of_kept_images(lab, seen, effects)
    for why in seen.cardless.values():
        effects.emit(Diagnostic("warning", why))
    silent = by_address(seen.facts, Silent)
    for fact in silent.values():
        effects.emit(Diagnostic("warning", fact.error.message, fact.error.details))
    running = [one for one in seen.wanted if is_running(one, seen.actual) and Address.of(one.name) not in silent]
    screens = gather(running, effects.providers, lab.folder, effects.emit)
    names = {one.name for one in seen.desired.instances}
    orphans = [one for one in seen.actual.instances if one.name not in names and one.kind is InstanceKind.SERVING]
    found = [_container_status(one, seen, screens) for one in seen.wanted]
    if not targets:
        found += [ContainerStatus(one.name, one.host, one.status, one.address, orphan=True) for one in orphans]
    return seen, tuple(found)


def _container_status(wanted: Instance, survey: Survey, screens: Mapping[str, tuple[Screen, ...]]) -> ContainerStatus:
    there = survey.actual.instance(wanted.name)
    if there is None:
        host = survey.actual.hosts.get(wanted.host)
        place = host.moved.get(wanted.name, "") if host is not None else ""
        return ContainerStatus(wanted.name, wanted.host, elsewhere=place)
    services = (
        replace(
            _service_status(one, survey.facts, has_card=wanted.name in {*survey.cards, *survey.cardless}),
            screens=screens.get(one.address, ()),
        )
        for one in wanted.services
    )
    if wanted.name in survey.cardless:  # what it would be with a card is not known
        return ContainerStatus(
            wanted.name, there.host, there.status, there.address, tuple(services), ("gpu: it gets no card",)
        )
    attributes = differences(there, wanted)
    inside = (f"{role.role}: {why}" for role in wanted.roles for why in survey.inside.reasons.get(role.address, ()))
    return ContainerStatus(
        wanted.name, there.host, there.status, there.address, tuple(services), (*attributes, *inside)
    )


def _options(service: Service) -> dict[str, Any]:
    """The variables of its role without their prefix."""
    return {name.removeprefix(f"{service.role}_"): value for name, value in service.variables.items()}


def _service_status(service: Service, facts: Iterable[ContainerFact], *, has_card: bool) -> ServiceStatus:
    from provisioner.verify import processor

    own = [fact for fact in facts if fact.address == service.address]
    unit, health = by_address(own, UnitState).get(service.address), by_address(own, Health).get(service.address)
    verdict = by_address(own, Verdict).get(service.address)
    healthy = None if health is None else health.is_well and (unit is None or unit.is_well)
    runs = unit is not None and unit.is_active
    asked = knowledge_of(service.role).processor(_options(service), has_card=has_card)
    computes, why = processor(verdict, asked, runs=runs, healthy=healthy)
    word = unit.state if unit else "unknown"
    said = {None: "unknown", True: "healthy", False: "unhealthy"}[healthy]
    if healthy and health is not None and health.is_busy:
        said = BUSY
    rest = by_address(own, Rest).get(service.address)
    asleep = ""
    if healthy and unit is not None and unit.is_asleep and rest is not None:
        from provisioner.workflow.resting import asleep_words  # nothing that a lab whose services are awake needs

        said, asleep = ASLEEP, asleep_words(rest)
    return ServiceStatus(
        service.role, word, healthy=healthy, port=service.port, processor=computes, why=why, health=said, asleep=asleep
    )


def _refuse_damage(facts: Iterable[ContainerFact]) -> None:
    damaged = [f"{fact.address}: {path}" for fact in of_kind(facts, DamagedArtifacts) for path in fact.manifests]
    if damaged:
        raise VerificationError(
            "Unable to trust what is shared read-only: its bytes are not those that were stored",
            details="\n".join(damaged),
            resolution="The container itself says so. Ask another one that has it, too: provision exec NAME -- sh -c "
            "'cd FOLDER && sha256sum --check --quiet MANIFEST.sha256'. If it says the same, destroy those that use it "
            "(provision destroy FILE NAME); up then makes it anew.",
        )
