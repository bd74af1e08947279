"""What registries say of models that services fetch by themselves, asked for when a plan is made, then cached.

Nothing but the sum of ``fit`` depends on it: of what a registry does not tell, nobody knows what it takes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from provisioner.labfile.whole_files import replace_text
from provisioner.models.header import Header
from provisioner.models.pulled import Pulled, Wanted
from provisioner.values import paths
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

FRESH_S = 86_400.0
"""For how long a name is believed to mean what it meant; then its registry is asked again."""
MOST_AT_ONCE = 8


def cached_pulled(wanted: Iterable[Wanted]) -> dict[Wanted, Pulled]:
    """What registries said once, however long ago; nobody is asked."""
    found: dict[Wanted, Pulled] = {}
    for model in wanted:
        pulled, _ = _cached(model)
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
    from provisioner.models.registry.answers import read_pulled
    from provisioner.models.registry.names import model_name
    from provisioner.models.remote_head import NoHeadError

    known, is_fresh = _cached(wanted)
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
    _remember(wanted, pulled)
    return pulled, ""


def _note(wanted: Wanted) -> Path:
    identity = f"pulled {wanted.model} {wanted.digest}"
    return paths.cache() / "heads" / f"{hashlib.sha256(identity.encode()).hexdigest()}.json"


def _cached(wanted: Wanted) -> tuple[Pulled | None, bool]:
    """What was read before, and whether that still counts; a version that the file names stays what it is."""
    try:
        content: Any = json_value(text_of(_note(wanted)))
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


def _remember(wanted: Wanted, pulled: Pulled) -> None:
    note = _note(wanted)
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(note, json.dumps({"at": time.time(), "pulled": asdict(pulled)}))
