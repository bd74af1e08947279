"""``problems``: what is wrong with a file whose every part is well formed. One small rule a function; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from provisioner.catalog import Catalog, beyond_limit
from provisioner.lab.desktops import desktop_problems
from provisioner.lab.engine_builds import engine_builds
from provisioner.lab.engines import model_options, port_of, services_of
from provisioner.lab.gateways import alias_names, words_of_gateways
from provisioner.lab.hosts import host_of, hosts_of, is_elsewhere
from provisioner.lab.lan import LAN, used_over_lan, with_lan
from provisioner.lab.model_sources import model_formats, model_sources
from provisioner.lab.proxmox import direct_ways
from provisioner.lab.speech_options import speech_options
from provisioner.spec import ProxmoxHost, Spec
from provisioner.spec.suggestion import did_you_mean
from provisioner.state import Problem

RESERVED_PREFIX = "provision-"
MOST_OF_A_RULE = 100
"""Problems that one rule reports at once: more are one mistake made many times, and nobody reads them."""

Path = tuple[str | int, ...]
Rule = Callable[[Spec, Catalog], Iterator[Problem]]


def problems(spec: Spec, catalog: Catalog) -> list[Problem]:
    """What the parts of the file say against each other, in the order of the rules; of each rule the first of many."""
    return [problem for rule in RULES for problem in islice(rule(spec, catalog), MOST_OF_A_RULE)]


def container_names(spec: Spec, _catalog: Catalog) -> Iterator[Problem]:
    """A container must not bear a name that provision uses for its own throwaway containers."""
    for name in spec.containers:
        if name.startswith(RESERVED_PREFIX):
            yield Problem(("containers", name), f'names that begin with "{RESERVED_PREFIX}" are provision\'s own')


def container_hosts(spec: Spec, _catalog: Catalog) -> Iterator[Problem]:
    """Every container has exactly one host of the file."""
    hosts = hosts_of(spec)
    for name, container in spec.containers.items():
        if container.host is not None and container.host not in hosts:
            path = ("containers", name, "host")
            yield Problem(path, f'no host "{container.host}" in this file', _suggest(container.host, hosts))
        elif host_of(spec, container) is None:
            yield Problem(("containers", name), "needs a host: the file has several", f"host: {' | '.join(hosts)}")


def host_words(spec: Spec, _catalog: Catalog) -> Iterator[Problem]:
    """What only Proxmox knows is said of containers that live there."""
    for name, container in spec.containers.items():
        host = host_of(spec, container)
        if container.proxmox is not None and host and not isinstance(hosts_of(spec)[host], ProxmoxHost):
            hint = "Leave it out, or give the container a host of Proxmox."
            yield Problem(("containers", name, "proxmox"), f"host {host} is no Proxmox", hint)


def direct_addresses(spec: Spec, _catalog: Catalog) -> Iterator[Problem]:
    """A container whose own sshd is used has an address."""
    ways = {one: way for name in hosts_of(spec) for one, way in direct_ways(spec, name).items()}
    for name, way in ways.items():
        options = spec.containers[name].proxmox
        if options is not None and options.network.ip == "none" and options.network.ip6 is None:
            path = ("containers", name, "proxmox", "network")
            yield Problem(path, f"transport: {way} needs an address", "Give it one, or write transport: pct.")


def cards_elsewhere(spec: Spec, _catalog: Catalog) -> Iterator[Problem]:
    """A card is given to containers of this machine's Incus and of Proxmox: those of others cannot be looked at."""
    for name, container in spec.containers.items():
        host = host_of(spec, container)
        if container.gpu is not None and host and is_elsewhere(hosts_of(spec)[host]):
            hint = "Run provision on that machine, with { incus: local }, or leave gpu out."
            message = f"host {host} is an Incus elsewhere, whose cards this version cannot look at"
            yield Problem(("containers", name, "gpu"), message, hint)


def host_numbers(spec: Spec, _catalog: Catalog) -> Iterator[Problem]:
    """No two containers ask for one number, nor for one address."""
    taken: dict[tuple[str | None, str, str], str] = {}
    for name, container in spec.containers.items():
        options = container.proxmox
        address = options.network.ip.partition("/")[0] if options and options.network.ip[0].isdigit() else None
        for word, value in (("vmid", options.vmid if options else None), ("network", address)):
            place = (host_of(spec, container) if word == "vmid" else None, word, str(value))
            if value is not None and place in taken:
                path = ("containers", name, "proxmox", word)
                yield Problem(path, f"{value} is container {taken[place]}'s", "Give one of them another.")
            taken.setdefault(place, name)


