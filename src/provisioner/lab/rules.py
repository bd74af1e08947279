"""``problems``: what is wrong with a file whose every part is well formed. One small rule a function; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from provisioner.catalog import SecretForm, beyond_limit
from provisioner.lab.alias_rules import alias_names
from provisioner.lab.resolved import ResolvedLab
from provisioner.labfile.hosts import LOCAL
from provisioner.labfile.spec import fixed_address
from provisioner.models.folders import GGUF, PLAIN, unknown_format
from provisioner.models.sources import TINY_HF, filename_of, is_folder, part_count
from provisioner.services import knowledge_of
from provisioner.services.base import (
    HOLD_OPTION,
    IDLE_OPTION,
    LAN,
    QUEUE_OPTION,
    OfferedPort,
    Path,
    ResolvedService,
)
from provisioner.values.declared import REACHES, Problem, Secret
from provisioner.values.quantities import NO_TIME
from provisioner.values.refusals import did_you_mean

RESERVED_PREFIX = "provision-"
MOST_OF_A_RULE = 100
"""Problems that one rule reports at once: more are one mistake made many times, and nobody reads them."""
SHORTEST_KEY = 16
"""Characters of a key: of letters and digits, so many are 95 bits."""
TOLD_STAGES = ("engine", "team", "gateway")
"""What is said of services of these stages may reach a gateway."""
ARGUMENTS, ENVIRONMENT = "extra_arguments", "environment"
"""The options of services whose words the program gets as they are."""
CONTROL = re.compile(r"[\x00-\x1f]")
PASSWORD, USERS = "password", "users"
"""The option of services that people log in to, also of each of their users."""
SHORTEST_PASSWORD = 8
_NO_SECRET = Secret(PASSWORD, None)
# fmt: off
COMMON_PASSWORDS = frozenset({
    "abcdefgh", "admin", "administrator", "change-me", "changeit", "changeme", "default", "geheim", "hello",
    "homelab", "iloveyou", "letmein", "p@ssw0rd", "p@ssword", "passw0rd", "password", "passwort", "provision",
    "qwerty", "qwertyui", "qwertz", "qwertzui", "secret", "test", "user", "welcome",
})
# fmt: on
"""What is tried first, each also with digits and points behind it."""
_GENERATE = (
    "Have a random one made: write `!secret NAME` in the file, remove its value from secrets.env, and run "
    "provision init --secrets."
)
UNUSUAL_IMAGE = re.compile(
    "debian|ubuntu|bullseye|bookworm|trixie|focal|jammy|noble|debian/([0-9]|10)|ubuntu/1[0-9][.][0-9]+"
)
"""Images that no host has but by somebody's own doing."""

Rule = Callable[[ResolvedLab], Iterator[Problem]]


def problems(lab: ResolvedLab) -> list[Problem]:
    """What the parts of the file say against each other, in the order of the rules; of each rule the first of many."""
    return [problem for rule in RULES for problem in islice(rule(lab), MOST_OF_A_RULE)]


def model_option_problems(lab: ResolvedLab) -> list[Problem]:
    """What no server could run with, because of what its models' files say."""
    found: list[Problem] = []
    for service in lab.services.values():
        found += knowledge_of(service.role).model_problems(service)
    return found


def warnings(lab: ResolvedLab) -> list[Problem]:
    """What servers run with, and their users will not like."""
    found: list[Problem] = [*(problem for _, problem in short_keys(lab)), *unusual_images(lab)]
    for service in lab.services.values():
        found += knowledge_of(service.role).warnings(service)
    if _has_sites(lab):
        from provisioner.lab.routing_rules import site_warnings  # nothing that a lab without a door needs

        found += site_warnings(lab)
    return found


def card_problems(lab: ResolvedLab) -> list[Problem]:
    """What services cannot do with their containers' cards, or without one."""
    found: list[Problem] = []
    for service in lab.services.values():
        found += knowledge_of(service.role).card_problems(service)
    if _has_turns(lab):
        from provisioner.lab.routing_rules import different_cards  # nothing that a lab without turns needs

        found += different_cards(lab)
    return found


