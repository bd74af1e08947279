"""What engines took of their cards when they ran, kept beside the sums that foretold it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from provisioner.loads.terms import Load
from provisioner.values import paths
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

FILE = "fit.json"


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a service: ``digest`` of what decided its sum, the sum, and what the card really held. Bytes."""

    digest: str
    estimate: int
    measured: int

    def is_of(self, loads: Iterable[Load]) -> bool:
        """Whether the same models and options were measured."""
        return self.digest == digest_of(loads)

    @property
    def error(self) -> int:
        """By how much the sum was too high; negative where it was too low."""
        return self.estimate - self.measured


def digest_of(loads: Iterable[Load]) -> str:
    """The same for the same models and options, whatever the models are called."""
    content = [{name: one for name, one in asdict(load).items() if name != "name"} for load in loads]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def measured(lab: str) -> Mapping[str, Measured]:
    """What is known of a lab's services, by their addresses."""
    found = {}
    for address, one in _read(paths.state(lab) / FILE).items():
        try:
            found[address] = Measured(str(one["digest"]), int(one["estimate"]), int(one["measured"]))
        except (KeyError, TypeError, ValueError):  # another version wrote it: it is measured again
            continue
    return found


def remember(lab: str, address: str, loads: Iterable[Load], estimate: int, bytes_measured: int) -> None:
    """Keep what a service takes; raises ``OSError`` where nothing can be written."""
    file = paths.state(lab) / FILE
    content = _read(file) | {address: asdict(Measured(digest_of(loads), estimate, bytes_measured))}
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=2, sort_keys=True)
    partial.replace(file)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json_value(text_of(file))
    except FileNotFoundError:
        return {}
    except ValueError:  # cut off, or not ours: what it held is measured again
        return {}
    return content if isinstance(content, dict) else {}
