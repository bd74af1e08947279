"""The services that exist, read from the roles' own pages: a checkout's YAML, or one compiled JSON in a wheel.

A role's pages are ``meta/service.yml`` (what a service is) and ``meta/argument_specs.yml`` (its options).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from provisioner.catalog.option_limits import beyond_limit
from provisioner.catalog.pages import digest_of, internal_passed_on, passed_on, read_opens, read_pages, read_upkeep
from provisioner.catalog.services import catalog_from
from provisioner.catalog.types import (
    STAGES,
    ArtifactType,
    Catalog,
    Defaults,
    Limit,
    Opens,
    Option,
    Reference,
    SecretForm,
    ServiceType,
    Socket,
    Upkeep,
)
from provisioner.values import paths

__all__ = [
    "BASE",
    "COMPILED",
    "STAGES",
    "ArtifactType",
    "Catalog",
    "Defaults",
    "Limit",
    "Opens",
    "Option",
    "Reference",
    "SecretForm",
    "ServiceType",
    "Socket",
    "Upkeep",
    "beyond_limit",
    "catalog_from",
    "compile_catalog",
    "internal_passed_on",
    "load_catalog",
    "passed_on",
]

COMPILED = "catalog.json"
BASE = "base"


def load_catalog(roles_dir: Path | None = None) -> Catalog:
    """The catalog of ``roles_dir``, else of this installation; read once per process."""
    return _load(roles_dir or paths.roles())


def compile_catalog(roles_dir: Path | None = None) -> dict[str, Any]:
    """The pages of all roles as one JSON value for ``data/catalog.json``; it gives the same catalog."""
    roles = roles_dir or paths.roles()
    folders = sorted(page.parents[1] for page in roles.glob("*/meta/service.yml"))
    plugins = digest_of(sorted((paths.plugins() / "modules").glob("*.py")), paths.plugins())
    pages = {folder.name: read_pages(folder, plugins) for folder in folders}
    compiled: dict[str, Any] = {"roles": {role: page for role, page in pages.items() if page is not None}}
    base = roles / BASE
    if base.is_dir():
        compiled |= {"base": read_upkeep(base, plugins), "base_opens": read_opens(base)}
    return compiled


@cache
def _load(roles_dir: Path) -> Catalog:
    compiled = paths.data() / COMPILED
    # A checkout's roles are edited: its compiled copy, when there is one, is as old as the last build.
    if roles_dir == paths.PACKAGE / "share" / "roles" and compiled.is_file():
        return catalog_from(json.loads(compiled.read_bytes()))
    return catalog_from(compile_catalog(roles_dir))
