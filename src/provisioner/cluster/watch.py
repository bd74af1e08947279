"""``cluster watch``: observe a cluster again and again, and compare with the time before, which is stored here."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from provisioner.cluster.changes import Change, Snapshot, changes, snapshot
from provisioner.cluster.facts import ClusterFacts
from provisioner.cluster.gather import Emit, Reach, gather
from provisioner.cluster.view import View
from provisioner.report.style import PLAIN, Style, safe_line
from provisioner.values import paths
from provisioner.values.errors import ProvisionError
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

FILE = "watch.json"
FORMAT = 1
"""Of the file; another one is not read, and written anew."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The cluster now, when that was (ISO 8601, UTC), what changed, and whether there was nothing to compare with."""

    at: str
    now: Snapshot
    changes: tuple[Change, ...]
    is_first: bool


@dataclass(frozen=True, slots=True)
class _Stored:
    """The time before; ``asked`` is how the cluster was named, ``addresses`` where its nodes answered."""

    asked: str
    addresses: tuple[str, ...]
    snapshot: Snapshot


def observe_again(asked: Reach, emit: Emit) -> Observation:
    """Observe the cluster, compare with the last time, and store it for the next.

    When ``asked`` tells nothing, the nodes that answered last time are tried; ``ProvisionError``: none does either.
    """
    before = _last(asked)
    facts = _gathered(asked, before, emit)
    name = View(facts).cluster
    if before is not None and before.snapshot.cluster == name:
        last: Snapshot | None = before.snapshot
    else:
        of_name = _read(_folder(name) / FILE)
        last = of_name.snapshot if of_name else None
    now = snapshot(facts, name, last)
    differences = changes(last, now) if last else ()
    addresses = tuple(node.address for node in facts.nodes)
    _store(_Stored(asked.ssh, addresses, now))
    return Observation(datetime.now(UTC).isoformat(timespec="seconds"), now, differences, is_first=last is None)


def _gathered(asked: Reach, before: _Stored | None, emit: Emit) -> ClusterFacts:
    """Return what the cluster says by the asked node, or by one that answered last time."""
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


def _store(stored: _Stored) -> None:
    """Write it into the cluster's folder, where the next one finds it."""
    folder = _folder(stored.snapshot.cluster)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = folder / f"{FILE}.{os.getpid()}"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **asdict(stored)}, file)
    part.replace(folder / FILE)


def _last(asked: Reach) -> _Stored | None:
    """Return what was stored when the same node was asked; None where it never was."""
    for file in sorted(paths.state("clusters").glob(f"*/{FILE}")):
        stored = _read(file)
        if stored is not None and stored.asked == asked.ssh:
            return stored
    return None


def _read(file: Path) -> _Stored | None:
    """Return what is stored there; None where this version wrote nothing: there is nothing to compare with then."""
    try:
        content: Mapping[str, Any] = json_value(text_of(file))
        if content["format"] != FORMAT:
            return None
        last = Snapshot(**content["snapshot"])
        last = replace(
            last, active=tuple(last.active), restless=tuple(last.restless), weaknesses=tuple(last.weaknesses)
        )
        return _Stored(str(content["asked"]), tuple(map(str, content["addresses"])), last)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def snapshot_text(now: Snapshot, at: str, *, is_first: bool) -> str:
    """Return how it is, in a line: what a watch begins with."""
    state = now.votes if now.is_quorate else "no quorum"
    line = f"{at} {now.cluster}: {state}, config_version {now.version}"
    away = [name for name, joined in now.members.items() if not joined]
    if away:
        line += f", not joined: {', '.join(away)}"
    if is_first:
        line += "; the first look, there is nothing to compare it with"
    return safe_line(line)


def change_text(change: Change, at: str, style: Style = PLAIN) -> str:
    """One change in a line."""
    mark = style.paint("worse", "red", "bold") if change.is_worse else style.paint("     ", "green")
    subject = f"{change.node}: " if change.node else ""
    return f"{at} {mark} {change.kind}: {safe_line(subject + change.message)}"
