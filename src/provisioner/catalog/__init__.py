"""The services that exist, read from the roles' own pages: a checkout's YAML, or one compiled JSON in a wheel.

A role's pages are ``meta/service.yml`` (what a service is) and ``meta/argument_specs.yml`` (its options).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from provisioner import paths
from provisioner.catalog.pages import read_pages
from provisioner.catalog.services import catalog_from
from provisioner.catalog.types import (
    STAGES,
    ArtifactType,
    Catalog,
    Defaults,
    Option,
    Reference,
    ServiceType,
)

__all__ = [
    "COMPILED",
    "STAGES",
    "ArtifactType",
    "Catalog",
    "Defaults",
    "Option",
    "Reference",
    "ServiceType",
    "catalog_from",
    "compile_catalog",
    "load_catalog",
]

COMPILED = "catalog.json"


def load_catalog(roles_dir: Path | None = None) -> Catalog:
    """The catalog of ``roles_dir``, else of this installation; read once per process."""
    return _load(roles_dir or paths.roles())


def compile_catalog(roles_dir: Path | None = None) -> dict[str, Any]:
    """The pages of all roles as one JSON value for ``data/catalog.json``; it gives the same catalog."""
    folders = sorted(page.parents[1] for page in (roles_dir or paths.roles()).glob("*/meta/service.yml"))
    return {"roles": {folder.name: read_pages(folder) for folder in folders}}


@cache
def _load(roles_dir: Path) -> Catalog:
    compiled = paths.data() / COMPILED
    # A checkout's roles are edited: its compiled copy, when there is one, is as old as the last build.
    if roles_dir == paths.PACKAGE / "share" / "roles" and compiled.is_file():
        return catalog_from(json.loads(compiled.read_bytes()))
    return catalog_from(compile_catalog(roles_dir))
