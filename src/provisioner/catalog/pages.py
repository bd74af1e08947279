"""Roles' pages as read or compiled, and the catalog made of them; a mistake is an error that names its role."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from provisioner.catalog.types import (
    ANSWERS,
    KINDS,
    STAGES,
    TYPES,
    ArtifactType,
    Catalog,
    Content,
    Defaults,
    Opens,
    Option,
    Reference,
    SecretForm,
    ServiceType,
    Socket,
    Upkeep,
    limited_options,
)
from provisioner.values.declared import Managed
from provisioner.values.errors import ProvisionError
from provisioner.values.quantities import SizeError, parse_size

# Pages as they are read from the folders of roles.

LEFT_OUT = frozenset({"README.md", "__pycache__"})
"""What a role's tasks never read."""
HELPERS = ("behind", "kept_in")
"""The keys of a service's page that name roles which help it: a switch before it, rules for what it reaches."""
OF_HELPERS = {"paths": "reloaded", "units": "helpers", "packages": "packages"}
"""Fields of ``Managed`` by those of a helping role: what that one reads is no reason to start the service anew."""


def page_error(role: str, details: str) -> ProvisionError:
    """The error that names the role whose pages are wrong."""
    return ProvisionError(
        f"Unable to read the pages of role {role}",
        details=details,
        resolution=f"correct roles/{role}/meta/service.yml or roles/{role}/meta/argument_specs.yml",
    )


def read_upkeep(role: Path, plugins: str) -> dict[str, Any]:
    """``digest`` of the role's files and of the modules that all roles use (``plugins``), and ``managed``."""
    page = role / "meta" / "managed.yml"
    digest = hashlib.sha256(f"{plugins} {digest_of(_files(role), role)}".encode()).hexdigest()
    return {"digest": digest, "managed": _read_yaml(page) if page.is_file() else {}}


def _read_whole_upkeep(role: Path, service: Mapping[str, Any], plugins: str) -> dict[str, Any]:
    """Return the upkeep of a service's role, and with it that of the roles that help it."""
    upkeep = read_upkeep(role, plugins)
    for word in HELPERS:
        if word not in service:
            continue
        helper = role.parent / service[word]
        if not helper.is_dir():
            raise page_error(role.name, f"service.yml says {word}: {helper.name}, and there is no such role")
        helping = read_upkeep(helper, plugins)
        options = {f"{helper.name}_{option}": f"{role.name}_{option}" for option in passed_on(helper, service["stage"])}
        # A service without a page has nothing before it.
        is_absent = word == "behind" and "health_option" in service
        absent = {f"{role.name}_{service['health_option']}": ""} if is_absent else {}
        managed = {kind: list(things) for kind, things in upkeep["managed"].items()}
        own, name = f"{{{{ {helper.name}_name }}}}", service["unit"].removesuffix(".service")
        for kind, kept in OF_HELPERS.items():
            things = helping["managed"][kind]
            if kind == "units":  # those of its packages are nobody's
                things = [thing for thing in things if own in _name_of(thing)]
            named = [_named_for(thing, own, name, options, absent) for thing in things]
            managed[kept] = [*managed.get(kept, []), *(thing for thing in named if thing is not None)]
        digest = hashlib.sha256(f"{upkeep['digest']} {helping['digest']}".encode()).hexdigest()
        upkeep = {"digest": digest, "managed": managed}
    return upkeep


def _name_of(thing: str | Mapping[str, Any]) -> str:
    return thing if isinstance(thing, str) else thing["name"]


def _named_for(
    thing: str | Mapping[str, Any], word: str, name: str, options: Mapping[str, str], absent: Mapping[str, Any]
) -> str | dict[str, Any] | None:
    """What stands before a service, by that service's name and options; ``absent``: with which of them nothing does.

    None where it is there only with options that the service does not have.
    """
    filled = _name_of(thing).replace(word, name)
    if isinstance(thing, str):
        return {"name": filled, "unless": dict(absent)} if absent else filled
    absent_with = {options[option]: value for option, value in thing["unless"].items() if option in options}
    if absent and absent_with:
        raise ValueError(f"{filled} is missing with {absent_with}, and with {absent}: a page cannot say both")
    return {"name": filled, "unless": absent_with} if absent_with else None