def _has_sites(lab: ResolvedLab) -> bool:
    return any(service.sites for service in lab.services.values())


def _has_turns(lab: ResolvedLab) -> bool:
    """Whether services take turns, or the file says of one how long it holds a card."""
    has_groups = any(page.share for page in lab.hosts.values())
    return has_groups or any(HOLD_OPTION in service.written for service in lab.services.values())


# Rules of containers and their hosts.


def container_names(lab: ResolvedLab) -> Iterator[Problem]:
    """A container must not bear a name that provision uses for its own throwaway containers."""
    for name in lab.containers:
        if name.startswith(RESERVED_PREFIX):
            yield Problem(("containers", name), f'names that begin with "{RESERVED_PREFIX}" are provision\'s own')


def container_hosts(lab: ResolvedLab) -> Iterator[Problem]:
    """Every container has exactly one host of the file."""
    for name, container in lab.containers.items():
        wanted = container.written.host
        if wanted is not None and wanted not in lab.hosts:
            path = ("containers", name, "host")
            yield Problem(path, f'no host "{wanted}" in this file', _suggest(wanted, lab.hosts))
        elif container.host is None:
            hint = f"Write host: {' or host: '.join(lab.hosts)}"
            yield Problem(("containers", name), "needs a host: the file has several", hint)


def unusual_images(lab: ResolvedLab) -> Iterator[Problem]:
    """Yield each image that no host has unless somebody gave it that name there."""
    for name, container in lab.containers.items():
        image = str(container.written.image)
        if UNUSUAL_IMAGE.fullmatch(image):
            from provisioner.labfile.advice import image_hint  # nothing that a usual lab needs

            yield Problem(
                ("containers", name, "image"), "hosts have no such image, unless you made one", image_hint(image)
            )


def host_words(lab: ResolvedLab) -> Iterator[Problem]:
    """What only one kind of host understands is said of containers that live on one."""
    for name, container in lab.containers.items():
        block, page = container.written.block, container.page
        if block is not None and page is not None and page.kind != block.kind:
            hint = f"Leave it out, or give the container a host of {block.title}."
            yield Problem(("containers", name, block.kind), f"host {container.host} is no {block.title}", hint)


def direct_addresses(lab: ResolvedLab) -> Iterator[Problem]:
    """A container whose own sshd is used has an address."""
    for name, container in lab.containers.items():
        block, page = container.written.block, container.page
        way = page.direct_way(block) if page is not None else ""
        if way and block is not None and block.lacks_address:
            path = ("containers", name, block.kind, "network")
            yield Problem(path, f"transport: {way} needs an address", "Give it one, or write transport: pct.")


def copies(lab: ResolvedLab) -> Iterator[Problem]:
    """A copy is of another container of the file."""
    for name, container in lab.containers.items():
        source = container.written.copy_of
        if source is None:
            continue
        path = ("containers", name, "copy_of")
        if source == name:
            yield Problem(path, "a container is no copy of itself", "Leave copy_of out.")
        elif source not in lab.containers:
            hint = f"Leave copy_of out: then {name} is a container like others."
            yield Problem(path, f'no container "{source}" in this file', hint)


def cards_elsewhere(lab: ResolvedLab) -> Iterator[Problem]:
    """A card is given to containers of hosts whose cards can be looked at."""
    for name, container in lab.containers.items():
        page = container.page
        if container.written.gpu is None or page is None or page.is_here or page.shows_cards:
            continue
        hint = f"Run provision on that machine, with {{ {page.kind}: {LOCAL} }}, or leave gpu out."
        message = f"host {container.host} is {page.title} on another machine, whose cards this version cannot look at"
        yield Problem(("containers", name, "gpu"), message, hint)


