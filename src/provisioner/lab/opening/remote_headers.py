"""What models elsewhere say of themselves, asked for when a plan is made, kept in the cache after.

Of a GGUF file that is its head, its first megabytes; of a folder its config.json. Nothing depends on it: what cannot
be had is a note, and then nothing is held against it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from provisioner.lab import ModelFile
from provisioner.labfile.pins import Pin
from provisioner.labfile.spec import Model
from provisioner.labfile.whole_files import replace_text
from provisioner.models.folders import FolderError
from provisioner.models.header import GgufError, Header
from provisioner.models.sources import ModelPart
from provisioner.values import paths
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

ANY_SIZE = 1 << 42
"""Bytes, none of which lies on a disk: more than any model has."""


def cached_headers(models: Mapping[str, Model], pins: Mapping[str, Pin]) -> dict[str, Header]:
    """The heads of models elsewhere that were read once; nobody is asked."""
    found: dict[str, Header] = {}
    for name, model in models.items():
        pin = pins.get(name)
        pinned = pin.sha256 if pin and pin.source == model.source else None
        digest = pinned if model.source.startswith("hf:") else model.sha256
        header = _cached(_note(model, digest))[1] if digest else None
        found |= {name: header} if header else {}
    return found


def fetch_headers(models: Mapping[str, Model], files: Mapping[str, ModelFile]) -> tuple[dict[str, Header], list[str]]:
    """What the models at an address say, all asked for at once, and a note for each of which it cannot be had."""
    headers: dict[str, Header] = {}
    notes: list[str] = []
    wanted = [name for name, file in files.items() if "://" in file.path]
    if not wanted:
        return headers, notes
    with ThreadPoolExecutor(len(wanted)) as pool:
        found = list(pool.map(lambda name: _header_of(models[name], files[name]), wanted))
    for name, (header, why) in zip(wanted, found, strict=True):
        headers |= {name: header} if header else {}
        count = 1 + len(files[name].rest)
        if header and not files[name].is_folder and header.parts != count:
            notes.append(f"The file of model {name} says that it is one of {header.parts}, and {count} is known")
        notes += [f"What the file of model {name} says of itself is not known: {why}"] if why else []
    return headers, notes


def _header_of(model: Model, file: ModelFile) -> tuple[Header | None, str]:
    from provisioner.models.remote_head import NoHeadError, read_remote_config, read_remote_head

    note = _note(model, file.sha256)
    is_known, header = _cached(note)
    if is_known and (file.is_folder or header is None or head_file(model, file)):
        return header, ""
    why = ""
    token = json.loads(file.access.reveal())["token"] if file.access else None
    try:
        if file.is_folder:
            header = read_remote_config(file.path, token, file.sha256)
        else:
            parts = [ModelPart(file.path, file.sha256, file.size), *file.rest]
            # The first one last: where it is kept, all are.
            for place, part in reversed(list(enumerate(parts, 1))):
                kept = _head_of_part(note, place, len(parts))
                header = read_remote_head(part.file, token, keep=partial(_keep, kept, part.size))
    except NoHeadError as error:
        return None, str(error)
    except (GgufError, FolderError) as error:  # another time it is the same, and not asked for again
        why = str(error)
    _remember(note, header)
    return header, why


def head_file(model: Model, file: ModelFile) -> Path | None:
    """Return the file that has the head of a model elsewhere and a hole in the place of the rest; None without one."""
    head = _head_of_part(_note(model, file.sha256), 1, 1 + len(file.rest))
    return head if head.is_file() else None


def _head_of_part(note: Path, place: int, count: int) -> Path:
    """Return where the head of one of so many files is kept: llama.cpp finds the others by the first one's name."""
    return note.with_name(f"{note.stem}-{place:05}-of-{count:05}.gguf" if count > 1 else f"{note.stem}.gguf")


def _keep(kept: Path, size: int | None, head: bytes) -> None:
    """Keep a head; its file is as long as the model's, or as any, since programs look where the last tensor ends."""
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    begun = kept.with_suffix(f".{os.getpid()}")
    with begun.open("wb") as stream:
        stream.write(head)
        stream.truncate(max(size or ANY_SIZE, len(head)))
    begun.replace(kept)


def _note(model: Model, digest: str) -> Path:
    # A hub knows what its files hash to. What an address gives may be another file than the hash says, until it is
    # downloaded: its head is that of this address alone.
    place = "" if model.source.startswith("hf:") else model.source
    return paths.cache() / "heads" / f"{hashlib.sha256(f'kinds {digest} {place}'.encode()).hexdigest()}.json"


def _cached(note: Path) -> tuple[bool, Header | None]:
    """Whether it was read before, and what it said: None is a file that says nothing."""
    try:
        content: Any = json_value(text_of(note))
        return True, Header(**content) if content is not None else None
    except (OSError, ValueError, TypeError):  # not there, or of another version: it is read again
        return False, None


def _remember(note: Path, header: Header | None) -> None:
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(note, json.dumps(asdict(header) if header else None))