def digest_of(files: Iterable[Path], root: Path) -> str:
    """The sha256 over the files' names below ``root`` and their contents."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def read_pages(role: Path, plugins: str = "") -> dict[str, Any] | None:
    """``service``, ``options``, ``upkeep`` and, where the role makes an artifact, its sources' digests; all JSON.

    Files that were only reworded build what those before them built: ``built_the_same`` of the page maps their digest
    to the one under which artifacts lie on hosts, so that nothing is built again.

    None for a role that is no service and makes no artifact: its page only has limits for its own preflight.
    """
    service = _read_yaml(role / "meta" / "service.yml")
    if "stage" not in service and "artifact" not in service:
        return None
    specs = _read_yaml(role / "meta" / "argument_specs.yml")
    try:
        options = specs["argument_specs"]["main"].get("options") or {}
    except (KeyError, TypeError, AttributeError) as error:
        raise page_error(role.name, "argument_specs.yml has no entry point main") from error
    service["limits"] = _limits_passed_on(role, service, options) | (service.get("limits") or {})
    # One that was not yet written into its page is for ``make generate``.
    filled = [option for option in internal_passed_on(role, service) if f"{role.name}_{option}" in options]
    service["internal"] = [*service.get("internal", ()), *filled]
    pages = {"service": service, "options": options, "upkeep": _read_whole_upkeep(role, service, plugins)}
    pages["opens"] = read_opens(role)
    if "artifact" in service:
        if not (role / "tasks" / "build.yml").is_file():
            raise page_error(role.name, "service.yml names an artifact, and there is no tasks/build.yml that makes it")
        pages |= _artifact_digests(role, service["artifact"])
    return pages


def read_opens(role: Path) -> dict[str, Any]:
    """What the role's page says that it opens; nothing where it has none."""
    page = role / "meta" / "opens.yml"
    return dict(_read_yaml(page)) if page.is_file() else {}


def passed_on(role: Path, stage: str) -> list[str]:
    """The options that a role which stands before others passes on to services of that stage."""
    pages = _read_yaml(role / "meta" / "service.yml").get("passed_on") or {}
    return [option for option, stages in pages.items() if stage in stages]


def helpers_of(role: Path, service: Mapping[str, Any]) -> list[Path]:
    """Return the folders of the roles that help a service, as far as they are there."""
    folders = [role.parent / service[word] for word in HELPERS if word in service]
    return [folder for folder in folders if folder.is_dir()]


def internal_passed_on(role: Path, service: Mapping[str, Any]) -> list[str]:
    """Those of the options passed on to a service that no file writes."""
    found = list[str]()
    for helper in helpers_of(role, service):
        internal = _read_yaml(helper / "meta" / "service.yml").get("internal") or ()
        found += [option for option in passed_on(helper, service["stage"]) if option in internal]
    return found


def _limits_passed_on(role: Path, service: Mapping[str, Any], options: Collection[str]) -> dict[str, Any]:
    """The limits of those that the service has; one that was not yet written into its page is for ``make generate``."""
    given = {}
    for helper in helpers_of(role, service):
        limits = _read_yaml(helper / "meta" / "service.yml").get("limits") or {}
        for option in passed_on(helper, service["stage"]):
            is_checked = option in (service.get("references") or {})  # by what it refers to
            if option in limits and f"{role.name}_{option}" in options and not is_checked:
                given[option] = limits[option]
    return given


