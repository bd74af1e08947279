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


OF_WHAT_STANDS_BEFORE = {"paths": "reloaded", "units": "helpers", "packages": "packages"}
"""What a service manages of it, by the fields of ``Managed``; what it reads is no reason to start the service anew."""


def read_upkeep(role: Path, plugins: str) -> dict[str, Any]:
    """``digest`` of the role's files and of the modules that all roles use (``plugins``), and ``managed``."""
    page = role / "meta" / "managed.yml"
    digest = hashlib.sha256(f"{plugins} {digest_of(_files(role), role)}".encode()).hexdigest()
    return {"digest": digest, "managed": _read_yaml(page) if page.is_file() else {}}


def _read_whole_upkeep(role: Path, service: Mapping[str, Any], plugins: str) -> dict[str, Any]:
    """The upkeep of a service's role, and with it that of the role that stands before the service."""
    own = read_upkeep(role, plugins)
    if "behind" not in service:
        return own
    folder = role.parent / service["behind"]
    if not folder.is_dir():
        raise page_error(role.name, f"service.yml says it is behind role {folder.name}, and there is none")
    before = read_upkeep(folder, plugins)
    managed = {kind: list(things) for kind, things in own["managed"].items()}
    word, name = f"{{{{ {folder.name}_name }}}}", service["unit"].removesuffix(".service")
    options = {f"{folder.name}_{option}": f"{role.name}_{option}" for option in passed_on(folder, service["stage"])}
    # A service without a page has nothing before it.
    absent = {f"{role.name}_{service['health_option']}": ""} if "health_option" in service else {}
    for kind, kept in OF_WHAT_STANDS_BEFORE.items():
        things = before["managed"][kind]
        if kind == "units":  # those of its packages are nobody's
            things = [thing for thing in things if word in _name_of(thing)]
        named = [_named_for(thing, word, name, options, absent) for thing in things]
        managed[kept] = [*managed.get(kept, []), *(thing for thing in named if thing is not None)]
    return {"digest": hashlib.sha256(f"{own['digest']} {before['digest']}".encode()).hexdigest(), "managed": managed}


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
    if "behind" in service:
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


def internal_passed_on(role: Path, service: Mapping[str, Any]) -> list[str]:
    """Those of the options passed on to a service that no file writes."""
    before = role.parent / service["behind"]
    if not before.is_dir():
        return []
    internal = _read_yaml(before / "meta" / "service.yml").get("internal") or ()
    return [option for option in passed_on(before, service["stage"]) if option in internal]


def _limits_passed_on(role: Path, service: Mapping[str, Any], options: Collection[str]) -> dict[str, Any]:
    """The limits of those that the service has; one that was not yet written into its page is for ``make generate``."""
    before = role.parent / service["behind"]
    if not before.is_dir():
        return {}
    limits = _read_yaml(before / "meta" / "service.yml").get("limits") or {}
    given = {}
    for option in passed_on(before, service["stage"]):
        if option in limits and f"{role.name}_{option}" in options:
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
