"""The services that exist, read from the roles' own pages: one compiled JSON in a wheel, in a checkout YAML.

A checkout's pages are compiled once, too, and kept until a file of its roles changes. A role's pages are
``meta/service.yml`` (what a service is) and ``meta/argument_specs.yml`` (its options).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

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
from provisioner.values.regular_files import open_file

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

SETTLED_NS = 2_000_000_000
"""Files that were changed so lately may change once more and bear the same times: nothing is kept of them."""
MOST_BYTES = 16_000_000
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
        key = _key_of((roles_dir, paths.plugins() / "modules", Path(__file__).parent))
    except OSError:
        key = ""
    kept = _read_kept(file, key)
    if kept is not None:
        with suppress(ProvisionError, KeyError, TypeError, AttributeError, ValueError):
            return catalog_from(kept, checked=True)
    compiled = compile_catalog(roles_dir)
    catalog = catalog_from(compiled)
    keep(file, key, compiled)
    return catalog


def _key_of(folders: Sequence[Path]) -> str:
    """A digest of the names, sizes and times of all files in the folders; empty where some of them changed just now.

    Raises ``OSError`` where a file is gone before it could be looked at.
    """
    digest = hashlib.sha256()
    newest = 0
    for top in folders:
        for folder, inner, names in os.walk(top):
            inner[:] = sorted(name for name in inner if name != "__pycache__")
            for name in sorted(names):
                path = os.path.join(folder, name)  # noqa: PTH118  # pathlib takes four times as long as the look
                found = os.stat(path)  # noqa: PTH116  # ditto
                newest = max(newest, found.st_ctime_ns)
                digest.update(f"{path}\0{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}\0".encode())
    return digest.hexdigest() if newest < time.time_ns() - SETTLED_NS else ""


def _read_kept(file: Path, key: str) -> Mapping[str, Any] | None:
    """Return the catalog stored under that key; None where there is none, or none that can be believed.

    Believed is a whole file that only those can write who own the checkout, and so could write its roles.
    """
    try:
        with open_file(file) as stream:
            found = os.fstat(stream.fileno())
            content = stream.read(MOST_BYTES)
        if found.st_uid != _owner(file) or stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
            return None
        head, _, body = content.partition(b"\n")
        if not key or head != _head(key, body):
            return None
        compiled = json.loads(body)
    except (OSError, ValueError, RecursionError):
        return None
    return compiled if isinstance(compiled, dict) else None


def keep(file: Path, key: str, compiled: Mapping[str, Any]) -> None:
    """Keep it for the next command; where nothing can be written, each command compiles for itself.

    Only for the owner of the checkout: what root writes into somebody's folder, its owner cannot remove.
    """
    if not key or os.geteuid() != _owner(file):
        return
    import tempfile  # nothing that reading needs

    body = json.dumps(compiled).encode()
    with suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        descriptor, written = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}-")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(_head(key, body) + b"\n" + body)
            Path(written).replace(file)
        except OSError:
            Path(written).unlink()


def _owner(file: Path) -> int:
    """Return the user id of the owner of the checkout that has the file in its ``.cache/``."""
    return file.parents[1].stat().st_uid


def _head(key: str, body: bytes) -> bytes:
    return f"{key} {hashlib.sha256(body).hexdigest()}".encode()