def _artifact_digests(role: Path, artifact: dict[str, Any]) -> dict[str, Any]:
    """``source_digest`` of what the role builds with, and ``included_digests`` of the roles that its build runs."""
    same = artifact.get("built_the_same") or {}
    sources = digest_of(_build_sources(role), role)
    included = {name for roles in artifact.get("includes", {}).values() for name in roles.values()}
    digests = {}
    for name in sorted(included):
        whole = _whole_digest(role.parent / name, role)
        digests[name] = same.get(whole, whole)
    return {"source_digest": same.get(sources, sources), "included_digests": digests}


def _whole_digest(included: Path, role: Path) -> str:
    if not included.is_dir():
        raise page_error(role.name, f"service.yml includes role {included.name}, and there is none")
    return digest_of(_files(included), included)


def _files(role: Path) -> list[Path]:
    return sorted(one for one in role.rglob("*") if one.is_file() and not LEFT_OUT.intersection(one.parts))


def _read_yaml(page: Path) -> Any:
    import yaml

    try:
        # Both are safe loaders; the one in C is 8 times as fast and not in every build of PyYAML.
        return yaml.load(page.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (OSError, yaml.YAMLError) as error:
        raise page_error(page.parents[1].name, str(error)) from error


def _build_sources(role: Path) -> Iterator[Path]:
    yield from sorted((role / "tasks").glob("build*.yml"))
    own = sorted((role / "vars").glob("build*.yml"))
    yield from own
    # A build with variables of its own uses none of the service's: a changed unit file compiles nothing again.
    for folder in ("files",) if own else ("files", "templates", "vars"):
        yield from sorted(one for one in (role / folder).rglob("*") if one.is_file() and "__pycache__" not in one.parts)


# The catalog of such pages, just read or compiled before; whatever is wrong in one is an error that names its role.

_ROUTE = re.compile(r"(GET|HEAD|POST|PUT|PATCH|DELETE) /\S*")
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "path": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (int, float),
}


def catalog_from(compiled: Mapping[str, Any], *, checked: bool = False) -> Catalog:
    """The catalog of compiled pages; raise ``ProvisionError`` that names the role whose page is wrong.

    ``checked``: their limits were held against their options already, when they were compiled.
    """
    services: dict[str, ServiceType] = {}
    artifact_roles: dict[str, ArtifactType] = {}
    for role, pages in compiled["roles"].items():
        try:
            artifact, options = _artifact(pages), _role_options(role, pages, checked=checked)
            if "stage" in pages["service"]:
                services[role] = _service(role, pages, artifact, options)
            elif artifact:
                artifact_roles[role] = artifact
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise page_error(role, f"{type(error).__name__}: {error}") from error
    order = sorted(services.values(), key=lambda one: (STAGES.index(one.stage), one.role))
    base = _upkeep(compiled["base"]) if "base" in compiled else None
    sockets = _sockets(compiled.get("base_opens") or {})
    return Catalog({one.role: one for one in order}, dict(sorted(artifact_roles.items())), base, sockets)


def _artifact(pages: Mapping[str, Any]) -> ArtifactType | None:
    page = pages["service"].get("artifact")
    if page is None:
        return None
    digests = pages.get("included_digests", {})
    includes = {
        option: {value: digests[role] for value, role in roles.items()}
        for option, roles in page.get("includes", {}).items()
    }
    log = page.get("log") or ""
    if log and not str(log).startswith("/"):
        raise ValueError(f"artifact: log {log!r} is no absolute path")
    options = tuple(page.get("options", ()))
    return ArtifactType(
        name=page["name"],
        path=page["path"],
        options=options,
        source_digest=pages["source_digest"],
        includes=includes,
        log=log,
        gives=page.get("gives") or {},
        later=tuple(page.get("later", ())),
        minutes=page.get("minutes", 0),
    )


def _role_options(role: str, pages: Mapping[str, Any], *, checked: bool) -> dict[str, Option]:
    page = pages["service"]
    options, references = _options(pages["options"], f"{role}_"), page.get("references") or {}
    return limited_options(options, page.get("limits") or {}, references, checked=checked)


