"""Who uses whom over the LAN: services that another host's containers need, and where those are reached. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.catalog import Catalog
from provisioner.lab.aliases import written_names
from provisioner.lab.engines import engines_of, find_engines, services_of
from provisioner.lab.hosts import has_fixed_address, host_of, hosts_of
from provisioner.lab.speech import speakers
from provisioner.spec import IncusHost, ServiceSpec, Spec

LAN = "lan"


def uses(spec: Spec, catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Every (user, used) among the file's services, by their addresses; a pair may come twice."""
    engines = engines_of(spec, catalog)
    for container, service, page in services_of(spec, catalog):
        user = f"{container}/{service.role}"
        for option, reference in page.references.items():
            written = service.options.get(option)
            if reference.kind == "service" and isinstance(written, str):
                yield user, written
            if reference.kind == "aliases" and isinstance(written, Mapping):
                names = [name for alias in written for _, name in written_names(written, alias)]
                yield from ((user, engine.address) for name in names for engine in find_engines(engines, name))
        if "speech" in page.options:
            yield from ((user, speaker) for speaker in speakers(spec, catalog, container))


def used_over_lan(spec: Spec, catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """The services that containers of other hosts use, each with its users there."""
    hosts = {name: host_of(spec, container) for name, container in spec.containers.items()}
    if len(set(hosts.values())) <= 1:  # nobody is elsewhere: pairs of services are many, and need not be looked at
        return {}
    found: dict[str, dict[str, None]] = {}
    for user, used in uses(spec, catalog):
        here, there = (hosts.get(address.partition("/")[0]) for address in (user, used))
        if here and there and here != there:
            found.setdefault(used, {})[user] = None
    return {used: tuple(users) for used, users in sorted(found.items())}


def implied_users(spec: Spec, catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Of the same those that the file itself does not expose to the LAN."""
    return {used: users for used, users in used_over_lan(spec, catalog).items() if _service(spec, used).expose != LAN}


def with_lan(spec: Spec, catalog: Catalog) -> Spec:
    """The same with ``expose: lan`` at each service that another host's containers use."""
    containers = dict(spec.containers)
    for address in used_over_lan(spec, catalog):
        name, _, role = address.partition("/")
        service = _service(spec, address).model_copy(update={"expose": LAN})
        services = {**containers[name].services, role: service}
        containers[name] = containers[name].model_copy(update={"services": services})
    return spec.model_copy(update={"containers": containers})


def users_of_addresses(spec: Spec, catalog: Catalog) -> dict[str, frozenset[str]]:
    """By the containers whose address only their host can tell: the services that must know it.

    Of Proxmox, each that asks for its address and that somebody uses; of Incus, each that another host's use, for they
    reach it at its host's own address.
    """
    found: dict[str, set[str]] = {}
    for user, used in uses(spec, catalog):
        name = used.partition("/")[0]
        here, there = (_host(spec, address) for address in (user, used))
        if here is None or there is None or name == user.partition("/")[0]:
            continue
        is_incus = isinstance(hosts_of(spec)[there], IncusHost)
        if here != there if is_incus else not has_fixed_address(spec, name):
            found.setdefault(name, set()).add(user)
    return {name: frozenset(users) for name, users in sorted(found.items())}


def _service(spec: Spec, address: str) -> ServiceSpec:
    name, _, role = address.partition("/")
    return spec.containers[name].services[role]


def _host(spec: Spec, address: str) -> str | None:
    container = spec.containers.get(address.partition("/")[0])
    return host_of(spec, container) if container else None
