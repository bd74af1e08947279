"""The services that exist, read from the roles' own pages: one compiled JSON in a wheel, in a checkout YAML.

A checkout's pages are compiled once, too, and kept until a file of its roles changes. A role's pages are
``meta/service.yml`` (what a service is) and ``meta/argument_specs.yml`` (its options).
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from provisioner.catalog.kept import keep, key_of, read_kept
from provisioner.catalog.pages import (
    catalog_from,
    digest_of,
    helpers_of,
    internal_passed_on,
    passed_on,
    read_opens,
    read_pages,
    read_upkeep,
)
from provisioner.catalog.types import (
    STAGES,
    ArtifactType,
    Catalog,
    Content,
    Defaults,
    Limit,
    Opens,
    Option,
    Reference,
    SecretForm,
    ServiceType,
    Socket,
    Upkeep,
    beyond_limit,
)
from provisioner.values import paths
from provisioner.values.errors import ProvisionError

__all__ = [
    "BASE",
    "COMPILED",
    "STAGES",
    "ArtifactType",
    "Catalog",
    "Content",
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
    "helpers_of",
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
        return catalog_from(json.loads(compiled.read_bytes()), checked=True)
    if roles_dir == paths.roles():
        return _of_checkout(roles_dir)
    return catalog_from(compile_catalog(roles_dir))


def _of_checkout(roles_dir: Path) -> Catalog:
    """The catalog that was kept of these roles as they are now, else the one of their pages, which is kept."""
    file = paths.share() / ".cache" / COMPILED
    try:
        # What compiles stands in these folders, too: other code may read the same pages otherwise.
        key = key_of((roles_dir, paths.plugins() / "modules", Path(__file__).parent))
    except OSError:
        key = ""
    kept = read_kept(file, key)
    if kept is not None:
        with suppress(ProvisionError, KeyError, TypeError, AttributeError, ValueError):
            return catalog_from(kept, checked=True)
    compiled = compile_catalog(roles_dir)
    catalog = catalog_from(compiled)
    keep(file, key, compiled)
    return catalog
