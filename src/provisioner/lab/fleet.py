"""``desired_fleet``: the containers, artifacts and services that a lab asks for, all defaults filled in. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from provisioner.catalog import BASE, STAGES, Catalog, ServiceType, Upkeep
from provisioner.lab.artifacts import MODEL_ROLE, ModelFile, built, given_options, stored, with_builder
from provisioner.lab.filling import Place, filled_in
from provisioner.lab.resolved import SPEECH_OPTION, ResolvedContainer, ResolvedLab, host_name
from provisioner.lab.served import speakers_for
from provisioner.labfile.hosts import behind_firewall
from provisioner.labfile.spec import Gpu
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService
from provisioner.values.address import Address
from provisioner.values.declared import REACHES, Managed, Secret
from provisioner.values.state import STOP_S, Artifact, Device, Fleet, HostState, Instance, Service

# The names of what a role manages in one container: its page's templates, filled in.

_VARIABLE = re.compile(r"\{\{ (\w+) \}\}")


def managed_by(upkeep: Upkeep, variables: Mapping[str, Any]) -> Managed:
    """The names of what the role manages when it gets ``variables``, each once; none is made of a secret.

    A template may give several, one a line.

    Raises ``jinja2.UndefinedError`` or ``KeyError`` for a name made of what is no variable of the role, or a secret.
    """
    public = _public_of(variables)
    kinds = {}
    for field in fields(Managed):
        filled = (name for thing in upkeep.managed.get(field.name, ()) for name in _names(thing, public))
        lines = (line for names in filled for line in names.splitlines())
        kinds[field.name] = tuple(dict.fromkeys(line for line in lines if line))
    return Managed(**kinds)


def names_with(things: Iterable[str | Mapping[str, Any]], variables: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of such things as a page lists them, under the conditions that stand there."""
    public = _public_of(variables)
    found = list[str]()
    for thing in things:
        found += _names(thing, public)
    return tuple(found)


