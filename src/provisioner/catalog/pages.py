"""A role's pages as plain values, and the digest of what its artifact is built from."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from provisioner.values.errors import ProvisionError


def page_error(role: str, details: str) -> ProvisionError:
    """The error that names the role whose pages are wrong."""
    return ProvisionError(
        f"Unable to read the pages of role {role}",
        details=details,
        resolution=f"correct roles/{role}/meta/service.yml or roles/{role}/meta/argument_specs.yml",
    )


LEFT_OUT = frozenset({"README.md", "__pycache__"})
"""What a role's tasks never read."""


HELPERS = ("behind", "kept_in")
"""The keys of a service's page that name roles which help it: a switch before it, rules for what it reaches."""
OF_HELPERS = {"paths": "reloaded", "units": "helpers", "packages": "packages"}
"""Fields of ``Managed`` by those of a helping role: what that one reads is no reason to start the service anew."""


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
