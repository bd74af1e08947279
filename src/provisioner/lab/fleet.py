"""``desired_fleet``: the containers, artifacts and services that a file asks for, all defaults filled in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from provisioner.catalog import BASE, STAGES, Catalog, ServiceType
from provisioner.gpus.cards import Card
from provisioner.lab import desktops
from provisioner.lab.artifacts import ModelFile, built, stored
from provisioner.lab.cards import USERSPACE, devices, lends, userspace, with_device_files
from provisioner.lab.engine_builds import VULKAN
from provisioner.lab.engine_cards import with_cards
from provisioner.lab.engines import models_of, port_of
from provisioner.lab.filling import Context, Place, filled_in
from provisioner.lab.hosts import LOCAL_HOST, host_of, hosts_of, image_of
from provisioner.lab.lan import with_lan
from provisioner.lab.proxmox import settings_of
from provisioner.lab.speech import speakers
from provisioner.lab.upkeep import managed_by
from provisioner.spec import Container, Gpu, ProxmoxHost, ServiceSpec, Spec
from provisioner.state import Artifact, Device, Fleet, Instance, Service

ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # inside a container, whose bridge only its host and neighbours reach
DEFAULT_ARCHITECTURE = "x86_64"


def desired_fleet(
    spec: Spec,
    catalog: Catalog,
    models: Mapping[str, ModelFile],
    architectures: Mapping[str, str] | None = None,
    cards: Mapping[str, Card] | None = None,
    *,
    addresses: Mapping[str, str] | None = None,
) -> Fleet:
    """The lab as the file wants it. The file must be free of ``problems``.

    ``models`` holds a file for every model that a service uses; ``architectures`` maps hosts to theirs (x86_64 unless
    told), because an artifact that was built on one does not run on another. ``cards`` are the
    cards that containers get, by their names; engines compute with them. ``addresses`` are those of containers that
    others reach in the LAN; where one is not known its container's name stands for it.
    """
    spec = with_lan(with_cards(spec, cards or {}), catalog)
    context = Context(spec, catalog, models, architectures or {}, cards or {}, addresses or {})
    instances: list[Instance] = []
    artifacts: dict[tuple[str, str], Artifact] = {}
    for name in sorted(spec.containers, key=lambda name: (host_of(spec, spec.containers[name]) or "", name)):
        made = _artifacts(context, name)
        artifacts |= {(one.host, one.volume): one for one in made}
        instances.append(_instance(context, name, made))
    return Fleet(spec.name, tuple(instances), tuple(artifacts[key] for key in sorted(artifacts)))


def images_by_host(spec: Spec, catalog: Catalog) -> dict[str, frozenset[str]]:
    """The images that the file's containers are made of, by the hosts that these are on; no model's file is read."""
    context = Context(spec, catalog, {}, {}, {}, {})
    found: dict[str, frozenset[str]] = {}
    for name, container in spec.containers.items():
        host = _host(context, name)
        found[host] = found.get(host, frozenset()) | {image_of(container, context.catalog)}
    return found


def _host(context: Context, name: str) -> str:
    return host_of(context.spec, context.spec.containers[name]) or LOCAL_HOST


def _instance(context: Context, name: str, artifacts: Iterable[Artifact]) -> Instance:
    container = context.spec.containers[name]
    pages = [context.catalog.services[role].defaults for role in container.services]
    host = hosts_of(context.spec)[_host(context, name)]
    is_proxmox = isinstance(host, ProxmoxHost)
    # On Proxmox a container has an address of its own in the LAN: there is nothing to publish.
    published = () if is_proxmox else _published(context, container)
    card = context.cards.get(name)
    attached = () if is_proxmox or card is None else devices(container, card)
    everything = [*(_mount(one) for one in artifacts), *published, *attached]
    return Instance(
        name=name,
        host=_host(context, name),
        lab=context.spec.name,
        image=image_of(container, context.catalog),
        cpu=container.cpu or max((page.cpu for page in pages if page.cpu), default=None),
        memory=container.memory or sum(page.memory or 0 for page in pages) or None,
        disk=container.disk or max((page.disk for page in pages if page.disk), default=None),
        nesting=any(page.nesting for page in pages),
        devices=tuple(sorted(everything, key=lambda device: device.name)),
        services=_services(context, name),
        base=_base(context, name),
        settings=with_device_files(settings_of(host, container.proxmox), card) if isinstance(host, ProxmoxHost) else {},
        adopt=container.adopt,
    )


def _mount(artifact: Artifact) -> Device:
    properties = {"volume": artifact.volume, "path": artifact.path, "readonly": "true"}
    return Device(artifact.name.replace("_", "-"), "volume", properties)


def _published(context: Context, container: Container) -> Iterable[Device]:
    for service in container.services.values():
        port = port_of(service, context.catalog.services[service.role])
        if service.expose == "lan" and port is not None:
            ends = {"listen": f"{ANY_ADDRESS}:{port}", "connect": f"127.0.0.1:{port}"}
            yield Device(f"publish-{service.role.replace('_', '-')}", "publish", ends)


def _artifacts(context: Context, name: str) -> list[Artifact]:
    made = []
    host, image = _host(context, name), image_of(context.spec.containers[name], context.catalog)
    architecture = context.architectures.get(host, DEFAULT_ARCHITECTURE)
    for service in context.spec.containers[name].services.values():
        page = context.catalog.services[service.role]
        if page.artifact is not None:
            made.append(built(service, page, page.artifact, host=host, image=image, architecture=architecture))
        made += [stored(model, context.models[model], host, image) for model in models_of(service, page)]
    return made


def _services(context: Context, name: str) -> tuple[Service, ...]:
    written = context.spec.containers[name].services.values()
    services = [
        _service(context, name, service, context.catalog.services[service.role])
        for service in (*written, *_implied(context, name))
    ]
    return tuple(sorted(services, key=lambda one: (STAGES.index(one.stage), one.role)))


def _implied(context: Context, name: str) -> Iterator[ServiceSpec]:
    """What comes with the container's card."""
    container, card = context.spec.containers[name], context.cards.get(name)
    if card is None:
        return
    is_lent = lends(hosts_of(context.spec)[_host(context, name)])
    options = userspace(container.gpu or Gpu(), card, is_lent=is_lent)
    if options is not None:
        uses_vulkan = any(one.options.get("backend") == VULKAN for one in container.services.values())
        yield ServiceSpec(role=USERSPACE, options={**options, "vulkan": uses_vulkan})


