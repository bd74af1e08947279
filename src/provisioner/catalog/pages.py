"""A role's pages as plain values, and the digest of what its artifact is built from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from provisioner.errors import ProvisionError


def page_error(role: str, details: str) -> ProvisionError:
    """The error that names the role whose pages are wrong."""
    return ProvisionError(
        f"Unable to read the pages of role {role}",
        details=details,
        resolution=f"correct roles/{role}/meta/service.yml or roles/{role}/meta/argument_specs.yml",
    )


def read_pages(role: Path) -> dict[str, Any]:
    """``service``, ``options`` and, where the role makes an artifact, ``source_digest``; all fit for JSON."""
    service = _read_yaml(role / "meta" / "service.yml")
    specs = _read_yaml(role / "meta" / "argument_specs.yml")
    try:
        options = specs["argument_specs"]["main"].get("options") or {}
    except (KeyError, TypeError, AttributeError) as error:
        raise page_error(role.name, "argument_specs.yml has no entry point main") from error
    pages = {"service": service, "options": options}
    if "artifact" in service:
        if not (role / "tasks" / "build.yml").is_file():
            raise page_error(role.name, "service.yml names an artifact, and there is no tasks/build.yml that makes it")
        pages["source_digest"] = _source_digest(role)
    return pages


def _read_yaml(page: Path) -> Any:
    import yaml

    try:
        # Both are safe loaders; the one in C is 8 times as fast and not in every build of PyYAML.
        return yaml.load(page.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (OSError, yaml.YAMLError) as error:
        raise page_error(page.parents[1].name, str(error)) from error


def _source_digest(role: Path) -> str:
    digest = hashlib.sha256()
    for file in _build_sources(role):
        digest.update(f"{file.relative_to(role).as_posix()}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _build_sources(role: Path) -> Iterator[Path]:
    yield from sorted((role / "tasks").glob("build*.yml"))
    own = sorted((role / "vars").glob("build*.yml"))
    yield from own
    # A build with variables of its own uses none of the service's: a changed unit file compiles nothing again.
    for folder in ("files",) if own else ("files", "templates", "vars"):
        yield from sorted(one for one in (role / folder).rglob("*") if one.is_file() and "__pycache__" not in one.parts)
