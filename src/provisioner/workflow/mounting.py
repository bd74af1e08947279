"""What stays mounted in a container while its services go over to what comes in its place. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from provisioner.plan import Change
from provisioner.values.state import Device, Instance, Status

NO_LONGER_USED = "what its services used before is no longer mounted"


def with_former_mounts(change: Change) -> Change:
    """The update of a container, but that it keeps the volumes which are mounted in it.

    A volume does not stay whose folder is above or below that of one that comes: nothing can be mounted inside of one
    that is read-only. Where nothing runs nothing uses it. Other changes than updates are given as they are.
    """
    before, after = change.before, change.after
    if change.action != "update" or not isinstance(before, Instance) or not isinstance(after, Instance):
        return change
    if before.status is not Status.RUNNING:
        return change
    leaving = _leaving(before.devices, after.devices)
    if not leaving:
        return change
    devices = sorted([*after.devices, *leaving], key=lambda device: device.name)
    return replace(change, after=replace(after, devices=tuple(devices)))


def last_step(change: Change) -> Change | None:
    """What is left of an update once nothing uses what was mounted before; None where nothing is."""
    kept = with_former_mounts(change).after
    if kept == change.after:
        return None
    return replace(change, before=kept, reason=NO_LONGER_USED)


def _leaving(before: Sequence[Device], after: Sequence[Device]) -> list[Device]:
    """The volumes of ``before`` that go, and could stay beside those of ``after``."""
    names = {device.name for device in after}
    folders = [_folder(device) for device in after if device.kind == "volume"]
    leaving = []
    for device in before:
        is_leaving = device.kind == "volume" and device.name not in names
        if is_leaving and not any(_overlap(_folder(device), folder) for folder in folders):
            leaving.append(device)
    return leaving


def _folder(device: Device) -> PurePosixPath:
    return PurePosixPath(device.properties["path"])


def _overlap(one: PurePosixPath, other: PurePosixPath) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