def host_numbers(lab: ResolvedLab) -> Iterator[Problem]:
    """No two containers ask for one number, nor for one address, which is not that of ``build:`` either."""
    taken: dict[tuple[str | None, str], str] = {}
    for builds_on, page in lab.hosts.items():
        if page.build is not None:
            taken[None, page.build.network.ip.partition("/")[0]] = f"for what is built on host {builds_on}"
    for name, container in lab.containers.items():
        block = container.written.block
        if block is None:
            continue
        numbers: list[tuple[str, str | None, str]] = []
        if block.vmid is not None:
            numbers.append(("vmid", container.host, str(block.vmid)))
        if fixed_address(container.written):
            numbers.append(("network", None, fixed_address(container.written)))
        for option, host, number in numbers:
            own = f"container {name}'s"
            holder = taken.setdefault((host, number), own)
            if holder != own:
                path = ("containers", name, block.kind, option)
                yield Problem(path, f"{number} is {holder}", "Give one of them another.")


# Rules of models, and of the services that name them.


def model_sources(lab: ResolvedLab) -> Iterator[Problem]:
    """What is downloaded from an address is one file, and its hash is known before."""
    for name, model in lab.models.items():
        if not model.source.startswith("https:"):
            continue
        if model.sha256 is None:
            hint = "Its page may tell it; else download the file and run: sha256sum FILE"
            yield Problem(("models", name, "source"), "what is downloaded from an address needs its sha256", hint)
        if part_count(filename_of(model.source)) > 1:
            hint = (
                "Take it from its hub (hf:), or fetch all of its files into one folder and write file:PATH of the first"
            )
            yield Problem(("models", name, "source"), "this is one part of a model of several files", hint)


def model_formats(lab: ResolvedLab) -> Iterator[Problem]:
    """A GGUF is one, a folder is none and tells its format, and a folder's many files have no one hash."""
    for name, model in lab.models.items():
        form = ("models", name, "format")
        if not is_folder(model.source):
            if model.format != GGUF:
                yield Problem(form, f"the source is a GGUF file, and format is {model.format}", "Leave format out.")
            continue
        if model.sha256 is not None:
            hint = "Leave it out: homelab.lock holds the sha256 of each file that comes from a hub."
            yield Problem(("models", name, "sha256"), "a folder has many files, and no sha256 of its own", hint)
        if model.source == TINY_HF and model.format != PLAIN:
            message = f"the built-in folder is {PLAIN}, and format is {model.format}"
            yield Problem(form, message, "Leave format out.")
        elif model.format == GGUF:
            hint = 'Name the file: "hf:ORG/REPO:QUANT" or "file:PATH.gguf"'
            yield Problem(form, "the source is a folder, and a GGUF is a file of one", hint)
        elif model.format is None and not model.source.startswith("dir:"):  # what a folder here tells is read
            error = unknown_format()
            yield Problem(("models", name, "source"), error.message, error.hint)


def model_references(lab: ResolvedLab) -> Iterator[Problem]:
    """A model that a service names is in the file, in a format that the engine reads."""
    for service in lab.services.values():
        for use in service.uses:
            path = (*service.path, use.option, *(() if use.place is None else (use.place,)))
            model = lab.models.get(use.name)
            formats = service.page.references[use.option].formats
            if model is None:
                yield Problem(path, f'no model "{use.name}" in this file', _suggest(use.name, lab.models))
            elif formats and model.format not in (None, *formats):
                message = f'{service.page.title} reads {", ".join(formats)}, and model "{use.name}" is {model.format}'
                yield Problem(path, message, _readers(lab, str(model.format)))


def _readers(lab: ResolvedLab, weights: str) -> str:
    """Which roles serve models of that format, as their own pages say."""
    roles = set()
    for page in lab.catalog.services.values():
        for reference in page.references.values():
            if weights in reference.formats:
                roles.add(page.role)
    return f"Role {' or '.join(sorted(roles))} reads {weights}." if roles else f"No role here reads {weights}."


