"""``ResolvedLab``: a file with every default filled in and every name joined with what it means. Built once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from provisioner.catalog import Catalog, ServiceType
from provisioner.catalog.types import Kind
from provisioner.lab.aliases import ENGINE_STAGE, Engine, engines_of_members, find_engines, written_names
from provisioner.labfile.hosts import HostPage
from provisioner.labfile.spec import LOCAL_HOST, Container, Model, ServiceSpec, Spec, Upstream, fixed_address, hosts_of
from provisioner.models.header import Header
from provisioner.services import knowledge_of
from provisioner.services.base import LAN, ModelUse, ResolvedService, models_fetched
from provisioner.values.address import Address
from provisioner.values.declared import REACHES

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card
    from provisioner.models.pulled import Pulled, Wanted

DEFAULT_IMAGE = "debian/12"
STACK = "stack"
"""The kind of a reference to a stack of wheels."""
ANSWERING_STAGES = (ENGINE_STAGE, "team")
"""Services of these stages can be named in an alias."""
ENGINE_PROTOCOL = "openai"
SPEECH_PROTOCOL = "speech"
SPEECH_OPTION: Literal["speech"] = "speech"
"""The option in which a gateway is told of the services that speak."""


@dataclass(frozen=True, slots=True)
class ResolvedContainer:
    """A container of the file; ``host`` and ``page`` are None where the file leaves open which host is meant."""

    name: str
    written: Container
    host: str | None
    page: HostPage | None
    image: str
    default_image: str
    """The image that it would be made of if the file names none and it were made today."""
    memory: int
    """Bytes; 0 where neither the file nor a service says anything."""
    card: Card | None
    services: tuple[ResolvedService, ...]

    @property
    def has_own_address(self) -> bool:
        """Whether it has an address of its own in the LAN, so that its host publishes nothing of it."""
        return self.page is not None and self.page.gives_addresses

    @property
    def is_on_this_machine(self) -> bool:
        """Whether its host is this machine, as far as the file decides it."""
        return self.page is None or self.page.is_here


@dataclass(frozen=True, slots=True)
class Known:
    """What is known beside the file, by containers but for ``headers`` (by models) and ``wheels`` (by services).

    ``pulled``: what registries say of models that services fetch by themselves.

    ``images``: of which those are made that are there, which they keep where the file names none. ``addresses``: where
    they are reached in the LAN. ``wheels``: the options that follow from stacks of wheels. ``texts``: what is in the
    files that services' options name, by services and options.
    """

    headers: Mapping[str, Header] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    cards: Mapping[str, Card] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    wheels: Mapping[Address, Mapping[str, Any]] = field(default_factory=dict)
    texts: Mapping[Address, Mapping[str, str]] = field(default_factory=dict)
    pulled: Mapping[Wanted, Pulled] = field(default_factory=dict)


NOTHING_KNOWN = Known()


@dataclass(frozen=True, slots=True)
class Use:
    """That one service of the file asks another one; ``kind`` is that of the option that says so.

    All that is told or done about who asks whom follows from these: graph, plan, order of work, and drain.
    """

    user: Address
    used: Address
    kind: Kind | Literal["speech"]


@dataclass(frozen=True)
class ResolvedLab:
    """Everything that a file means; nothing of it is derived a second time."""

    spec: Spec
    """What was written. Nothing rewrites it."""
    catalog: Catalog
    known: Known
    hosts: Mapping[str, HostPage]
    containers: Mapping[str, ResolvedContainer]
    services: Mapping[Address, ResolvedService]
    engines: tuple[Engine, ...]
    """The services that answer completions, in the order of the file."""
    uses: tuple[Use, ...]
    """Yield each use of a service by another one, once for a kind of option."""
    used_over_lan: Mapping[Address, tuple[Address, ...]]
    """The services that containers of other hosts use, each with its users there."""

    @property
    def name(self) -> str:
        """The lab's name, which every mark bears."""
        return self.spec.name

    @property
    def models(self) -> Mapping[str, Model]:
        """The models of the file."""
        return self.spec.models

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The engines of the file that are not of this lab."""
        return self.spec.upstreams

    @cached_property
    def speakers(self) -> tuple[ResolvedService, ...]:
        """The services that speak, in the order of the file."""
        return tuple(one for one in self.services.values() if one.page.protocol == SPEECH_PROTOCOL)

    @cached_property
    def wants_cards(self) -> bool:
        """Whether a container of the file wants a card."""
        return any(container.written.gpu is not None for container in self.containers.values())

    @cached_property
    def has_stacks(self) -> bool:
        """Whether a service is installed with a stack of wheels."""
        return any(
            reference.kind == STACK and bool(service.option(option))
            for service in self.services.values()
            for option, reference in service.page.references.items()
        )

    @cached_property
    def used_models(self) -> tuple[str, ...]:
        """The models that services name, whether the file has them or not."""
        return tuple(dict.fromkeys(name for one in self.services.values() for name in one.model_names))

    def needs(self, user: Address) -> tuple[Address, ...]:
        """The services that ``user`` asks, sorted; what it only may reach is not among them."""
        asked = set[Address]()
        for use in self.uses:
            if use.user == user and use.kind != REACHES:
                asked.add(use.used)
        return tuple(sorted(asked))

    def with_known(self, known: Known) -> ResolvedLab:
        """The same lab with what has become known; itself where that is nothing new."""
        return self if self.knows(known) else resolve(self.spec, self.catalog, self._of_use(known))

    def knows(self, known: Known) -> bool:
        """Whether all that is known is in it, and nothing else."""
        return self._of_use(known) == self.known

    def _of_use(self, known: Known) -> Known:
        """The same without images of which containers would be made anyway."""
        images = {name: image for name, image in known.images.items() if _keeps_image(self.containers.get(name), image)}
        return replace(known, images=images)

    def hostname(self, name: str, user: str) -> str:
        """Under which name or address the container ``user`` reaches the container ``name``.

        On one host that serves names of its containers it is a name, which survives a change of address; elsewhere
        an address.
        """
        there, here = self.containers[name], self.containers[user]
        # Where it is not decided the file is refused, once all that is wrong with it is found.
        if there.page is not None and there.page.domain and there.host == here.host:
            return f"{name}.{there.page.domain}"
        return fixed_address(there.written) or self.known.addresses.get(name, name)

    def base_url(self, service: ResolvedService, user: str) -> str:
        """Where the container ``user`` reaches the service."""
        return f"http://{self.hostname(service.container, user)}:{service.port}"


def resolve(spec: Spec, catalog: Catalog, known: Known = NOTHING_KNOWN) -> ResolvedLab:
    """Everything that the file means; it may be wrong in itself, which the rules tell."""
    hosts = hosts_of(spec)
    containers = {name: _container(spec, catalog, known, hosts, name) for name in spec.containers}
    services = {one.address: one for container in containers.values() for one in container.services}
    engines = tuple(
        Engine(one, one.served_models)
        for one in services.values()
        if one.page.stage in ANSWERING_STAGES and one.page.protocol == ENGINE_PROTOCOL
    )
    uses = tuple(_uses(containers, services, engines))
    over_lan = _used_over_lan(containers, uses)
    exposed = {
        address: replace(services[address], needed_by=users)
        for address, users in over_lan.items()
        if services[address].expose != LAN
    }
    if exposed:
        services |= exposed
        containers = {
            name: replace(one, services=tuple(services[service.address] for service in one.services))
            for name, one in containers.items()
        }
        engines = tuple(replace(engine, service=services[engine.address]) for engine in engines)
    return ResolvedLab(spec, catalog, known, hosts, containers, services, engines, uses, over_lan)


def _keeps_image(container: ResolvedContainer | None, image: str) -> bool:
    """Whether a container that is made of ``image`` keeps it, which is not what it would be made of today."""
    return container is not None and container.written.image is None and container.default_image != image


def _container(
    spec: Spec, catalog: Catalog, known: Known, hosts: Mapping[str, HostPage], name: str
) -> ResolvedContainer:
    written = spec.containers[name]
    host = _host(written, hosts)
    pages = [catalog.services[role] for role in written.services]
    default_image = pages[0].defaults.image if pages else DEFAULT_IMAGE
    image = written.image or known.images.get(name, default_image)
    memory = written.memory or sum(page.defaults.memory or 0 for page in pages)
    container = ResolvedContainer(
        name,
        written,
        host,
        hosts[host] if host else None,
        image,
        default_image,
        memory,
        known.cards.get(name),
        (),
    )
    services = tuple(
        _service(spec, known, container, service, catalog.services[role]) for role, service in written.services.items()
    )
    return replace(container, services=services)


def _host(container: Container, hosts: Mapping[str, HostPage]) -> str | None:
    """The host that the container names, or the only one there is; None when that is not decided."""
    if container.host is not None:
        return container.host if container.host in hosts else None
    return next(iter(hosts)) if len(hosts) == 1 else None


def _service(
    spec: Spec, known: Known, container: ResolvedContainer, service: ServiceSpec, page: ServiceType
) -> ResolvedService:
    address = Address.of(container.name, page.role)
    uses = tuple(_model_uses(service, page))
    return ResolvedService(
        address=address,
        page=page,
        written=service.options,
        derived=_derived(known, container, service, page, address),
        expose=service.expose,
        image=container.image,
        memory=container.memory,
        has_written_memory=container.written.memory is not None,
        wants_card=container.written.gpu is not None,
        card=container.card,
        uses=uses,
        models={use.name: spec.models[use.name] for use in uses if use.name in spec.models},
        headers={use.name: known.headers[use.name] for use in uses if use.name in known.headers},
        texts=known.texts.get(address, {}),
        pulled=_pulled(known, service, page),
        share=_group(container.page, address),
        is_copy=container.written.copy_of is not None,
    )


def _pulled(known: Known, service: ServiceSpec, page: ServiceType) -> dict[str, Pulled]:
    """What is known of the models that the service fetches by itself, by their names in the file."""
    found: dict[str, Pulled] = {}
    for name, wanted in models_fetched(page, service.options):
        if wanted in known.pulled:
            found[name] = known.pulled[wanted]
    return found


def _group(page: HostPage | None, service: Address) -> tuple[Address, ...]:
    """The services that take turns with this one, as its host says; empty where it takes none."""
    if page is None:
        return ()
    for group in page.share:
        if service in group:
            return tuple(Address(member) for member in group)
    return ()


def _derived(
    known: Known, container: ResolvedContainer, service: ServiceSpec, page: ServiceType, address: Address
) -> dict[str, Any]:
    """The options that follow from image, wheels and card; what follows from wheels overrules what the card says."""
    knowledge = knowledge_of(page.role)
    wheels = known.wheels.get(address, {})
    derived = {**knowledge.options_of_image(container.image), **wheels}
    if container.card is None:
        return derived
    return {**knowledge.options_of_card({**wheels, **service.options}, container.card), **derived}


def _model_uses(service: ServiceSpec, page: ServiceType) -> Iterator[ModelUse]:
    for option, reference in page.references.items():
        written = service.options.get(option)
        if reference.kind == "model" and isinstance(written, str):
            yield ModelUse(option, None, written)
        if reference.kind == "models":
            yield from (ModelUse(option, place, name) for place, name in enumerate(written or ()))


def _uses(
    containers: Mapping[str, ResolvedContainer],
    services: Mapping[Address, ResolvedService],
    engines: tuple[Engine, ...],
) -> Iterator[Use]:
    """Every use, each once; names that mean nothing in this file are left to the rules."""
    uses: dict[Use, None] = {}
    for user in services.values():
        for option, reference in user.page.references.items():
            for used in _named_by(user, option, reference.kind, engines):
                if used in services:
                    uses[Use(user.address, used, reference.kind)] = None
        if SPEECH_OPTION in user.page.options:
            for speaker in services.values():
                if speaks_for(containers, user, speaker):
                    uses[Use(user.address, speaker.address, SPEECH_OPTION)] = None
    return iter(uses)


def _named_by(user: ResolvedService, option: str, kind: Kind, engines: tuple[Engine, ...]) -> Iterable[Address]:
    """The services that an option names, by their addresses, models or hosts, whether the file has them or not."""
    written = user.written.get(option)
    match kind:
        case "aliases" if isinstance(written, Mapping):
            return _engines_of_aliases(written, engines)
        case "service" if isinstance(written, str):
            return (Address(written),)
        case "services" | "reaches" if written:
            return map(Address, written)
        case "sites":
            return map(Address, user.sites.values())
        case "members":
            return (engine.address for engine in engines_of_members(user, engines))
    return ()


def _engines_of_aliases(aliases: Mapping[str, Any], engines: tuple[Engine, ...]) -> Iterator[Address]:
    for alias in aliases:
        for _, name in written_names(aliases, alias):
            yield from (engine.address for engine in find_engines(engines, name))


def speaks_for(containers: Mapping[str, ResolvedContainer], gateway: ResolvedService, service: ResolvedService) -> bool:
    """Whether a gateway offers what the service speaks: both are on one host, and it is no copy."""
    is_offered = service.page.protocol == SPEECH_PROTOCOL and not service.is_copy
    return is_offered and containers[service.container].host == containers[gateway.container].host


def _used_over_lan(
    containers: Mapping[str, ResolvedContainer], uses: Iterable[Use]
) -> dict[Address, tuple[Address, ...]]:
    found: dict[Address, list[Address]] = {}
    for use in uses:
        here, there = containers[use.user.container].host, containers[use.used.container].host
        if here and there and here != there and use.user not in found.setdefault(use.used, []):
            found[use.used].append(use.user)
    return {used: tuple(users) for used, users in sorted(found.items())}


def host_name(container: ResolvedContainer) -> str:
    """The container's host; where the file leaves it open, this machine."""
    return container.host or LOCAL_HOST
