"""Looks at a cluster again and again, or once, and compares with the look before, which is kept on this machine."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from provisioner.cluster.gather import Emit, gather
from provisioner.cluster.reaching import Reach
from provisioner.repair.changes import Change, Snapshot, changes, snapshot
from provisioner.repair.facts import ClusterFacts
from provisioner.repair.view import View
from provisioner.values import paths
from provisioner.values.errors import ProvisionError
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

FILE = "watch.json"
FORMAT = 1
"""Of the file; another one is not read, and written anew."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look: what is kept of it, when (ISO 8601, UTC), what changed, and whether there was one to compare with."""

    at: str
    now: Snapshot
    found: tuple[Change, ...]
    is_first: bool


@dataclass(frozen=True, slots=True)
class _Kept:
    """The look before; ``asked`` is how the cluster was named, ``addresses`` where its nodes answered."""

    asked: str
    addresses: tuple[str, ...]
    snapshot: Snapshot


def look_again(asked: Reach, emit: Emit) -> Look:
    """One look, compared with the last one of that cluster and kept for the next.

    When ``asked`` tells nothing, the nodes that answered last time are tried; ``ProvisionError``: none does either.
    """
    before = _last(asked)
    facts = _gathered(asked, before, emit)
    name = View(facts).cluster
    if before is not None and before.snapshot.cluster == name:
        last: Snapshot | None = before.snapshot
    else:
        last = _kept_in(_folder(name))
    now = snapshot(facts, name, last)
    found = changes(last, now) if last else ()
    addresses = tuple(node.address for node in facts.nodes)
    _keep(_Kept(asked.ssh, addresses, now))
    return Look(datetime.now(UTC).isoformat(timespec="seconds"), now, found, is_first=last is None)


def _gathered(asked: Reach, before: _Kept | None, emit: Emit) -> ClusterFacts:
    """What the cluster says by the asked node, or by one that answered at the last look."""
    try:
        return gather(asked, emit)
    except ProvisionError:  # it may also have gone in the middle of its answer
        addresses = before.addresses if before else ()
        for address in addresses:
            if address != asked.destination.host:
                with suppress(ProvisionError):
                    return gather(asked.at(address), emit)
        raise


def _folder(cluster: str) -> Path:
    return paths.state("clusters") / (re.sub(r"[^A-Za-z0-9._-]", "_", cluster).lstrip(".") or "_")


def _keep(kept: _Kept) -> None:
    """Write the look into the cluster's folder, where the next one finds it."""
    folder = _folder(kept.snapshot.cluster)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = folder / f"{FILE}.{os.getpid()}"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **asdict(kept)}, file)
    part.replace(folder / FILE)


def _last(asked: Reach) -> _Kept | None:
    for kept in _all_kept():
        if kept.asked == asked.ssh:
            return kept
    return None


def _kept_in(folder: Path) -> Snapshot | None:
    kept = _read(folder / FILE)
    return kept.snapshot if kept else None


def _all_kept() -> Iterator[_Kept]:
    for file in sorted(paths.state("clusters").glob(f"*/{FILE}")):
        kept = _read(file)
        if kept:
            yield kept


def _read(file: Path) -> _Kept | None:
    """What is kept there; None when there is nothing that this version wrote: then the next look is the first."""
    try:
        content: Mapping[str, Any] = json_value(text_of(file))
        if content["format"] != FORMAT:
            return None
        seen = Snapshot(**content["snapshot"])
        seen = replace(seen, active=tuple(seen.active), restless=tuple(seen.restless))
        return _Kept(str(content["asked"]), tuple(map(str, content["addresses"])), seen)
    except (OSError, ValueError, KeyError, TypeError):
        return None