def either_option(lab: ResolvedLab) -> Iterator[Problem]:
    """Of an option and the one that stands in its place exactly one is written, and no list names a thing twice."""
    for service in lab.services.values():
        for option, reference in service.page.references.items():
            other = reference.instead_of
            written = [name for name in (other, option) if name and service.written.get(name) is not None]
            if other and not written:
                hint = f"Add {other}: NAME, or {option}: [NAME, NAME], of: {', '.join(lab.models)}"
                yield service.problem(other, f"needs {other} or {option}", hint)
            elif other and len(written) > 1:
                yield service.problem(option, f"{other} and {option} are both written", "Leave one of them out.")
        seen: set[str] = set()
        for use in service.uses:
            if use.place is None:
                continue
            if use.name in seen:
                path = (*service.path, use.option, use.place)
                yield Problem(path, f'"{use.name}" is named twice', "Leave one of them out.")
            seen.add(use.name)


# Rules of services and what they name: other services, engines of teams, sites, turns.


def service_options(lab: ResolvedLab) -> Iterator[Problem]:
    """What no server of its kind could run with."""
    for service in lab.services.values():
        yield from knowledge_of(service.role).problems(service)


def service_references(lab: ResolvedLab) -> Iterator[Problem]:
    """A service that another one names is in the file."""
    for service in lab.services.values():
        for option, reference in service.page.references.items():
            name = service.written.get(option)
            if reference.kind == "service" and isinstance(name, str) and name not in lab.services:
                yield service.problem(option, f'no service "{name}" in this file', _suggest(name, lab.services))
            elif reference.answers:
                from provisioner.lab.connections import asked_problems  # nothing that a lab without them needs

                yield from asked_problems(lab, service, option)
            if reference.kind == "services" and name:
                from provisioner.lab.connections import connection_problems  # nothing that a lab without them needs

                yield from connection_problems(lab, service, option)


def reached_services(lab: ResolvedLab) -> Iterator[Problem]:
    """A service that runs others' code reaches services of the file, single addresses or the internet."""
    if any(REACHES in service.written for service in lab.services.values()):
        from provisioner.lab.egress import egress_problems  # nothing that a lab without others' code needs

        yield from egress_problems(lab)


def site_services(lab: ResolvedLab) -> Iterator[Problem]:
    """Each site of a door names a service of the file that answers HTTP, and no door."""
    if _has_sites(lab):
        from provisioner.lab.routing_rules import site_problems  # nothing that a lab without a door needs

        yield from site_problems(lab)


def names_of_members(lab: ResolvedLab) -> Iterator[Problem]:
    """What is wrong with the engines that members of a team name."""
    references = (reference for service in lab.services.values() for reference in service.page.references.values())
    if any(reference.kind == "members" for reference in references):
        from provisioner.lab.routing_rules import member_names  # nothing that a lab without a team needs

        yield from member_names(lab)


def queues_of_idle_services(lab: ResolvedLab) -> Iterator[Problem]:
    """Who asks a service that has ended waits for it: without a queue nobody could start it again."""
    for service in lab.services.values():
        ends = service.option(IDLE_OPTION) not in (None, NO_TIME)
        if ends and service.option(QUEUE_OPTION) == NO_TIME:
            message = f"{IDLE_OPTION} needs a {QUEUE_OPTION}: the request that starts it waits for it"
            yield service.problem(IDLE_OPTION, message, f"Leave one of both out, or write a longer {QUEUE_OPTION}.")


def turns_of_services(lab: ResolvedLab) -> Iterator[Problem]:
    """What takes turns on one card is an engine of that host, waits long enough, and is in one group."""
    if _has_turns(lab):
        from provisioner.lab.routing_rules import turn_problems  # nothing that a lab without turns needs

        yield from turn_problems(lab)


# Rules of values: their limits, ports, keys, and free words.


