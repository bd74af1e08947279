"""``homelab.lock`` beside ``homelab.yml``: what the file leaves open, as it was found. Durable: belongs to the file."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from provisioner.errors import InputError, ProvisionError
from provisioner.spec.sources import is_plain_filename

VERSION = 1
SUFFIX = ".lock"
HEAD = """\
# Written by "provision up": what the lab's file leaves open, as it was found. It belongs to the file.
# To take what a repository of models holds now, remove the model's lines: the next "provision up" asks again.
"""
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Pin:
    """Which file an ``hf:`` source was found to be: of that ``source`` as it was written, of that commit."""

    source: str
    revision: str
    file: str
    sha256: str
    size: int


def lock_file(file: Path) -> Path:
    """The lock file of a lab's file: ``homelab.lock`` of ``homelab.yml``."""
    return file.with_suffix(SUFFIX)


def read_pins(lock: Path) -> dict[str, Pin]:
    """The models' pins by name, none without a lock file; raises ``InputError`` for one that is not as it should be."""
    try:
        return {str(name): _pin(entry) for name, entry in (_read(lock).get("models") or {}).items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise _unusable(lock, str(error)) from error


def write_pins(lock: Path, pins: Mapping[str, Pin]) -> None:
    """Have exactly these pins of models in the lock file; whatever else it holds stays."""
    import yaml

    content = {**_read(lock), "version": VERSION}
    content["models"] = {name: asdict(pins[name]) for name in sorted(pins)}
    text = HEAD + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)
    try:
        handle, partial = tempfile.mkstemp(dir=lock.parent, prefix=f".{lock.name}-")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(partial).chmod(0o644)
        Path(partial).replace(lock)
    except OSError as error:
        raise ProvisionError(f"Unable to write {lock}", details=str(error)) from error


def _read(lock: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(lock.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"version": VERSION}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _unusable(lock, str(error)) from error
    if not isinstance(content, dict) or content.get("version") != VERSION:
        found = content.get("version") if isinstance(content, dict) else None
        raise _unusable(lock, f"Its version is {found}; this provision writes and reads version {VERSION}.")
    return content


def _pin(entry: Any) -> Pin:
    names = {field.name for field in fields(Pin)}
    if not isinstance(entry, dict) or entry.keys() != names:
        raise ValueError(f"A model there has {', '.join(sorted(names))}, and nothing else.")
    pin = Pin(**entry)
    texts = (pin.source, pin.revision, pin.file, pin.sha256)
    if not all(isinstance(text, str) for text in texts) or type(pin.size) is not int:
        raise ValueError("Something there is no text, or a size no number.")
    if not _SHA256.fullmatch(pin.sha256):
        raise ValueError(f"{pin.sha256} is no sha256.")
    if not _COMMIT.fullmatch(pin.revision) or not is_plain_filename(pin.file.rpartition("/")[2]):
        raise ValueError(f"{pin.revision} is no commit, or {pin.file} no model's file.")
    return pin


def _unusable(lock: Path, why: str) -> InputError:
    resolution = "Restore it from version control, or remove it: the next up asks the hub again and writes it anew."
    return InputError(f"Unable to use {lock}", details=why, resolution=resolution)
