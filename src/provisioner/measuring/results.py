"""What was tried of an engine's contexts, kept line by line while it goes: a killed run's next one goes on there.

What counts for an engine is what was tried of the same one: of the same role, options, model, memory and card.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from provisioner.measuring.trials import Tried
from provisioner.trial_unit import CRASHED, HUNG
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of
from provisioner.values.state import Instance

FOLDER = "contexts"
BY_CHANCE = (CRASHED, HUNG)
FIELDS = ("context", "outcome", "words", "load_s", "took_s", "memory", "card")


def digest_of(inputs: Mapping[str, Any], option: str, container: Instance) -> str:
    """The same for the same engine in a container of the same size, whatever context it has.

    ``inputs``: what its role is run with (``stamp.inputs_of``).
    """
    variables = {name: digest for name, digest in inputs["variables"].items() if not name.endswith(f"_{option}")}
    cards = [[one.name, sorted(one.properties.items())] for one in container.devices if one.kind == "gpu"]
    where = [container.host, container.cpu, container.memory, sorted(cards)]
    content = json.dumps({"role": inputs["role"], "variables": variables, "where": where}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def file_of(lab: str, address: Address) -> Path:
    """Where what was tried of a service is kept."""
    return paths.state(lab) / FOLDER / f"{address.container}.{address.service}.jsonl"


@dataclass(frozen=True, slots=True)
class Kept:
    """What was tried once: when (ISO 8601; an earlier version kept none), of which engine, and what came of it."""

    at: str
    digest: str
    tried: Tried


def tries_in(file: Path) -> list[Kept]:
    """Everything that was ever tried of a service, the oldest first; lines that a kill has cut are left out."""
    try:
        lines = text_of(file).splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            said = json_value(line)
            one = Tried(**{name: said[name] for name in FIELDS})
            found.append(Kept(str(said.get("at", "")), str(said["digest"]), replace(one, context=int(one.context))))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return found


def tried_before(file: Path, digest: str) -> dict[int, Tried]:
    """What was tried of that engine, by context; lines that a kill has cut, or of others, are left out.

    Left out is also what may go otherwise the next time: that it crashed or hung, and whatever else than an answer came
    of a context that is shorter than one which was answered.
    """
    found: dict[int, Tried] = {}
    for kept in tries_in(file):
        if kept.digest == digest:
            found[kept.tried.context] = kept.tried
    answered = max((context for context, one in found.items() if one.is_answered), default=0)
    return {
        context: one
        for context, one in found.items()
        if one.is_answered or (context > answered and one.outcome not in BY_CHANCE)
    }


def keep(file: Path, digest: str, tried: Tried) -> None:
    """Add what was tried; raises ``OSError`` where nothing can be written."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    line = json.dumps({"at": at, "digest": digest, **asdict(tried)}, sort_keys=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as stream:
        stream.write(f"{line}\n")
