"""The lab as it is, beside its file: on its hosts, in its running containers, and once its services have come up."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from provisioner.hosts.base import Provider
from provisioner.lab import desired_fleet
from provisioner.lab.cards import others_hold_s, place_in_share
from provisioner.lab.opening import Lab, find_files, with_wheels
from provisioner.lab.opening.model_files import Found
from provisioner.lab.rules import short_keys
from provisioner.reconcile.addresses import Addresses, look_at_addresses
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.gather import has_other_secrets, probe, reasons_to_run, require_answers
from provisioner.reconcile.plan import make_plan
from provisioner.services import knowledge_of
from provisioner.services.base import HOLD_OPTION, IDLE_OPTION, QUEUE_OPTION, Path, ResolvedService
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.errors import PreflightError, VerificationError
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
    RoleStamp,
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
    Problem,
    Screen,
    Service,
    ServiceStatus,
    Status,
)

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
    models: Found
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
        resolved = with_wheels(lab, resolved, self.actual.hosts)
        desired = desired_fleet(resolved, self.models.files, self.actual.hosts)
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
    resolved = with_wheels(lab, lab.on_hosts(cards, addresses=addresses.known, images=kept), actual.hosts)
    models = find_files(lab).hashed(effects.emit)
    desired = desired_fleet(resolved, models.files, actual.hosts)
    for note in models.notes:
        effects.emit(Diagnostic("note", f"{note}; up notes it in {lab.lock_file}"))
    limit = frozenset(targets)
    wanted = tuple(one for one in desired.instances if not limit or one.name in limit)
    actual = _with_owners(actual, wanted, effects.providers)
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
    return Survey(desired, actual, wanted, facts, inside, models, cards, cardless, addresses, kept)


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


def _with_owners(actual: Fleet, wanted: Iterable[Instance], providers: Mapping[str, Provider]) -> Fleet:
    """The same with whose containers are that are not this lab's and have names that it wants."""
    hosts = dict(actual.hosts)
    for container in wanted:
        host = hosts.get(container.host)
        if host is not None and container.name in host.unmanaged:
            other = providers[container.host].read(container.name)
            owner = _lab_words(other.lab) if other and other.lab else ""
            hosts[container.host] = replace(host, owners={**host.owners, container.name: owner})
    return replace(actual, hosts=hosts)


def _lab_words(lab: str) -> str:
    """Name a lab of others, and the file of a checkout that brings up a lab of that name."""
    for file in (paths.share() / "examples").glob("*.yml"):
        if file.stem == lab:
            return f"of lab {lab} (such as that of {file})"
    return f"of lab {lab}"


def check_seen(lab: Lab, seen: Survey, effects: Effects) -> None:
    """Warn of kept images; raise ``InputError`` where requests would wait for less than a service takes to start.

    A key that can be guessed is refused as well, but for one with which its service serves already: of those it was
    warned.
    """
    if any(device.kind == "publish" for one in seen.wanted for device in one.devices):
        from provisioner.reconcile.capacity import refuse_taken_ports  # nothing that a lab needs which publishes none

        refuse_taken_ports(lab, seen)
    given = {service.address for service in _given_keys(seen)}
    if guessed := [problem for service, problem in short_keys(lab.resolved) if service.address in given]:
        raise lab.loaded.error(guessed)
    ends = any(service.idle_s or service.share for service in lab.resolved.services.values())
    if ends and of_kind(seen.facts, Rest):
        require_queues(lab, seen.facts)
    warn_of_kept_images(lab, seen, effects)


def _given_keys(seen: Survey) -> Iterator[Service]:
    """Yield the services to which a run would give secrets: new ones, and those that were proved with others."""
    stamps, units = by_address(seen.facts, RoleStamp), by_address(seen.facts, UnitState)
    for instance in seen.wanted:
        is_new = seen.actual.instance(instance.name) is None
        for service in instance.services:
            address = Address(service.address)
            is_missing = units.get(address) == UnitState(address, NOT_THERE)
            stamp = stamps.get(address, RoleStamp(address, "nobody has looked"))
            if is_new or is_missing or has_other_secrets(service, stamp):
                yield service


# The verb `status`.


