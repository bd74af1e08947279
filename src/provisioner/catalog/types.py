"""The values that the catalog is made of, frozen and in the words of the roles' pages, and limits of options."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

STAGES = ("driver", "engine", "team", "gateway", "app", "door")
Kind = Literal[
    "model",
    "models",
    "aliases",
    "service",
    "services",
    "stack",
    "sites",
    "file",
    "files",
    "fetched",
    "members",
    "reaches",
]
"""What an option may name."""
KINDS: tuple[Kind, ...] = get_args(Kind)
Content = Literal["certificates", "python"]
"""The contents that a file which an option names may have: certificates in PEM form, a module of Python."""
TYPES = ("str", "int", "bool", "float", "list", "dict", "path", "raw")
ANSWERS = ("chat", "embedding", "rerank")
"""What an engine, or an alias of a gateway, can be asked for."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a value of an option keeps to, or each item of a list: a range of numbers, or the form of a text.

    ``pattern`` is what the whole text matches; ``says`` completes "it must …". The role's preflight refuses the same.
    """

    min: float | None = None
    max: float | None = None
    pattern: str = ""
    says: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a service, in the words of Ansible's argument_specs; ``name`` is without the role's prefix."""

    name: str
    type: str = "str"
    description: str = ""
    required: bool = False
    default: Any = None
    choices: tuple[Any, ...] = ()
    elements: str | None = None
    secret: bool = False
    options: Mapping[str, Option] = field(default_factory=dict)
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """An option that names something else in the file, ``models`` several; ``instead_of``: the option it replaces.

    ``folder_to``: the option that gets the folder in which the service finds the model by its name; a ``stack`` is
    one of wheels, ``packages_to`` the option that gets them, and ``serves_with`` lists the packages of which it has to
    have one. ``routes_to`` gets the aliases joined with the engines that they name, as the service's own module joins
    them. ``key_to`` gets the key that the named service asks for. ``answers`` is what the named service has to be asked
    for, such as embeddings, and ``model_to`` the option with the model or alias that it is asked for by: the file's
    word, else the only one there is. ``services`` lists services that answer completions or speak. ``sites`` maps host
    names to services; ``signed_by`` is the secret of which the root of their certificate is made. A ``file`` is one of
    this machine, and the service gets its text; ``files`` lists several, of which it gets name and text. One that does
    not hold what ``holds`` says is refused. ``fetched`` lists models that the service fetches by itself, each with the
    ``name`` that clients use. ``members`` is a mapping, or lists mappings, whose ``model`` names an engine or an
    upstream; ``routes_to`` gets where each of them is asked. ``reaches`` lists what else the service may reach:
    services, addresses with a port, the internet.
    """

    kind: Kind
    formats: tuple[str, ...] = ()
    name_to: str | None = None
    instead_of: str | None = None
    folder_to: str | None = None
    packages_to: str | None = None
    routes_to: str | None = None
    key_to: str | None = None
    answers: str | None = None
    model_to: str | None = None
    signed_by: str | None = None
    holds: Content | None = None
    serves_with: tuple[str, ...] = ()

    @property
    def is_described(self) -> bool:
        """Whether what may be written is what the option's own description says."""
        return self.kind in ("fetched", "members")


@dataclass(frozen=True, slots=True)
class SecretForm:
    """What a secret's value must look like, which the role's preflight refuses as well.

    ``prefix`` is what a generated one begins with; ``pattern`` what the whole value matches, said by ``says``.
    """

    prefix: str = ""
    pattern: str = ""
    says: str = ""


