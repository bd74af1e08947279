"""What was tried of an engine's contexts, kept line by line while it goes: a killed run's next one goes on there.

What counts for an engine is what was tried of the same engine: of the same role, options, model and card.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from provisioner.measuring.trials import Tried
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

FOLDER = "contexts"
FIELDS = ("context", "outcome", "words", "load_s", "took_s", "memory", "card")


def digest_of(inputs: Mapping[str, Any], option: str) -> str:
    """The same for the same engine whatever context it has: of what its role is run with (``stamp.inputs_of``)."""
    variables = {name: digest for name, digest in inputs["variables"].items() if not name.endswith(f"_{option}")}
    content = json.dumps({"role": inputs["role"], "variables": variables}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def file_of(lab: str, address: Address) -> Path:
    """Where what was tried of a service is kept."""
    return paths.state(lab) / FOLDER / f"{address.container}.{address.service}.jsonl"


def tried_before(file: Path, digest: str) -> dict[int, Tried]:
    """What was tried of that engine, by context; lines that a kill has cut, or of others, are left out."""
    try:
        lines = text_of(file).splitlines()
    except FileNotFoundError:
        return {}
    found: dict[int, Tried] = {}
    for line in lines:
        try:
            said = json_value(line)
            if said["digest"] == digest:
                one = Tried(**{name: said[name] for name in FIELDS})
                found[int(one.context)] = one
        except (ValueError, TypeError, KeyError):
            continue
    return found


def keep(file: Path, digest: str, tried: Tried) -> None:
    """Add what was tried; raises ``OSError`` where nothing can be written."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = json.dumps({"digest": digest, **asdict(tried)}, sort_keys=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as stream:
        stream.write(f"{line}\n")