def _service(context: Context, name: str, service: ServiceSpec, page: ServiceType) -> Service:
    options = {option: one.default for option, one in page.options.items() if one.default is not None}
    options |= service.options
    if "listen" in page.options:
        options["listen"] = ANY_ADDRESS
    options |= desktops.told(page, image_of(context.spec.containers[name], context.catalog))
    needs: set[str] = set()
    for option in page.references:
        if option in service.options:
            filled, found = filled_in(Place(context, name, service, page), option)
            options |= filled
            needs |= found
    if "speech" in page.options:
        speak = speakers(context.spec, context.catalog, name, context.addresses)
        options["speech"] = list(speak.values())
        needs |= set(speak)
    variables = {f"{page.role}_{option}": value for option, value in sorted(options.items())}
    return Service(
        role=page.role,
        container=name,
        stage=page.stage,
        variables=variables,
        port=port_of(service, page),
        unit=page.unit,
        health=page.health,
        needs=tuple(sorted(needs)),
        digest=page.upkeep.digest,
        managed=managed_by(page.upkeep, variables),
        unstampable=page.unstampable_reason,
        pictures=page.pictures,
    )


def _base(context: Context, name: str) -> Service | None:
    upkeep = context.catalog.base
    if upkeep is None:
        return None
    return Service(BASE, name, BASE, {}, digest=upkeep.digest, managed=managed_by(upkeep, {}))