@dataclass(frozen=True, slots=True)
class ArtifactType:
    """What a role makes once per host: where it lies, and what its content depends on.

    ``source_digest`` is the sha256 over the role's ``tasks/build*.yml``, ``files/`` and ``vars/build*.yml``; where
    there is no ``vars/build*.yml``, over ``templates/`` and ``vars/`` as well. ``includes`` says which values of which
    options make the build run another role, and the digest of that role. ``log`` is where ninja writes in the builder
    how far it is. ``gives``: the service's options that name something in it, each with where that lies below the
    folder at which it is mounted ("." is the folder itself). ``later``: options that it did not have at first; what was
    made without them is what is made with their defaults, so that nobody makes it again. ``minutes``: of one processor
    that compiles it, as measured; 0 where mostly the network is waited for.
    """

    name: str
    path: str
    options: tuple[str, ...]
    source_digest: str
    includes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    log: str = ""
    gives: Mapping[str, str] = field(default_factory=dict)
    later: tuple[str, ...] = ()
    minutes: int = 0


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a stamp of a role rests on: the digest of its files, and what it manages, by the fields of ``Managed``.

    Each thing is the template of its name, or a mapping of ``name`` and ``when``, variables with the values that they
    must have, ``unless``, variables of which one at least must have another value, or ``each``, a variable whose items
    (mappings) fill the name one after the other.
    """

    digest: str = ""
    managed: Mapping[str, Sequence[str | Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Socket:
    """A listening socket that a page names: of which unit, on which addresses and port (None: any), and what for."""

    unit: str
    reach: Literal["loopback", "network"]
    port: int | None
    why: str
    protocol: Literal["tcp", "udp"] = "tcp"


@dataclass(frozen=True, slots=True)
class Opens:
    """What a running service may have open; everything else that ``audit`` finds is a finding.

    Routes are ``METHOD /path``, whose end may be ``/*`` for any one part, or ``/**`` for any number.
    """

    sockets: tuple[Socket, ...] = ()
    """Beside its port, and the one on which its process listens behind the switch."""
    routes: Mapping[str, str] = field(default_factory=dict)
    """Those that answer without a key, each with what it tells."""
    passes: tuple[str | Mapping[str, Any], ...] = ()
    """What is passed on at all, where the service may be without a key; each may have a condition (``Upkeep``)."""
    document: str = ""
    """The path at which its own process tells its routes without a key (OpenAPI)."""
    asks: tuple[str, ...] = ()
    """Routes that it has or had, of which strangers get nothing."""
    tells: tuple[tuple[str, tuple[str, ...], Any], ...] = ()
    """What stands in the JSON of open pages: the path, the keys that lead there, the value."""
    front: bool = False
    """Whether it shows its front page in the place of what it does not have."""
    is_told: bool = False
    """Whether there is such a page; of a service without a key and without a page nobody can say what is too much."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The container that a service asks for where the file says nothing; sizes are bytes."""

    image: str = "debian/12"
    cpu: int | None = None
    memory: int | None = None
    disk: int | None = None
    nesting: bool = False


@dataclass(frozen=True, slots=True)
class ServiceType:
    """Everything that a role's pages say of its service."""

    role: str
    title: str
    stage: str
    unit: str | None
    port: int | None
    health: str | None
    protocol: str | None
    options: Mapping[str, Option]
    references: Mapping[str, Reference]
    internal: frozenset[str]
    artifact: ArtifactType | None
    defaults: Defaults
    secrets: Mapping[str, SecretForm]
    """The secrets that are the lab's own, by their options; no two of a service are equal."""
    key_option: str | None
    stampable: bool
    unstampable_reason: str
    upkeep: Upkeep = field(default_factory=Upkeep)
    requirements: tuple[str, ...] = ()
    """What is installed beside its stack of wheels, in lines of requirements."""
    pictures: str = ""
    """The folder in its container where its proof keeps pictures."""
    implied: bool = False
    """Whether it comes with something else of the container (a card brings its driver), so that no file names it."""
    behind: str = ""
    """The role that stands before it and has its port; empty where its unit's own process listens there."""
    closed_by: str = ""
    """The unit that keeps people out of it while its container may go back; empty where nobody writes into it."""
    also_listens: tuple[str, ...] = ()
    """The options that name further ports of its unit's own process, which clients reach as they reach its port.

    One is a number, or a list of mappings with ``port``, ``why`` and perhaps ``protocol``.
    """
    after_change: Mapping[str, str] = field(default_factory=dict)
    """What people have to do, or lose, once an option has another value, by options; said by the plan."""
    identity: tuple[str, ...] = ()
    """The files that make its container this one to its clients, such as a key that it made: a copy makes its own."""
    opens: Opens = Opens()
    own_arguments: tuple[str, ...] = ()
    """Arguments of its program that its role says itself, in every spelling: none of them is a free one."""
    closed_variables: tuple[str, ...] = ()
    """Patterns of whole names of variables that its environment may not hold, in any case of letters."""
    health_option: str = ""
    """The option that names the page in the place of ``health``, where each service of the role has one of its own.

    A service whose option is empty speaks no HTTP: it has no port but further ones, and nothing stands before it.
    """

    def health_with(self, options: Mapping[str, Any]) -> str | None:
        """The page that answers 200 when a service with these options is ready; None where it has none."""
        option = self.options.get(self.health_option)
        if option is None:
            return self.health
        return str(options.get(self.health_option, option.default)) or None

    def behind_with(self, options: Mapping[str, Any]) -> str:
        """The role that stands before a service with these options; empty where none does."""
        return "" if self.health_option and self.health_with(options) is None else self.behind

    @property
    def units(self) -> tuple[str, ...]:
        """Its unit, that of what stands before it, and that of what ends it: when it is idle, or at another's turn."""
        if self.unit is None:
            return ()
        if not self.behind:
            return (self.unit,)
        closed = (self.closed_by,) if self.closed_by else ()
        before = f"{self.behind}-{self.unit}"
        keeper = (f"{before.removesuffix('.service')}-keeper.service",) if "idle" in self.options else ()
        return (self.unit, before, *keeper, *closed)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All services by role name, in the order of their work, and the roles that only make an artifact."""

    services: Mapping[str, ServiceType]
    artifact_roles: Mapping[str, ArtifactType]
    base: Upkeep | None = None
    """The role that every container gets; None where there is none."""
    base_sockets: tuple[Socket, ...] = ()
    """What listens in every container because of its image."""

    @property
    def offered(self) -> dict[str, ServiceType]:
        """The services that a file may name."""
        return {role: service for role, service in self.services.items() if not service.implied}

    def example(self, protocol: str, stage: str = "") -> str:
        """``, such as ROLE``: the first service of that protocol, and stage, that a file may name; empty for none."""
        for role, service in self.offered.items():
            if service.protocol == protocol and stage in ("", service.stage):
                return f", such as {role}"
        return ""


# Limits of options (`limits` of a role's page): each is checked and given to its option; values are held against it.

NUMBERS: Mapping[str, type | tuple[type, ...]] = {"int": int, "float": (int, float)}
TEXTS = ("str", "path")


def limited_options(
    options: Mapping[str, Option],
    limits: Mapping[str, Any],
    named_elsewhere: Collection[str] = (),
    *,
    checked: bool = False,
) -> dict[str, Option]:
    """The options with their limits; raise ``ValueError`` for a limit that cannot be, unless that was ``checked``.

    ``named_elsewhere``: the options whose values are names of something else in the file.
    """
    limited = dict(options)
    for name, page in limits.items():
        if name not in options:
            raise ValueError(f"limits: {name!r} is no option of argument_specs.yml")
        limited[name] = replace(options[name], limit=Limit(**page))
        if not checked:
            _check(limited[name], is_named_elsewhere=name in named_elsewhere)
    return limited


def beyond_limit(option: Option, value: Any) -> Iterator[tuple[int | None, str, str]]:
    """What of a value is beyond the option's limit: its place in a list (else None), what is wrong, what to write."""
    if option.limit is None or value is None:
        return
    places = enumerate(value) if option.type == "list" else [(None, value)]
    for place, item in places:
        for message, hint in _beyond(option.limit, item):
            yield place, message, hint


def _beyond(limit: Limit, value: Any) -> Iterator[tuple[str, str]]:
    if limit.min is not None and value < limit.min:
        yield f"{value} is too small", f"Write {limit.min} or more."
    if limit.max is not None and value > limit.max:
        yield f"{value} is too large", f"Write {limit.max} or less."
    if limit.pattern and not re.fullmatch(limit.pattern, value, re.ASCII):
        yield f'"{value}" must {limit.says}', ""


def _check(option: Option, *, is_named_elsewhere: bool) -> None:
    """Refuse a limit that is not of the option's kind: a range for numbers, a pattern for texts."""
    limit = option.limit or Limit()
    if option.secret or option.choices or is_named_elsewhere:
        raise ValueError(f"limits: {option.name} is a reference, a secret or has choices, which are its limits already")
    kind = (option.elements or "raw") if option.type == "list" else option.type
    if kind in TEXTS:
        _check_form(option.name, limit)
    elif kind in NUMBERS:
        _check_range(option.name, limit, NUMBERS[kind])
    else:
        raise ValueError(f"limits: {option.name} is neither a number, a text nor a list of these")
    _check_default(option)


def _check_range(name: str, limit: Limit, kind: type | tuple[type, ...]) -> None:
    if limit.pattern or limit.says:
        raise ValueError(f"limits: {name} is a number, which has min and max, and no pattern")
    ends = _ends(limit)
    if not ends:
        raise ValueError(f"limits: {name} needs min or max")
    for end in ends:
        is_number = isinstance(end, kind) and not isinstance(end, bool)
        if not is_number:
            raise ValueError(f"limits: min and max of {name} must be numbers of its type")
    if ends[0] > ends[-1]:
        raise ValueError(f"limits: min of {name} is larger than its max")


def _check_form(name: str, limit: Limit) -> None:
    if _ends(limit):
        raise ValueError(f"limits: {name} is a text, which has a pattern, and no min or max")
    if not limit.pattern or not limit.says:
        raise ValueError(f"limits: {name} needs a pattern, and in says what completes 'it must ...'")
    try:
        re.compile(limit.pattern)
    except re.error as error:
        raise ValueError(f"limits: the pattern of {name} cannot be read: {error}") from error


def _check_default(option: Option) -> None:
    for _, message, hint in beyond_limit(option, option.default):
        words = f"{message}. {hint}".rstrip()
        raise ValueError(f"limits: the default of {option.name}: {words}")


def _ends(limit: Limit) -> list[float]:
    """Those ends of the range that are written, the least first."""
    return [end for end in (limit.min, limit.max) if end is not None]