def _service(
    role: str, pages: Mapping[str, Any], artifact: ArtifactType | None, options: Mapping[str, Option]
) -> ServiceType:
    page = pages["service"]
    references = {name: _reference(one) for name, one in (page.get("references") or {}).items()}
    filled = {name for one in references.values() for name in (one.routes_to, one.key_to) if name}
    service = ServiceType(
        role=role,
        title=page["title"],
        stage=page["stage"],
        unit=page["unit"],
        port=page.get("port"),
        health=page["health"],
        protocol=page.get("protocol"),
        options=options,
        references=references,
        internal=frozenset(page.get("internal", ())) | filled,
        artifact=artifact,
        defaults=_defaults(page.get("defaults") or {}),
        secrets={name: SecretForm(**one) for name, one in (page.get("secrets") or {}).items()},
        key_option=page.get("key_option"),
        stampable=page["stampable"] is True,
        unstampable_reason="" if page["stampable"] is True else str(page["stampable"]),
        upkeep=_upkeep(pages["upkeep"]),
        requirements=tuple(page.get("requirements", ())),
        pictures=page.get("pictures", ""),
        implied=page.get("implied", False),
        behind=page.get("behind", ""),
        closed_by=page.get("closed_by", ""),
        also_listens=tuple(page.get("also_listens", ())),
        after_change=page.get("after_change") or {},
        identity=tuple(page.get("identity", ())),
        opens=_opens(pages.get("opens") or {}),
        own_arguments=tuple(page.get("own_arguments", ())),
        closed_variables=tuple(page.get("closed_variables", ())),
        health_option=page.get("health_option", ""),
    )
    _check_names(service)
    return service


def _check_names(service: ServiceType) -> None:
    if service.stage not in STAGES:
        raise ValueError(f"stage {service.stage!r} is none of {', '.join(STAGES)}")
    artifact_options = (*service.artifact.options, *service.artifact.gives) if service.artifact else ()
    named = tuple(option for option in (service.key_option, service.health_option) if option)
    words = (
        ("instead_of", "folder_to", "packages_to", "routes_to", "key_to", "model_to", "signed_by"),
        service.references.values(),
    )
    other = tuple(name for one in words[1] for word in words[0] if (name := getattr(one, word)))
    known = (*service.references, *service.internal, *service.secrets, *service.also_listens, *service.after_change)
    for name in (*known, *other, *artifact_options, *named):
        if name not in service.options:
            raise ValueError(f"service.yml names {name!r}, which is no option of argument_specs.yml")
    for option, reference in service.references.items():
        if reference.key_to:
            _check_key_to(service, option, reference)
        if reference.answers or reference.model_to:
            _check_answers(option, reference)


def _check_key_to(service: ServiceType, option: str, reference: Reference) -> None:
    key = service.options[str(reference.key_to)]
    if reference.kind != "service":
        raise ValueError(f"references: {option} has key_to, and names no service that could have a key")
    if not key.secret:
        raise ValueError(f"references: {key.name} gets the key of the service that {option} names: it needs no_log")
    if key.name in service.secrets or key.name == service.key_option:
        raise ValueError(f"references: {key.name} gets the key of another service, and is no key of this one")


def _opens(page: Mapping[str, Any]) -> Opens:
    """What a role's page says that it opens."""
    unknown = page.keys() - {"listens", "open", "passes", "document", "asks", "tells", "front"}
    if unknown:
        raise ValueError(f"opens.yml: there is no {', '.join(sorted(unknown))}")
    routes: Mapping[str, str] = page.get("open", {})
    asks: tuple[str, ...] = tuple(page.get("asks", ()))
    passes: tuple[str | Mapping[str, Any], ...] = tuple(page.get("passes", ()))
    for thing in (*routes, *asks, *passes):
        route = thing if isinstance(thing, str) else str(thing["name"])
        if not _ROUTE.fullmatch(route):
            raise ValueError(f"opens.yml: {route!r} is no METHOD and path")
    return Opens(
        sockets=_sockets(page),
        routes=routes,
        passes=passes,
        document=page.get("document", ""),
        asks=asks,
        tells=tuple((one["path"], tuple(one["at"].split(".")), one["is"]) for one in page.get("tells", ())),
        front=page.get("front", False),
        is_told=bool(page),
    )