def option_limits(lab: ResolvedLab) -> Iterator[Problem]:
    """Every number is in the range, and every text has the form, that the page of the service's role asks for."""
    for service in lab.services.values():
        for name, value in service.written.items():
            for place, message, hint in beyond_limit(service.page.options[name], value):
                yield Problem((*service.path, name, *(() if place is None else (place,))), message, hint)


def ports(lab: ResolvedLab) -> Iterator[Problem]:
    """Two services of one container, or two that one host shows to the LAN, never share a port."""
    taken: dict[tuple[str, OfferedPort], str] = {}
    for service in lab.services.values():
        told = set[str]()  # who shares a port shares the one behind it as well
        for place, port in _places_of_ports(lab, service):
            holder = taken.setdefault((place, replace(port, why="")), service.address)
            if holder != service.address and place not in told:
                told.add(place)
                message = f"port {port.words} of {place} is taken by {holder}"
                yield Problem(service.path, message, "Give one of them another port: port: NUMBER")


def own_ports(lab: ResolvedLab) -> Iterator[Problem]:
    """A service with several ports has a port for each."""
    for service in lab.services.values():
        taken = {(port.number, port.protocol) for port in service.ports if port not in service.further_ports}
        for option, port in _options_of_ports(service):
            if (port.number, port.protocol) in taken:
                yield service.problem(option, f"port {port.words} is its own already", "Write another one.")
            taken.add((port.number, port.protocol))


def _options_of_ports(service: ResolvedService) -> Iterator[tuple[str, OfferedPort]]:
    """Each further port of a service with where the file names it: an option, or an entry of one."""
    further = iter(service.further_ports)
    for option in service.page.also_listens:
        value = service.option(option)
        if isinstance(value, int):
            yield option, next(further)
            continue
        for place, _ in enumerate(value or ()):
            yield f"{option}.{place}", next(further)


def _places_of_ports(lab: ResolvedLab, service: ResolvedService) -> Iterator[tuple[str, OfferedPort]]:
    container = lab.containers[service.container]
    for port in service.ports:
        yield f"container {container.name}", port
    if service.is_on_lan and container.host and not container.has_own_address:
        for port in service.offered_ports:
            yield f"the LAN side of host {container.host}", port


def lan_needs_key(lab: ResolvedLab) -> Iterator[Problem]:
    """Nothing is shown to the LAN without its key, where the program can ask for one."""
    for service in lab.services.values():
        key = service.page.key_option
        if not key or service.written.get(key) is not None:
            continue
        if service.port is None:  # what speaks no HTTP has nothing before it that could ask: each of its ports says why
            continue
        hint = f"Add {key}: !secret NAME"
        if service.expose == LAN:
            yield service.problem("expose", f"expose: lan needs {key}", hint)
        elif service.needed_by:
            message = f"{service.needed_by[0]} is on another host and reaches it over the LAN: it needs a key"
            yield Problem(service.path, message, hint)


def key_forms(lab: ResolvedLab) -> Iterator[Problem]:
    """A key whose value is known is as its role wants it, and no two of a service are equal."""
    for service in lab.services.values():
        seen: set[str] = set()
        for option, form in service.page.secrets.items():
            secret = service.written.get(option)
            if secret is None or not secret.is_known:
                continue
            value = secret.reveal()
            if not re.fullmatch(form.pattern or ".*", value, re.ASCII | re.DOTALL):
                hint = "Change the secret's value; it is not shown."
                yield service.problem(option, f"the value must {form.says}", hint)
            elif value in seen:
                yield service.problem(option, "the value is that of another key of this service", "Change one of them.")
            seen.add(value)