def status(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> tuple[ContainerStatus, ...]:
    """Every container of the file and every orphan as it is now, with what has drifted in it."""
    return look_around(lab, effects, targets)[1]


def look_around(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> tuple[Survey, tuple[ContainerStatus, ...]]:
    """What ``status`` tells, and the survey from which it does."""
    from provisioner.reconcile.evidence import gather

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


def _service_status(service: Service, facts: Iterable[ContainerFact], *, has_card: bool) -> ServiceStatus:
    from provisioner.reconcile.judge import processor

    own = [fact for fact in facts if fact.address == service.address]
    unit, health = by_address(own, UnitState).get(service.address), by_address(own, Health).get(service.address)
    verdict = by_address(own, Verdict).get(service.address)
    healthy = None if health is None else health.is_well and (unit is None or unit.is_well)
    runs = unit is not None and unit.is_active
    options = {name.removeprefix(f"{service.role}_"): value for name, value in service.variables.items()}
    asked = knowledge_of(service.role).processor(options, has_card=has_card)
    computes, why = processor(verdict, asked, runs=runs, healthy=healthy)
    word = unit.state if unit else "unknown"
    said = {None: "unknown", True: "healthy", False: "unhealthy"}[healthy]
    if healthy and health is not None and health.is_busy:
        said = BUSY
    rest = by_address(own, Rest).get(service.address)
    asleep = ""
    if healthy and unit is not None and unit.is_asleep and rest is not None:
        said, asleep = ASLEEP, asleep_words(rest)
    return ServiceStatus(
        service.role, word, healthy=healthy, port=service.port, processor=computes, why=why, health=said, asleep=asleep
    )


# Cards of the hosts, and which container gets which.


def cards_of(lab: Lab, providers: Mapping[str, Provider]) -> dict[str, Card]:
    """The card of each container that wants one; ``PreflightError`` says of all who get none why."""
    found, refused = look_at_cards(lab, providers)
    require_cards(refused)
    return found


def look_at_cards(lab: Lab, providers: Mapping[str, Provider]) -> tuple[dict[str, Card], dict[str, str]]:
    """The card of each container that wants one, and why others get none, by their names.

    Only the hosts of such containers are looked at, all at once.
    """
    if not lab.resolved.wants_cards:
        return lab.cards({})
    from provisioner.lab.cards import card_requests  # nothing that a lab without cards needs

    hosts = sorted(card_requests(lab.resolved))
    with ThreadPoolExecutor(len(hosts)) as pool:
        seen = pool.map(lambda host: providers[host].cards.read(), hosts)
        return lab.cards(dict(zip(hosts, seen, strict=True)))


def require_cards(refused: Mapping[str, str]) -> None:
    """Raise ``PreflightError`` when a container gets no card."""
    if refused:
        raise PreflightError(
            "Unable to give each container the graphics card that it wants", details="\n".join(refused.values())
        )


# Waiting for services that come up again by themselves: their container was started a moment ago.

SETTLE_TIMEOUT_S = 180.0
"""A gateway with cold caches on a busy machine took 40 s until it answered."""
SETTLE_POLL_S = 0.5
STARTING = ("activating", "reloading")
"""systemd's words for units that will soon be active."""


def settled(instances: Sequence[Instance], effects: Effects) -> tuple[ContainerFact, ...]:
    """Facts of containers once their services have come up, or have not within ``SETTLE_TIMEOUT_S``.

    A service that nobody has proved yet is not waited for.
    """
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        facts = probe(instances, effects.providers)
        require_answers(facts)
        if not any(_is_coming_up(one, facts) for one in instances) or time.monotonic() > deadline:
            return facts
        time.sleep(SETTLE_POLL_S)


def _is_coming_up(instance: Instance, facts: Sequence[ContainerFact]) -> bool:
    units, pages, stamps = by_address(facts, UnitState), by_address(facts, Health), by_address(facts, RoleStamp)
    for service in instance.services:
        stamp, unit, health = stamps.get(service.address), units.get(service.address), pages.get(service.address)
        if stamp is None or stamp.problem or unit is None:
            continue
        is_late = unit.is_active and health is not None and not health.is_well
        if is_late or unit.state in STARTING:
            return True
    return False


# Services that end when nobody asks them, or when others take their turn: what is said, and what is refused.


def asleep_words(rest: Rest) -> str:
    """Since when it is asleep, when it was proved, and what the next request waits for."""
    words = [f"asleep since {_moment(rest.since)}"]
    if rest.proved:
        words.append(f"proved {_moment(rest.proved)}")
    words.append(f"starts in {rest.start_s:.1f} s" if rest.start_s else "its start was not measured yet")
    return ", ".join(words)


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def require_queues(lab: Lab, facts: Iterable[ContainerFact]) -> None:
    """Raise ``InputError`` where requests would not wait for as long as a service takes to start, as was measured.

    One that takes turns starts when the others of its group have held the card.
    """
    found: list[Problem] = []
    for rest in of_kind(facts, Rest):
        service = lab.resolved.services.get(rest.address)
        if service is None or not (service.idle_s or service.share):
            continue
        held_s = others_hold_s(lab.resolved, service)
        if service.queue_s >= rest.start_s + held_s:
            continue
        queue = service.option(QUEUE_OPTION)
        taken = f"its start took {rest.start_s:.1f} s"
        if held_s:
            taken += f" after the others of its group, who may hold the card for {held_s:.0f} s"
        message = f"{taken}, and requests wait for it for {queue} at most"
        found.append(Problem(_place(lab, service), message, _hint(service)))
    if found:
        raise lab.loaded.error(found)


def _place(lab: Lab, service: ResolvedService) -> Path:
    """Where the file says how long requests wait, else why they have to."""
    if service.written.get(QUEUE_OPTION) is not None:
        return (*service.path, QUEUE_OPTION)
    if service.share:
        return place_in_share(lab.resolved, service)
    return (*service.path, IDLE_OPTION)


def _hint(service: ResolvedService) -> str:
    if service.share:
        return f"Write a longer {QUEUE_OPTION}, or a shorter {HOLD_OPTION} for the others."
    return f"Write a longer {QUEUE_OPTION}, or leave {IDLE_OPTION} out."