def _public_of(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are no secrets, without what is secret in them."""
    return {name: _public(value) for name, value in variables.items() if not isinstance(value, Secret)}


def _public(value: Any) -> Any:
    """The value without what is secret in it."""
    if isinstance(value, Mapping):
        return {key: _public(inner) for key, inner in value.items() if not isinstance(inner, Secret)}
    if isinstance(value, list | tuple):
        return [_public(inner) for inner in value if not isinstance(inner, Secret)]
    return value


def _names(thing: str | Mapping[str, Any], public: Mapping[str, Any]) -> list[str]:
    if isinstance(thing, str):
        return [_filled(thing, public)]
    if any(public[name] != value for name, value in thing.get("when", {}).items()):
        return []
    absent_with = thing.get("unless", {})
    if absent_with and all(public[name] == value for name, value in absent_with.items()):
        return []
    items: list[Mapping[str, Any]] = public[thing["each"]] if "each" in thing else [{}]
    return [_filled(thing["name"], {**public, **one}) for one in items]


def _filled(text: str, public: Mapping[str, Any]) -> str:
    # jinja2 is the dearest import of a run that has nothing to do, and most templates only name a variable.
    plain = _VARIABLE.sub(lambda found: str(public.get(found[1], found[0])), text)
    if "{" not in plain:
        return plain

    from jinja2 import StrictUndefined, Template

    rendered: str = Template(text, undefined=StrictUndefined).render(public)
    return rendered


# The fleet itself.

TOLD_ADDRESS = "127.0.0.2"
"""The address at which switches (``__switch_told``) and doors (``__door_told``) hear whose connection it is."""
ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # inside a container, whose bridge only its host and neighbours reach


@dataclass(frozen=True, slots=True)
class _Context:
    """The lab, the files of its models, and its hosts as they were observed."""

    lab: ResolvedLab
    files: Mapping[str, ModelFile]
    hosts: Mapping[str, HostState]

    def host(self, container: ResolvedContainer) -> HostState:
        """The container's host; one of which nothing is known where it was not observed."""
        name = host_name(container)
        return self.hosts.get(name, HostState(name))

    def on_host(self, container: ResolvedContainer) -> ResolvedContainer:
        """The container with the options of its services that follow from its host's processor."""
        flags = self.host(container).processor_flags
        services = tuple(self._for_processor(service, flags) for service in container.services)
        return replace(container, services=services)

    def _for_processor(self, service: ResolvedService, flags: frozenset[str]) -> ResolvedService:
        if service.page.artifact is None:
            return service
        options = knowledge_of(service.role).options_of_processor(service, flags, self._processors(service.role))
        return replace(service, derived={**service.derived, **options}) if options else service

    def _processors(self, role: str) -> list[frozenset[str]]:
        """Return the processor flags of each host that has a service of that role."""
        found = list[frozenset[str]]()
        for container in self.lab.containers.values():
            if any(service.role == role for service in container.services):
                found.append(self.host(container).processor_flags)
        return found


def desired_fleet(
    lab: ResolvedLab, files: Mapping[str, ModelFile], hosts: Mapping[str, HostState] | None = None
) -> Fleet:
    """The lab as the file wants it. The file must be free of ``problems``.

    ``files`` holds a file for every model that a service uses; ``hosts`` are those that were observed, because an
    artifact that was built for the processor of one may not run on another.
    """
    context = _Context(lab, files, hosts or {})
    instances: list[Instance] = []
    artifacts: dict[tuple[str, str], Artifact] = {}
    for resolved in sorted(lab.containers.values(), key=lambda container: (container.host or "", container.name)):
        container = context.on_host(resolved)
        made = _artifacts(context, container)
        for artifact in made:
            key = (artifact.host, artifact.volume)
            artifacts[key] = with_builder(artifact, container, artifacts.get(key))
        instances.append(_instance(context, container, made))
    return Fleet(lab.name, tuple(instances), tuple(artifacts[key] for key in sorted(artifacts)))


def images_by_host(lab: ResolvedLab) -> dict[str, frozenset[str]]:
    """The images that the file's containers are made of, by the hosts that these are on; no model's file is read."""
    found: dict[str, frozenset[str]] = {}
    for container in lab.containers.values():
        host = host_name(container)
        found[host] = found.get(host, frozenset()) | {container.image}
    return found


def _instance(context: _Context, container: ResolvedContainer, artifacts: Iterable[Artifact]) -> Instance:
    written = container.written
    pages = [service.page.defaults for service in container.services]
    services = _services(context, container, artifacts)
    reaches = _reaches(context, container, services)
    return Instance(
        name=container.name,
        host=host_name(container),
        lab=context.lab.name,
        image=container.image,
        cpu=written.cpu or max((page.cpu for page in pages if page.cpu), default=None),
        memory=container.memory or None,
        disk=written.disk or max((page.disk for page in pages if page.disk), default=None),
        nesting=any(page.nesting for page in pages),
        devices=tuple(sorted(_devices(container, artifacts), key=lambda device: device.name)),
        services=services,
        reaches=reaches,
        base=_base(context.lab.catalog, container.name),
        settings=_settings(container, is_held=reaches is not None),
        adopt=written.adopt,
        stop_s=stop_s(container),
    )


def _reaches(context: _Context, container: ResolvedContainer, services: Sequence[Service]) -> tuple[str, ...] | None:
    """What the container's host lets it reach; None where that is not held to anything."""
    if not context.host(container).confines or all(f"{one.role}_{REACHES}" not in one.variables for one in services):
        return None
    from provisioner.lab.egress import places  # nothing that a lab without others' code needs

    return places(context.lab, container, services)


def stop_s(container: ResolvedContainer) -> float:
    """How long the container has to stop: its services may each finish the answers that they give, all at once."""
    drains = [service.drain_s for service in container.services]
    return STOP_S + max(drains, default=0.0)


def _settings(container: ResolvedContainer, *, is_held: bool) -> Mapping[str, Any]:
    """What only its kind of host knows."""
    from provisioner.lab.cards import with_device_files

    page = container.page
    if page is None:
        return {}
    settings = page.settings_of(container.written.block)
    if is_held:
        settings = behind_firewall(settings)
    return settings if page.attaches_cards else with_device_files(settings, container.card)


def _devices(container: ResolvedContainer, artifacts: Iterable[Artifact]) -> Iterator[Device]:
    from provisioner.lab.cards import devices

    for artifact in artifacts:
        properties = {"volume": artifact.volume, "path": artifact.mounted_at, "readonly": "true"}
        yield Device(artifact.device_name, "volume", properties)
    if not container.has_own_address:
        yield from _published(container)
    if container.card is not None and (container.page is None or container.page.attaches_cards):
        yield from devices(container, container.card)


def _published(container: ResolvedContainer) -> Iterator[Device]:
    for service in container.services:
        if not service.is_on_lan:
            continue
        name = f"publish-{service.role.replace('_', '-')}"
        for port in service.offered_ports:
            ends = {"listen": f"{ANY_ADDRESS}:{port.number}", "connect": f"127.0.0.1:{port.number}"}
            if port.protocol == "tcp" and (service.sites or (service.page.behind and port.number == service.port)):
                # A switch or a door hears there whose connection it is.
                ends |= {"connect": f"{TOLD_ADDRESS}:{port.number}", "proxy_protocol": "true"}
            if port.protocol != "tcp":
                yield Device(f"{name}-{port.number}-{port.protocol}", "publish", {**ends, "protocol": port.protocol})
            else:
                yield Device(name if port.number == service.port else f"{name}-{port.number}", "publish", ends)


def _artifacts(context: _Context, container: ResolvedContainer) -> list[Artifact]:
    made = []
    host, image = host_name(container), container.image
    architecture = context.host(container).architecture
    for service in container.services:
        if service.page.artifact is not None:
            made.append(built(service, service.page.artifact, host=host, image=image, architecture=architecture))
        made += [stored(model, context.files[model], host, image) for model in service.model_names]
    return made


def _services(context: _Context, container: ResolvedContainer, artifacts: Iterable[Artifact]) -> tuple[Service, ...]:
    builds = {artifact.role: artifact for artifact in artifacts if artifact.role != MODEL_ROLE}
    services = [_service(context, service, builds.get(service.role)) for service in container.services]
    services += _implied(context.lab.catalog, container)
    return tuple(sorted(services, key=lambda service: (STAGES.index(service.stage), service.role)))


def _implied(catalog: Catalog, container: ResolvedContainer) -> Iterator[Service]:
    """What comes with the container's card."""
    from provisioner.lab.cards import USERSPACE, userspace

    if container.card is None or container.page is None:
        return
    options = userspace(container.written.gpu or Gpu(), container.card, is_lent=container.page.attaches_cards)
    if options is not None:
        uses_vulkan = any(knowledge_of(service.role).needs_vulkan(service) for service in container.services)
        page = catalog.services[USERSPACE]
        defaults = {name: option.default for name, option in page.options.items() if option.default is not None}
        told = {**defaults, **options, "vulkan": uses_vulkan}
        yield _made_of(page, container.name, told, port=page.port)


def _service(context: _Context, service: ResolvedService, build: Artifact | None) -> Service:
    """The service with all of its options; ``build``: what its role builds, where that is anything."""
    page = service.page
    options = {name: option.default for name, option in page.options.items() if option.default is not None}
    options |= service.said
    if page.artifact is not None and build is not None:
        options |= given_options(build, page.artifact.gives)
    if "listen" in page.options:
        options["listen"] = ANY_ADDRESS
    for option in page.references:
        if option in service.written:
            options |= filled_in(Place(context.lab, service, context.files), option)
    if SPEECH_OPTION in page.options:
        options[SPEECH_OPTION] = [speaker.entry() for speaker in speakers_for(context.lab, service)]
    if service.share:
        from provisioner.lab.cards import turn_options  # nothing that a lab needs whose services take no turns

        options |= turn_options(context.lab, service)
    made = _made_of(page, service.container, options, port=service.port, needs=context.lab.needs(service.address))
    sizes = {name: _bytes(context.files[name]) for name in service.model_names if name in context.files}
    knowledge = knowledge_of(service.role)
    return replace(made, beside=knowledge.changes_beside(service, sizes), estimates=knowledge.estimates(service, sizes))


def _bytes(file: ModelFile) -> int | None:
    """Of all of a model's files; None where nobody tells that of one of them."""
    known = [file.size, *(part.size for part in file.rest)]
    return None if None in known else sum(size for size in known if size is not None)


def _made_of(
    page: ServiceType,
    container: str,
    options: Mapping[str, Any],
    *,
    port: int | None,
    needs: tuple[Address, ...] = (),
) -> Service:
    """The service of that page with its role's variables."""
    variables = {f"{page.role}_{option}": value for option, value in sorted(options.items())}
    return Service(
        role=page.role,
        container=container,
        stage=page.stage,
        variables=variables,
        port=port,
        unit=page.unit,
        health=page.health_with(options),
        needs=needs,
        digest=page.upkeep.digest,
        managed=managed_by(page.upkeep, variables),
        unstampable=page.unstampable_reason,
        pictures=page.pictures,
        behind=page.behind_with(options),
        closed_by=page.closed_by,
        given=tuple(page.artifact.gives) if page.artifact is not None else (),
        after_change=page.after_change,
    )


def _base(catalog: Catalog, container: str) -> Service | None:
    upkeep = catalog.base
    if upkeep is None:
        return None
    return Service(BASE, container, BASE, {}, digest=upkeep.digest, managed=managed_by(upkeep, {}))