def weak_passwords(lab: ResolvedLab) -> Iterator[Problem]:
    """A password with which people log in is none that is tried first, and none that is tried soon."""
    for service in lab.services.values():
        if service.page.key_option != PASSWORD:
            continue
        holders = {PASSWORD: service.written}
        for number, user in enumerate(service.written.get(USERS, ())):
            holders[f"{USERS}.{number}.{PASSWORD}"] = user
        for place, holder in holders.items():
            secret = holder.get(PASSWORD, _NO_SECRET)
            if not secret.is_known:
                continue
            value = secret.reveal()
            is_short_number = re.fullmatch("[0-9]{,11}", value)
            if is_short_number or value.lower().rstrip("0123456789.!?") in COMMON_PASSWORDS:
                yield service.problem(place, "the value is one of the passwords that are tried first", _GENERATE)
            elif len(value) < SHORTEST_PASSWORD:
                yield service.problem(place, f"the value has fewer than {SHORTEST_PASSWORD} characters", _GENERATE)


def short_keys(lab: ResolvedLab) -> Iterator[tuple[ResolvedService, Problem]]:
    """Yield each service with a key so short that it can be guessed from its checksum, which its switch reads."""
    for service in lab.services.values():
        option = service.page.key_option or ""
        secret = service.written.get(option)
        if secret is None or not secret.is_known or service.page.stage not in TOLD_STAGES:
            continue
        form = service.page.secrets.get(option) or SecretForm()
        if 0 < len(secret.reveal().removeprefix(form.prefix)) < SHORTEST_KEY:
            what = f"the value has fewer than {SHORTEST_KEY} characters, and can be guessed"
            yield service, service.problem(option, what, _GENERATE)


def misread_values(lab: ResolvedLab) -> Iterator[Problem]:
    """Nothing that gateways are told, keys included, is misread by one of them."""
    told: dict[Path, Any] = {("upstreams", name): dict(upstream) for name, upstream in lab.upstreams.items()}
    for service in lab.services.values():
        if service.page.stage in TOLD_STAGES:
            told[service.path] = service.written
    found: dict[Problem, None] = {}
    for role in dict.fromkeys(service.role for service in lab.services.values()):
        found |= dict.fromkeys(knowledge_of(role).reading_problems(told))
    yield from found


def free_words(lab: ResolvedLab) -> Iterator[Problem]:
    """Free arguments and variables that the service's role would refuse in the container."""
    for service in lab.services.values():
        yield from _arguments(service)
        if service.page.closed_variables:
            yield from _variables(service)


def _arguments(service: ResolvedService) -> Iterator[Problem]:
    for place, word in enumerate(service.written.get(ARGUMENTS) or ()):
        name = str(word).partition("=")[0].replace("_", "-")
        if name in service.page.own_arguments:
            hint = f"Leave it out: an option of {service.role} says it."
            yield service.problem(f"{ARGUMENTS}.{place}", f"{name} is an argument that the role sets itself", hint)


def _variables(service: ResolvedService) -> Iterator[Problem]:
    closed = re.compile(f"({'|'.join(service.page.closed_variables)})", re.IGNORECASE)
    for name, value in (service.written.get(ENVIRONMENT) or {}).items():
        place = f"{ENVIRONMENT}.{name}"
        if closed.fullmatch(str(name)):
            message = "this variable opens the server, or says what the role says"
            yield service.problem(place, message, f"Leave it out, and look for an option of {service.role}.")
        elif CONTROL.search(str(value)):
            yield service.problem(place, "its value holds a control character", "Write one line.")


def _suggest(name: str, known: Iterable[str]) -> str:
    return did_you_mean(name, sorted(known), always=True) or "There is none in this file."


RULES: tuple[Rule, ...] = (
    container_names,
    copies,
    container_hosts,
    host_words,
    direct_addresses,
    cards_elsewhere,
    host_numbers,
    model_references,
    either_option,
    model_sources,
    model_formats,
    service_references,
    reached_services,
    site_services,
    alias_names,
    names_of_members,
    option_limits,
    free_words,
    service_options,
    queues_of_idle_services,
    turns_of_services,
    ports,
    own_ports,
    lan_needs_key,
    key_forms,
    misread_values,
)
