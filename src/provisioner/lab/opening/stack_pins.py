"""The wheels of a file's stacks: found once by ``provision lock``, and taken from its lock file ever after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from provisioner.lab.resolved import ResolvedLab
from provisioner.lab.stacks import Key, Pinned, Use, stack_uses, unlocked, wanted, wheel_options
from provisioner.labfile.pins import read_stacks, write_stacks
from provisioner.values.address import Address
from provisioner.values.errors import PreflightError
from provisioner.wheels.known import Stack
from provisioner.wheels.locking import Locked

Find = Callable[[Use, Stack], tuple[Locked, ...]]


def pinned_wheels(lab: ResolvedLab, lock: Path, known: Mapping[str, Stack]) -> dict[Address, dict[str, Any]]:
    """The options that follow from the stacks' wheels; ``PreflightError`` where wheels have to be found first."""
    pinned, uses = _pinned(lock), stack_uses(lab)
    missing = unlocked(uses, known, pinned)
    if missing:
        named = [f"{use.stack} for {use.distribution}" for use in missing.values()]
        raise PreflightError(
            f"Unable to install {' and '.join(named)}: {lock.name} does not say with which wheels",
            resolution="Run: provision lock",
        )
    return wheel_options(lab, known, pinned)


def find_stacks(uses: Sequence[Use], known: Mapping[str, Stack], lock: Path, find: Find) -> dict[Key, Pinned]:
    """Have ``find`` find the wheels of each stack that has none, note them, and give what was found.

    What no service uses leaves the lock file. Raises what ``find`` raises; what was found before that is noted.
    """
    pinned = _pinned(lock)
    kept = {use.key: pinned[use.key] for use in uses if use.key in pinned}
    found: dict[Key, Pinned] = {}
    for key, use in unlocked(uses, known, pinned).items():
        found[key] = Pinned(wanted(use, known[use.stack]), find(use, known[use.stack]))
        write_stacks(lock, {key: _entry(one) for key, one in {**kept, **found}.items()})
    if not found and kept != pinned:
        write_stacks(lock, {key: _entry(one) for key, one in kept.items()})
    return found


def _pinned(lock: Path) -> dict[Key, Pinned]:
    return {
        key: Pinned(entry["wants"], tuple(Locked(**one) for one in entry["packages"]))
        for key, entry in read_stacks(lock).items()
    }


def _entry(pinned: Pinned) -> dict[str, object]:
    return {"wants": pinned.wants, "packages": [asdict(one) for one in pinned.packages]}
