"""What hubs, servers and registries say of models elsewhere, asked for when a plan is made, then cached.

Of a GGUF file that is its head, its first megabytes; of a folder its config.json. Nothing depends on it: what cannot
be had is a note, and then nothing is held against it. Of what a registry does not tell, nobody knows what it takes.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from provisioner.lab import ModelFile
from provisioner.labfile.pins import Pin
from provisioner.labfile.spec import Model
from provisioner.labfile.whole_files import replace_text
from provisioner.models.folders import FolderError
from provisioner.models.header import GgufError, Header
from provisioner.models.pulled import Pulled, Wanted
from provisioner.models.sources import ModelPart, part_names
from provisioner.values import paths
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

FRESH_S = 86_400.0
"""For how long a name is believed to mean what it meant; then its registry is asked again."""
MOST_AT_ONCE = 8
ANY_SIZE = 1 << 42
"""Bytes, none of which lies on a disk: more than any model has."""
_LATER_DEADLINE_S, _LATER_AT_ONCE, _MOST_LATER = 10.0, 8, 63
"""For the heads of a model's further files: seconds for one, how many at once, and how many in all."""


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
    from provisioner.models.remote import NoHeadError, read_remote_config, read_remote_head

    note = _note(model, file.sha256)
    is_known, header = _cached(note)
    first, *rest = _heads(model, file)
    token = json.loads(file.access.reveal())["token"] if file.access else None
    if is_known and (file.is_folder or header is None or first.is_file()):
        _keep_later(rest, file, token)
        return header, ""
    why = ""
    try:
        if file.is_folder:
            header = read_remote_config(file.path, token, file.sha256)
        else:
            header = read_remote_head(file.path, token, keep=partial(_keep, first, file.size))
    except NoHeadError as error:
        return header, "" if is_known else str(error)
    except (GgufError, FolderError) as error:  # another time it is the same, and not asked for again
        why = str(error)
    _remember(note, header)
    _keep_later(rest, file, token)
    return header, why


def _keep_later(heads: Sequence[Path], file: ModelFile, token: str | None) -> None:
    """Keep the heads of a model's further files that are not kept yet."""
    missing = [(head, part) for head, part in zip(heads, file.rest, strict=True) if not head.is_file()]
    if 0 < len(missing) <= _MOST_LATER and not file.is_folder:
        with ThreadPoolExecutor(_LATER_AT_ONCE) as pool:
            list(pool.map(lambda later: _keep_one(later[0], later[1], token), missing))


def _keep_one(kept: Path, part: ModelPart, token: str | None) -> None:
    """Keep the head of a further file; where it does not come, the model's own program is not asked."""
    from provisioner.models.remote import NoHeadError, read_remote_head

    with suppress(NoHeadError, GgufError):
        read_remote_head(part.file, token, _LATER_DEADLINE_S, partial(_keep, kept, part.size))


def head_file(model: Model, file: ModelFile) -> Path | None:
    """Return the file that has the head of a model elsewhere and a hole in the place of the rest; None without one.

    Those of its other parts lie beside it.
    """
    heads = _heads(model, file)
    return heads[0] if all(head.is_file() for head in heads) else None


def _heads(model: Model, file: ModelFile) -> list[Path]:
    """Return where the heads of a model's files are kept: llama.cpp finds the others by the first one's name."""
    stem = _note(model, " ".join((file.sha256, *(part.sha256 for part in file.rest)))).with_suffix("")
    return [Path(name) for name in part_names(f"{stem}-00001-of-{1 + len(file.rest):05}.gguf")]


def _keep(kept: Path, size: int | None, head: bytes) -> None:
    """Keep a head; its file is as long as the model's, or as any, since programs look where the last tensor ends.

    Where it cannot be kept, the model's own program is not asked.
    """
    begun = kept.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    with suppress(OSError):
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with begun.open("wb") as stream:
            stream.write(head)
            stream.truncate(max(min(size or ANY_SIZE, ANY_SIZE), len(head)))
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


def cached_pulled(wanted: Iterable[Wanted]) -> dict[Wanted, Pulled]:
    """What registries said once, however long ago; nobody is asked."""
    found: dict[Wanted, Pulled] = {}
    for model in wanted:
        pulled, _ = _cached_answer(model)
        found |= {model: pulled} if pulled else {}
    return found


def fetch_pulled(wanted: Iterable[Wanted]) -> tuple[dict[Wanted, Pulled], list[str]]:
    """What the registries say of each, all asked at once; and a note for each answer that is an old one."""
    models = list(wanted)
    with ThreadPoolExecutor(max(1, min(len(models), MOST_AT_ONCE))) as pool:
        answers = list(pool.map(_pulled, models))
    found: dict[Wanted, Pulled] = {}
    notes: list[str] = []
    for model, (pulled, note) in zip(models, answers, strict=True):
        found[model] = pulled
        notes += [note] if note else []
    return found, notes


def _pulled(wanted: Wanted) -> tuple[Pulled, str]:
    """What the model is, and what is to be said of the answer."""
    from provisioner.models.pulled import model_name
    from provisioner.models.remote import NoHeadError, read_pulled

    known, is_fresh = _cached_answer(wanted)
    if known is not None and is_fresh:
        return known, ""
    name = model_name(wanted.model)
    if name is None:
        return Pulled(unknown=f"no registry calls a model {wanted.model}"), ""
    try:
        pulled = read_pulled(name, known)
    except NoHeadError as error:
        if known is None:
            return Pulled(unknown=str(error)), ""
        return known, f"What {wanted.model} is counts as its registry said last: {error}"
    if wanted.digest not in ("", pulled.digest):
        why = f"{name.host} has {pulled.digest} by now, and digest says {wanted.digest}"
        return Pulled(pulled.digest, unknown=why), ""
    _remember_answer(wanted, pulled)
    return pulled, ""


def _note_of_pulled(wanted: Wanted) -> Path:
    identity = f"pulled {wanted.model} {wanted.digest}"
    return paths.cache() / "heads" / f"{hashlib.sha256(identity.encode()).hexdigest()}.json"


def _cached_answer(wanted: Wanted) -> tuple[Pulled | None, bool]:
    """What was read before, and whether that still counts; a version that the file names stays what it is."""
    try:
        content: Any = json_value(text_of(_note_of_pulled(wanted)))
        pulled = Pulled(**content["pulled"])
        age = time.time() - float(content["at"])
        restored = replace(
            pulled,
            header=_restored(pulled.header),
            projector=_restored(pulled.projector),
            parts=tuple(pulled.parts),
        )
    except (OSError, ValueError, TypeError, KeyError):  # not there, or of another version: it is read again
        return None, False
    return restored, bool(wanted.digest) or 0 <= age < FRESH_S


def _restored(content: Any) -> Header | None:
    return Header(**content) if content is not None else None


def _remember_answer(wanted: Wanted, pulled: Pulled) -> None:
    note = _note_of_pulled(wanted)
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(note, json.dumps({"at": time.time(), "pulled": asdict(pulled)}))