def model_references(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """A model that a service names is in the file, in a format that the engine reads."""
    for container, service, page in services_of(spec, catalog):
        for option, place, name in model_options(service, page):
            path = _service_path(container, service.role, option, *(() if place is None else (place,)))
            formats = page.references[option].formats
            if name not in spec.models:
                yield Problem(path, f'no model "{name}" in this file', _suggest(name, spec.models))
            elif formats and spec.models[name].format not in (None, *formats):
                read = ", ".join(formats)
                yield Problem(path, f'{page.title} reads {read}, and model "{name}" is {spec.models[name].format}')


def either_option(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """Of an option and the one that stands in its place exactly one is written, and no list names a thing twice."""
    for container, service, page in services_of(spec, catalog):
        for option, reference in page.references.items():
            other, path = reference.instead_of, _service_path(container, service.role)
            written = [one for one in (other, option) if one and service.options.get(one) is not None]
            if other and not written:
                hint = f"Add {other}: NAME, or {option}: [NAME, NAME], of: {', '.join(spec.models)}"
                yield Problem(path, f"needs {other} or {option}", hint)
            elif other and len(written) > 1:
                yield Problem((*path, option), f"{other} and {option} are both written", "Leave one of them out.")
        seen: set[str] = set()
        for option, place, name in model_options(service, page):
            if place is not None and name in seen:
                path = _service_path(container, service.role, option, place)
                yield Problem(path, f'"{name}" is named twice', "Leave one of them out.")
            if place is not None:
                seen.add(name)


def service_references(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """A service that another one names is in the file."""
    addresses = {f"{container}/{service.role}" for container, service, _ in services_of(spec, catalog)}
    for container, service, page in services_of(spec, catalog):
        for option, reference in page.references.items():
            name = service.options.get(option)
            if reference.kind == "service" and isinstance(name, str) and name not in addresses:
                path = _service_path(container, service.role, option)
                yield Problem(path, f'no service "{name}" in this file', _suggest(name, addresses))


def option_limits(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """Every number is in the range, and every text has the form, that the page of the service's role asks for."""
    for container, service, page in services_of(spec, catalog):
        for name, value in service.options.items():
            for place, message, hint in beyond_limit(page.options[name], value):
                path = _service_path(container, service.role, name, *(() if place is None else (place,)))
                yield Problem(path, message, hint)


def ports(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """Two services of one container, or two that one host shows to the LAN, never share a port."""
    spec = with_lan(spec, catalog)
    taken: dict[tuple[str, int | None], str] = {}
    for container, service, page in services_of(spec, catalog):
        port, address = port_of(service, page), f"{container}/{service.role}"
        places = [(f"container {container}", port)]
        host = host_of(spec, spec.containers[container])
        if service.expose == LAN and host and not isinstance(hosts_of(spec)[host], ProxmoxHost):
            places.append((f"the LAN side of host {host}", port))
        for place in places if port is not None else []:
            if place in taken:
                path = _service_path(container, service.role)
                message = f"port {port} of {place[0]} is taken by {taken[place]}"
                yield Problem(path, message, "Give one of them another port: port: NUMBER")
            taken.setdefault(place, address)


def lan_needs_key(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """Nothing is shown to the LAN without its key, where the program can ask for one."""
    implied = used_over_lan(spec, catalog)
    for container, service, page in services_of(spec, catalog):
        if not page.key_option or service.options.get(page.key_option) is not None:
            continue
        path, hint = _service_path(container, service.role), f"Add {page.key_option}: !secret NAME"
        users = implied.get(f"{container}/{service.role}")
        if service.expose == LAN:
            yield Problem((*path, "expose"), f"expose: lan needs {page.key_option}", hint)
        elif users:
            yield Problem(path, f"{users[0]} is on another host and reaches it over the LAN: it needs a key", hint)


def key_forms(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """A key whose value is known is as its role wants it, and no two of a service are equal."""
    for container, service, page in services_of(spec, catalog):
        seen: set[str] = set()
        for option, form in page.secrets.items():
            secret = service.options.get(option)
            if secret is None or not secret.is_known:
                continue
            path, value = _service_path(container, service.role, option), secret.reveal()
            if form.pattern and not re.fullmatch(form.pattern, value, re.ASCII):
                yield Problem(path, f"the value must {form.says}", "Change the secret's value; it is not shown.")
            elif value in seen:
                yield Problem(path, "the value is that of another key of this service", "Change one of them.")
            seen.add(value)


RULES: tuple[Rule, ...] = (
    container_names,
    container_hosts,
    host_words,
    direct_addresses,
    cards_elsewhere,
    host_numbers,
    model_references,
    either_option,
    model_sources,
    model_formats,
    engine_builds,
    service_references,
    alias_names,
    option_limits,
    speech_options,
    ports,
    lan_needs_key,
    key_forms,
    words_of_gateways,
    desktop_problems,
)


def _service_path(container: str, role: str, *rest: str | int) -> Path:
    return ("containers", container, "services", role, *rest)


def _suggest(name: str, known: Iterable[str]) -> str:
    return did_you_mean(name, sorted(known), always=True) or "There is none in this file."
