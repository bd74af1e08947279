"""What ``provision init`` writes: a first file with its schema, and the secrets that a file still lacks."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from provisioner.catalog import Catalog, SecretForm
from provisioner.labfile.hosts import SHARE_KEY
from provisioner.labfile.loader import (
    SECRETS_FILE,
    SecretUse,
    from_file,
    missing_secrets,
    secrets_file,
    without_secret,
)
from provisioner.labfile.schema import file_schema
from provisioner.labfile.whole_files import replace_text, unwritable
from provisioner.values import paths
from provisioner.values.errors import InputError
from provisioner.values.regular_files import content_of, text_of

SCHEMA_FILE = "homelab.schema.json"
SECRET_BYTES = 24  # in hexadecimal digits: no program, shell or keyboard has trouble with those
PREFIX = "homelab-"
"""Of the names of containers in a first file: the lab's name, so that labs of one host do not clash."""
STARTER = """\
# yaml-language-server: $schema=.provision/homelab.schema.json
# A model behind a gateway, in two containers on this machine. Next:
#   provision host prepare               Incus on this machine, once (as root)
#   provision init --secrets {file}
#   provision up {file}
# Names of containers begin with the lab's: a host has each name once, whatever lab it is of.
name: homelab

hosts:
  box: {{ incus: local }}

models:
  tiny: {{ source: "builtin:tiny" }} # random weights, to prove the way; your own: {{ source: "file:PATH.gguf" }}

containers:
  homelab-llama:
    services:
      llama_cpp: {{ model: tiny, api_key: !secret llama_key }}
  homelab-gateway:
    services:
      litellm: {{ master_key: !secret litellm_key, aliases: {{ fast: [tiny] }} }}
"""
STARTER_OF_A_MODEL = """\
# yaml-language-server: $schema=.provision/homelab.schema.json
# A model on this machine, as provision suggest has it. Next:
#   provision host prepare --gpu         Incus on this machine and what its card needs, once (as root)
#   provision init --secrets {file}
#   provision lock {file}
#   provision up {file}
name: homelab

hosts:
  box: {{ incus: local }}

{block}
"""
_SECRETS_HEADER = (
    "# NAME=VALUE. A value may stand in quotes; nothing else in it is special. Keep this file to yourself.\n"
)


IGNORED = (SECRETS_FILE, ".provision/")
"""What lies beside a lab's file and belongs in no repository: secrets, and what can be made again."""


@dataclass(frozen=True, slots=True)
class WrittenSecrets:
    """Names of secrets: ``generated`` into ``file``; ``needed`` are somebody else's, which the user must put there."""

    file: Path
    generated: tuple[str, ...]
    needed: tuple[str, ...]


def write_starter(file: Path, catalog: Catalog, block: str = "") -> tuple[Path, Path]:
    """Write a first file and its schema and give both; raise ``InputError`` when the file is there already.

    ``block``: its models and containers, in the place of those of an example.
    """
    text = STARTER_OF_A_MODEL.format(file=file, block=block) if block else STARTER.format(file=file)
    is_ours = False
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            is_ours = True
            stream.write(text)
        return file, write_schema(file, catalog)
    except OSError as error:
        if is_ours:  # nothing half made stays
            file.unlink(missing_ok=True)
            raise unwritable(error.filename or file, error) from error
        if isinstance(error, FileExistsError):
            raise already_there(file) from error
        raise unwritable(error.filename or file, error) from error


def already_there(file: Path) -> InputError:
    """The refusal to write a file over another one."""
    return InputError(
        f"Unable to write {file}", details="It is there already.", resolution="Name another file, or move it away."
    )


def write_schema(file: Path, catalog: Catalog) -> Path:
    """Write the schema that an editor uses for ``file`` into ``.provision/`` beside it."""
    schema = paths.lab_folder(file) / SCHEMA_FILE
    schema.parent.mkdir(exist_ok=True)
    schema.write_text(json.dumps(file_schema(catalog), indent=2) + "\n", encoding="utf-8")
    return schema


def write_ignored(file: Path) -> tuple[Path, tuple[str, ...]]:
    """Have git leave out what belongs in no repository: return the ``.gitignore`` and the lines that it lacked.

    What it holds stays; ``InputError`` where it cannot be written.
    """
    target = file.parent / ".gitignore"
    try:
        before = content_of(target).decode(errors="replace") if target.exists() else ""
        there = {line.strip().strip("/") for line in before.splitlines()}
        lacking = tuple(line for line in IGNORED if line.strip("/") not in there)
        if lacking:
            line_end = "" if before[-1:] in ("", "\n") else "\n"
            with target.open("a", encoding="utf-8") as stream:
                stream.write("\n".join((line_end + lacking[0], *lacking[1:], "")))
    except OSError as error:
        raise unwritable(target, error) from error
    return target, lacking


def write_missing_secrets(file: Path, catalog: Catalog) -> WrittenSecrets:
    """Generate each missing secret that is this lab's own into ``secrets.env`` (0600) beside ``file``."""
    uses = missing_secrets(file, catalog)
    target = secrets_file(file)
    generated: dict[str, str] = {}
    needed: list[str] = []
    for name in dict.fromkeys(use.name for use in uses):
        prefixes = [_prefix(use, catalog) for use in uses if use.name == name]
        if None in prefixes:
            needed.append(name)
        else:
            generated[name] = max((one or "" for one in prefixes), key=len) + secrets.token_hex(SECRET_BYTES)
    if generated:
        _append(target, [f"{name}={value}\n" for name, value in generated.items()])
    return WrittenSecrets(target, tuple(generated), tuple(needed))


def keep_secret(file: Path, name: str, value: str) -> Path:
    """Write a secret's value into ``secrets.env`` (0600) beside ``file``, in the place of an older one; where it is."""
    target = secrets_file(file)
    if name in from_file([name], target):
        replace_text(target, without_secret(text_of(target).removeprefix("\ufeff"), name))
    _append(target, [f"{name}={value}\n"])
    return target


def _prefix(use: SecretUse, catalog: Catalog) -> str | None:
    """How a value for this use begins; None when it is somebody else's: a provider's key, a Proxmox token."""
    match use.path:
        case ("containers", _, "services", str(role), str(option)) if role in catalog.services:
            page = catalog.services[role]
            form = {str(page.key_option): SecretForm(), **page.secrets}.get(option)
            return form.prefix if form else None
        case ("containers", _, "services", _, "users", int(), "password"):
            return ""
        case ("hosts", _, str(key)) if key == SHARE_KEY:
            return ""
        case _:
            return None


def _append(file: Path, lines: Iterable[str]) -> None:
    try:
        before = text_of(file) if file.exists() else _SECRETS_HEADER
    except OSError as error:
        raise unwritable(file, error) from error
    replace_text(file, (before if before.endswith("\n") else f"{before}\n") + "".join(lines))
