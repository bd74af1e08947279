"""What engines took of their cards when they ran, kept beside the sums that foretold it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from provisioner.gpus.cards import Card
from provisioner.loads.engines import EngineLoads, Way
from provisioner.loads.terms import Load
from provisioner.values import paths
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

FILE = "fit.json"
NOT_COMPARED = frozenset({"name", "correction", "told", "told_each", "fewer"})
"""What of a load does not decide whether the same was measured."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a service: ``digest`` of what decided its sum, the sum, and what the card really held. Bytes.

    ``card``: which one, as ``identity_of`` says it, and ``at`` when (ISO 8601); empty in records of versions that did
    not keep them.
    """

    digest: str
    estimate: int
    measured: int
    card: str = ""
    at: str = field(default="", compare=False)

    def is_of(self, loads: Iterable[Load]) -> bool:
        """Whether the same models and options were measured."""
        return self.digest == digest_of(loads)

    @property
    def error(self) -> int:
        """By how much the sum was too high; negative where it was too low."""
        return self.estimate - self.measured


def identity_of(card: Card, host: str) -> str:
    """What tells a card from all others, also when another one is put into its place."""
    return card.uuid or f"{host} {card.pci} {card.name} {card.memory}"


def corrected(engine: EngineLoads, record: Measured | None, card: Card | None) -> EngineLoads:
    """The engine with the difference between its sum and what it took, where that very card was measured with it.

    The measurement holds the engine's own context, which the sum leaves to what is reserved of each card: where all
    engines of a card were measured, less of it is reserved (``budgets``). A correction downwards counts only where the
    engine can take no more later: it takes all of it at its start, and has not moved layers to the CPU for want of
    room. Then it is also known what an engine takes of which it was not.
    """
    if record is None or card is None or not engine.loads or not record.is_of(engine.loads):
        return engine
    if not record.card or record.card != identity_of(card, engine.host):
        return engine
    kept_free = sum(load.kept_free for load in engine.loads)
    correction = record.measured - (engine.total - kept_free)
    if _takes_all_at_once(engine):
        return replace(_with_correction(engine, correction), unknown="")
    return engine if correction < 0 else _with_correction(engine, correction)


def _takes_all_at_once(engine: EngineLoads) -> bool:
    """Whether what was measured right after its start is the most that it takes."""
    if engine.grows or len(engine.loads) != 1:  # others of its models may not have been loaded yet
        return False
    (load,) = engine.loads
    return not load.adapts and not load.image_buffer  # a larger image than that of the proof takes more


def _with_correction(engine: EngineLoads, correction: int) -> EngineLoads:
    """The engine with the correction at its first load, also in what its own module advises."""

    def changed(way: Way) -> Way:
        return replace(way, loads=_first_corrected(way.loads, correction))

    ways = None if engine.ways is None else tuple(map(changed, engine.ways))
    loads = _first_corrected(engine.loads, correction)
    return replace(engine, loads=loads, ways=ways, is_measured=True)


def _first_corrected(loads: tuple[Load, ...], correction: int) -> tuple[Load, ...]:
    """The loads, the first one with the correction."""
    if not loads:
        return ()
    return (replace(loads[0], correction=correction), *loads[1:])


def digest_of(loads: Iterable[Load]) -> str:
    """The same for the same models and options, whatever the models are called and whatever corrects their sum."""
    content = []
    for load in loads:
        told = {name: one for name, one in asdict(load).items() if name not in NOT_COMPARED}
        for name in ("uncounted", "unpacks"):
            if not told[name]:
                del told[name]  # records of versions that did not know it are still of the same loads
        content.append(told)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def measured(lab: str) -> Mapping[str, Measured]:
    """What is known of a lab's services, by their addresses; nothing where it cannot be read."""
    found = {}
    try:
        content = _read(paths.state(lab) / FILE)
    except OSError:
        return {}
    for address, one in content.items():
        try:
            card, at = str(one.get("card", "")), str(one.get("at", ""))
            found[address] = Measured(str(one["digest"]), int(one["estimate"]), int(one["measured"]), card, at)
        except (AttributeError, KeyError, TypeError, ValueError):  # another version wrote it: it is measured again
            continue
    return found


def remember(lab: str, engine: EngineLoads, bytes_measured: int, card: Card | None) -> None:
    """Keep what a service takes beside its sum without corrections; raises ``OSError`` where nothing can be written."""
    file = paths.state(lab) / FILE
    identity = "" if card is None else identity_of(card, engine.host)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    record = Measured(digest_of(engine.loads), engine.total, bytes_measured, identity, at)
    content = _read(file) | {str(engine.address): asdict(record)}
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
