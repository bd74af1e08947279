"""Which snapshots are taken, kept, and gone back to. Pure.

Ours are named ``provision-<n>`` (the container had proved itself), ``provision-<n>-unproved`` (something in it had
changed by then), ``provision-<n>-failed`` (what a rollback left behind) and ``provision-<n>-replaced`` (what a rollback
by hand left behind). All other names are the user's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from provisioner.values.state import Instance, Snapshot

Kind = Literal["", "unproved", "failed", "replaced"]
_OURS = re.compile(r"provision-(\d+)(?:-([a-z]+))?")


def next_name(instance: Instance, kind: Kind = "") -> str:
    """A name that no snapshot of the container has or had among those that are kept."""
    numbers = [int(found[1]) for one in instance.snapshots if (found := _OURS.fullmatch(one.name))]
    return f"provision-{max(numbers, default=0) + 1}" + (f"-{kind}" if kind else "")


def is_ours(name: str) -> bool:
    """Whether the program gives such names itself."""
    return name.startswith("provision-")


def surplus(instance: Instance, keep: int) -> tuple[Snapshot, ...]:
    """Our snapshots beyond the ``keep`` newest before changes, and the ``keep`` newest that rollbacks left behind."""
    groups: dict[bool, list[Snapshot]] = {False: [], True: []}
    for one in sorted(instance.snapshots, key=_number):
        found = _OURS.fullmatch(one.name)
        if found:
            groups[found[2] in ("failed", "replaced")].append(one)
    return tuple(one for group in groups.values() for one in group[: max(0, len(group) - keep)])


def latest(instance: Instance) -> Snapshot | None:
    """What a rollback goes back to when nothing is named: the newest state that had proved itself, or is the user's."""
    good = [one for one in instance.snapshots if not is_ours(one.name) or re.fullmatch(r"provision-\d+", one.name)]
    return good[-1] if good else None


def bound_together(failed: Iterable[str], changed: Collection[str], needs: Mapping[str, Collection[str]]) -> set[str]:
    """The containers of ``changed`` that go back together when ``failed`` do: a gateway and the engine that it asks.

    ``needs``: by container those that it asks.
    """
    links = {(one, other) for one, others in needs.items() for other in others if one in changed and other in changed}
    found: set[str] = set()
    reached = {one for one in failed if one in changed}
    while reached:
        found |= reached
        reached = {b if a in found else a for a, b in links if (a in found) != (b in found)}
    return found


def _number(snapshot: Snapshot) -> int:
    found = _OURS.fullmatch(snapshot.name)
    return int(found[1]) if found else 0
