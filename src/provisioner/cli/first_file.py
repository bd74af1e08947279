"""What ``init`` writes: a first file, and the secrets that a lab's own services need."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from provisioner import paths
from provisioner.catalog import Catalog
from provisioner.errors import ProvisionError
from provisioner.loader import SecretUse, environment_name

SECRET_BYTES = 24
_SERVICE_PATH = 5
"""containers, NAME, services, ROLE, OPTION: how deep the option of a service lies."""


def first_file(file: Path) -> str:
    """The text of a small working lab, named like its file."""
    name = re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-")
    text = (paths.data() / "homelab.yml").read_text(encoding="utf-8")
    return text.replace("name: homelab", f"name: {name}", 1) if name and not name[0].isdigit() else text


def generated_secrets(uses: Iterable[SecretUse], catalog: Catalog) -> dict[str, str]:
    """A new random value for each secret that a service of the lab itself defines, by the secret's name."""
    prefixes: dict[str, str] = {}
    for use in uses:
        prefix = _prefix(use, catalog)
        if prefix is not None:
            prefixes[use.name] = prefixes.get(use.name) or prefix
    return {name: prefix + secrets.token_hex(SECRET_BYTES) for name, prefix in prefixes.items()}


def add_secrets(file: Path, values: Mapping[str, str]) -> None:
    """Append the values to ``file`` (mode 0600), atomically, keeping what is there."""
    target = file.resolve()
    lines = "".join(f"{environment_name(name)}={value}\n" for name, value in sorted(values.items()))
    try:
        before = target.read_text(encoding="utf-8") if target.exists() else ""
        descriptor, partial = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)  # mkstemp gives 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(before + ("\n" if before and not before.endswith("\n") else "") + lines)
        Path(partial).replace(target)
    except OSError as error:
        raise unable_to_write(file, error) from error


def write_new(file: Path, text: str) -> bool:
    """Write ``file`` unless there is one; whether it was written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        return False
    except OSError as error:
        raise unable_to_write(file, error) from error
    return True


def write_again(file: Path, text: str) -> None:
    """Write ``file``, whatever was there."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unable_to_write(file, error) from error


def unable_to_write(file: Path, error: OSError) -> ProvisionError:
    """The error of a file that cannot be written."""
    return ProvisionError(f"Unable to write {file}", details=error.strerror or str(error))


def _prefix(use: SecretUse, catalog: Catalog) -> str | None:
    if len(use.path) != _SERVICE_PATH or use.path[0] != "containers":
        return None
    _, _, _, role, option = use.path
    return catalog.services[str(role)].secret_prefixes.get(str(option))