def _sockets(page: Mapping[str, Any]) -> tuple[Socket, ...]:
    """``at`` is loopback or network; a line without a port stands for any."""
    found = []
    for one in page.get("listens", ()):
        if one["at"] not in ("loopback", "network"):
            raise ValueError(f"opens.yml: at {one['at']!r} is neither loopback nor network")
        socket = Socket(
            unit=one["unit"],
            reach=one["at"],
            port=one.get("port"),
            why=one["why"],
            protocol=one.get("protocol", "tcp"),
        )
        found.append(socket)
    return tuple(found)


def _check_answers(option: str, reference: Reference) -> None:
    if reference.kind != "service" or not (reference.answers and reference.model_to):
        raise ValueError(f"references: {option} needs answers and model_to, both or neither, and kind service for them")
    if reference.answers not in ANSWERS:
        raise ValueError(f"references: {option} answers {reference.answers!r}, which is none of {', '.join(ANSWERS)}")


def _upkeep(pages: Mapping[str, Any]) -> Upkeep:
    kinds = {field.name: tuple(pages["managed"].get(field.name) or ()) for field in fields(Managed)}
    return Upkeep(pages["digest"], kinds)


def _reference(page: Mapping[str, Any]) -> Reference:
    if page["kind"] not in KINDS:
        raise ValueError(f"reference of unknown kind {page['kind']!r}")
    if (page["kind"] in ("file", "files")) != (page.get("holds") in get_args(Content)):
        raise ValueError(f"a reference to a file, and no other one, says what it holds: {', '.join(get_args(Content))}")
    words = (
        *("name_to", "instead_of", "folder_to", "packages_to", "routes_to"),
        *("key_to", "answers", "model_to", "signed_by", "holds"),
    )
    said: dict[str, Any] = {word: page.get(word) for word in words}
    said |= {word: tuple(page.get(word, ())) for word in ("formats", "serves_with")}
    return Reference(page["kind"], **said)


def _defaults(page: Mapping[str, Any]) -> Defaults:
    try:
        sizes = {name: parse_size(page[name]) for name in ("memory", "disk") if name in page}
    except SizeError as error:
        raise ValueError(f"defaults: {error}: {error.hint}") from error
    return Defaults(**{**page, **sizes})


def _options(specs: Mapping[str, Any], prefix: str = "") -> dict[str, Option]:
    options = {}
    for name, spec in specs.items():
        if not name.startswith(prefix):
            raise ValueError(f"option {name} does not begin with {prefix}")
        options[name.removeprefix(prefix)] = _option(name.removeprefix(prefix), spec)
    return options


def _option(name: str, spec: Mapping[str, Any]) -> Option:
    kind, choices = spec.get("type", "str"), tuple(spec.get("choices") or ())
    if kind not in TYPES:
        raise ValueError(f"option {name} has type {kind!r}, which is none of {', '.join(TYPES)}")
    _check_choices(name, spec.get("elements", "str") if kind == "list" else kind, choices)
    description = spec.get("description", "")
    return Option(
        name=name,
        type=kind,
        description=description if isinstance(description, str) else "\n".join(description),
        required=spec.get("required", False),
        default=spec.get("default"),
        choices=choices,
        elements=spec.get("elements"),
        secret=spec.get("no_log", False),
        options=_options(spec.get("options") or {}),
    )


def _check_choices(name: str, kind: str, choices: tuple[Any, ...]) -> None:
    # YAML 1.1 reads an unquoted `on` as a boolean: no file of ours (YAML 1.2) could ever say that choice.
    allowed = _PYTHON_TYPES.get(kind, (object,))
    if any(not isinstance(one, allowed) or (isinstance(one, bool) and kind != "bool") for one in choices):
        raise ValueError(f"option {name} has a choice that is no {kind}: put it in quotes")
