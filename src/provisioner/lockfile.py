"""``homelab.lock`` beside ``homelab.yml``: what the file leaves open, as it was found. Durable: belongs to the file."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from provisioner.errors import InputError, ProvisionError, with_hint
from provisioner.plain_data import yaml_value
from provisioner.regular_files import text_of
from provisioner.spec.folders import FolderError, is_method, selected
from provisioner.spec.sources import ModelPart, is_folder, is_inside, is_plain_filename, part_count, part_names

VERSION = 1
MAX_BYTES = 2_000_000
"""A stack of 200 wheels takes 80,000."""
SUFFIX = ".lock"
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
    try:
        entries = _read(lock).get("stacks") or ()
        return {(_text(one["stack"]), _text(one["distribution"])): _stack(one) for one in entries}
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise _unusable(lock, str(error)) from error


def write_stacks(lock: Path, stacks: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
    """Have exactly these stacks in the lock file; whatever else it holds stays."""
    entries = [{"stack": name, "distribution": place, **stacks[name, place]} for name, place in sorted(stacks)]
    _write(lock, {**_read(lock), "version": VERSION, "stacks": entries})


def _stack(entry: Mapping[str, Any]) -> dict[str, Any]:
    packages = entry["packages"]
    for one in packages:
        if set(one) != _PACKAGE or not all(isinstance(text, str) for text in one.values()):
            raise ValueError(f"A package of a stack there has {', '.join(sorted(_PACKAGE))}, each a text, and no more.")
        if not _SHA256.fullmatch(one["sha256"]):
            raise ValueError(f"{one['sha256'][:_SHOWN]} is no sha256.")
    return {"wants": _text(entry["wants"]), "packages": packages}


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
    found = content.get("version") if isinstance(content, dict) else None
    if type(found) is not int or found != VERSION:
        said = found if isinstance(found, int | None) else "no number"
        raise _unusable(lock, f"Its version is {said}; this provision writes and reads version {VERSION}.")
    return dict(content)


def _entry(pin: Pin) -> dict[str, Any]:
    unsaid = {name for name in (_REST, _METHOD) if not getattr(pin, name)}
    return {name: value for name, value in asdict(pin).items() if name not in unsaid}


def _pin(entry: Any) -> Pin:
    _check_names(entry, {field.name for field in fields(Pin)} - {_REST, _METHOD}, "A model")
    for one in entry.get(_REST, []):
        _check_names(one, {field.name for field in fields(ModelPart)}, "A further file of a model")
    pin = Pin(**{**entry, _REST: tuple(ModelPart(**one) for one in entry.get(_REST, []))})
    if not all(isinstance(text, str) for text in (pin.source, pin.revision, pin.method)):
        raise ValueError("A source, a commit or a method there is no text.")
    if not _COMMIT.fullmatch(pin.revision):
        raise ValueError(f"{pin.revision[:_SHOWN]} is no commit.")
    for one in pin.files:
        _check_file(one)
    _check_whole(pin)
    return pin


def _check_names(entry: Any, names: set[str], what: str) -> None:
    if not isinstance(entry, dict) or entry.keys() - {_REST, _METHOD} != names:
        raise ValueError(f"{what} there has {', '.join(sorted(names))}, and nothing else.")


def _check_file(one: ModelPart) -> None:
    if not isinstance(one.file, str) or not isinstance(one.sha256, str) or type(one.size) is not int or one.size < 0:
        raise ValueError("Something there is no text, or a size no number.")
    if not is_inside(one.file):
        raise ValueError(f"{one.file[:_SHOWN]} is no model's file.")
    if not _SHA256.fullmatch(one.sha256):
        raise ValueError(f"{one.sha256[:_SHOWN]} is no sha256.")


def _check_whole(pin: Pin) -> None:
    names = [one.file for one in pin.files]
    if not is_folder(pin.source):
        wrong = next((one.file for one in pin.files if not is_plain_filename(one.filename)), None)
        if wrong is not None or pin.method:
            raise ValueError(f"{wrong or pin.method} is no model's file.")
        if names != part_names(pin.file):
            raise ValueError(f"{pin.file} is in {part_count(pin.file)} files, and others are there.")
        return
    try:
        whole = selected(names)
    except FolderError as error:
        raise ValueError(f"{pin.source}: {with_hint(error.message, error.hint)}") from error
    if names != whole or len(set(names)) != len(names) or not is_method(pin.method):
        raise ValueError(f"{pin.source} has files that no model has, or no method.")


def _unusable(lock: Path, why: str) -> InputError:
    resolution = "Restore it from version control, or remove it: the next up asks the hub again and writes it anew."
    return InputError(f"Unable to use {lock}", details=why, resolution=resolution)
