"""``homelab.lock`` beside ``homelab.yml``: what the file leaves open, as it was found. Durable: belongs to the file."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from provisioner.models.folders import FolderError, is_method, selected
from provisioner.models.sources import ModelPart, is_folder, is_inside, is_plain_filename, part_count, part_names
from provisioner.values.errors import InputError, ProvisionError, with_hint
from provisioner.values.plain_data import yaml_value
from provisioner.values.regular_files import text_of

VERSION = 1
MAX_BYTES = 2_000_000
"""A stack of 200 wheels takes 80,000."""
HEAD = """\
# Written by "provision up" and "provision lock": what the lab's file leaves open, as it was found. Keep them together.
# To take what a repository of models holds now, remove the model's lines: the next "provision up" asks again.
"""
_REST, _METHOD = "rest", "method"
_SHOWN = 100
_PACKAGE = {"name", "version", "url", "sha256"}
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Pin:
    """Which file an ``hf:`` source was found to be: of that ``source`` as it was written, of that commit.

    ``rest``: the others of a model of several files, in their order. A folder begins with its config.json, and
    ``method`` is the quantisation that this names; empty for a GGUF.
    """

    source: str
    revision: str
    file: str
    sha256: str
    size: int
    rest: tuple[ModelPart, ...] = ()
    method: str = ""

    @property
    def files(self) -> tuple[ModelPart, ...]:
        """All of its files, in their order."""
        return ModelPart(self.file, self.sha256, self.size), *self.rest


_PIN_FIELDS = {field.name for field in fields(Pin)} - {_REST, _METHOD}
_PART_FIELDS = {field.name for field in fields(ModelPart)}


def read_pins(lock: Path) -> dict[str, Pin]:
    """The models' pins by name, none without a lock file; raises ``InputError`` for one that is not as it should be."""
    try:
        models = _read(lock).get("models") or {}
        return {str(name): _pin(entry) for name, entry in models.items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise _unusable(lock, str(error)) from error


def write_pins(lock: Path, pins: Mapping[str, Pin]) -> None:
    """Write exactly these pins of models into the lock file; whatever else it holds stays."""
    content = {**_read(lock), "version": VERSION}
    content["models"] = {name: _entry(pins[name]) for name in sorted(pins)}
    _write(lock, content)


def _write(lock: Path, content: Mapping[str, Any]) -> None:
    import yaml

    try:
        text = HEAD + yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=1000)
        handle, partial = tempfile.mkstemp(dir=lock.parent, prefix=f".{lock.name}-")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(partial).chmod(0o644)
        Path(partial).replace(lock)
    except (OSError, RecursionError) as error:
        raise ProvisionError(f"Unable to write {lock}", details=str(error)) from error


def read_stacks(lock: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The stacks of wheels by name and distribution: ``wants`` and ``packages``, each a mapping of four texts.

    None without a lock file; raises ``InputError`` for one that is not as it should be.
    """
    stacks = {}
    try:
        for entry in _read(lock).get("stacks") or ():
            key = (_text(entry["stack"]), _text(entry["distribution"]))
            stacks[key] = _stack(entry)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise _unusable(lock, str(error)) from error
    return stacks


def write_stacks(lock: Path, stacks: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
    """Write exactly these stacks into the lock file; whatever else it holds stays."""
    entries = [{"stack": name, "distribution": place, **stacks[name, place]} for name, place in sorted(stacks)]
    _write(lock, {**_read(lock), "version": VERSION, "stacks": entries})


def _stack(entry: Mapping[str, Any]) -> dict[str, Any]:
    packages = entry["packages"]
    for package in packages:
        _check_package(package)
    return {"wants": _text(entry["wants"]), "packages": packages}


def _check_package(package: Any) -> None:
    if set(package) != _PACKAGE or not _are_texts(package.values()):
        raise ValueError(f"A package of a stack there has {', '.join(sorted(_PACKAGE))}, each a text, and no more.")
    _check_sha256(package["sha256"])


def _check_sha256(text: str) -> None:
    if not _SHA256.fullmatch(text):
        raise ValueError(f"{text[:_SHOWN]} is no sha256.")


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("What a stack there is called, is for or wants is no text.")  # noqa: TRY004  # of the file
    return value


def _read(lock: Path) -> dict[str, Any]:
    try:
        content = yaml_value(text_of(lock, MAX_BYTES))
    except FileNotFoundError:
        return {"version": VERSION}
    except (OSError, ValueError) as error:
        raise _unusable(lock, str(error)) from error
    version = content.get("version") if isinstance(content, dict) else None
    if type(version) is not int or version != VERSION:
        named = version if isinstance(version, int | None) else "no number"
        raise _unusable(lock, f"Its version is {named}; this provision writes and reads version {VERSION}.")
    return dict(content)


def _entry(pin: Pin) -> dict[str, Any]:
    """The pin as it is written: without further files or a method where it has none."""
    entry = asdict(pin)
    for name in (_REST, _METHOD):
        if not entry[name]:
            del entry[name]
    return entry


def _pin(entry: Any) -> Pin:
    """The pin that an entry means; ``ValueError`` for one that no run of this program wrote."""
    _check_names(entry, _PIN_FIELDS, "A model")
    parts = []
    for part in entry.get(_REST, []):
        _check_names(part, _PART_FIELDS, "A further file of a model")
        parts.append(ModelPart(**part))
    pin = Pin(**{**entry, _REST: tuple(parts)})
    if not _are_texts((pin.source, pin.revision, pin.method)):
        raise ValueError("A source, a commit or a method there is no text.")
    if not _COMMIT.fullmatch(pin.revision):
        raise ValueError(f"{pin.revision[:_SHOWN]} is no commit.")
    for part in pin.files:
        _check_file(part)
    if is_folder(pin.source):
        _check_folder(pin)
    else:
        _check_parts(pin)
    return pin


def _check_names(entry: Any, names: set[str], subject: str) -> None:
    if not isinstance(entry, dict) or entry.keys() - {_REST, _METHOD} != names:
        raise ValueError(f"{subject} there has {', '.join(sorted(names))}, and nothing else.")


def _check_file(part: ModelPart) -> None:
    is_size = type(part.size) is int and part.size >= 0
    if not is_size or not _are_texts((part.file, part.sha256)):
        raise ValueError("Something there is no text, or a size no number.")
    if not is_inside(part.file):
        raise ValueError(f"{part.file[:_SHOWN]} is no model's file.")
    _check_sha256(part.sha256)


def _check_parts(pin: Pin) -> None:
    """That a GGUF file stands there alone, or with all of its parts in their order."""
    for part in pin.files:
        if not is_plain_filename(part.filename):
            raise ValueError(f"{part.file} is no model's file.")
    if pin.method:
        raise ValueError(f"{pin.method} is no model's file.")
    if [part.file for part in pin.files] != part_names(pin.file):
        raise ValueError(f"{pin.file} is in {part_count(pin.file)} files, and others are there.")


def _check_folder(pin: Pin) -> None:
    """That a folder has the files of one model, each once, and a method that is known."""
    names = [part.file for part in pin.files]
    try:
        whole = selected(names)
    except FolderError as error:
        raise ValueError(f"{pin.source}: {with_hint(error.message, error.hint)}") from error
    is_repeated = len(set(names)) != len(names)
    if names != whole or is_repeated or not is_method(pin.method):
        raise ValueError(f"{pin.source} has files that no model has, or no method.")


def _unusable(lock: Path, why: str) -> InputError:
    resolution = "Restore it from version control, or remove it: the next up asks the hub again and writes it anew."
    return InputError(f"Unable to use {lock}", details=why, resolution=resolution)
