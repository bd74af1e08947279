"""Keep in a container, while its services go over to others, the volumes and published ports of before. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from provisioner.values.plan import Change, differences
from provisioner.values.state import Device, Instance, Status

NO_LONGER_USED = "what its services used before goes"
NOT_TAKEN_UP = "what came for its services is no longer mounted"


def with_former_mounts(change: Change) -> Change:
    """The update of a container, but that it keeps its mounted volumes, and the way of ports that are published.

    A port of the host that is to lead elsewhere in the same container does so once somebody listens there.
    A volume does not stay whose folder is above or below that of one that comes: nothing can be mounted inside of one
    that is read-only. Where nothing runs nothing uses it. Other changes than updates are given as they are.
    """
    updated = _updated(change)
    if updated is None:
        return change
    before, after = updated
    former = {(device.name, *_entrance(device)): device for device in before.devices if device.kind == "publish"}
    devices = [former.get((device.name, *_entrance(device)), device) for device in after.devices]
    devices += _leaving(before.devices, after.devices)
    if tuple(devices) == after.devices:
        return change
    return replace(change, after=replace(after, devices=tuple(sorted(devices, key=lambda device: device.name))))


def last_step(change: Change) -> Change | None:
    """What is left of an update once nothing uses what was mounted before; None where nothing is."""
    kept = with_former_mounts(change).after
    if kept == change.after:
        return None
    return replace(change, before=kept, reason=NO_LONGER_USED)


def undone(change: Change) -> Change | None:
    """The way back from the first step of an update that mounted more, and did nothing else; None from another one."""
    updated = _updated(with_former_mounts(change))
    if updated is None:
        return None
    before, kept = updated
    if not _has_only_more_volumes(before, kept):
        return None
    return replace(change, before=kept, after=before, reason=NOT_TAKEN_UP)


def _updated(change: Change) -> tuple[Instance, Instance] | None:
    """A running container before and after an update; None for another change."""
    before, after = change.before, change.after
    if change.action != "update":
        return None
    if not isinstance(before, Instance) or not isinstance(after, Instance):
        return None
    if before.status is not Status.RUNNING:
        return None
    return before, after


def _has_only_more_volumes(before: Instance, after: Instance) -> bool:
    """Whether all that was there is there as it was, and what came is volumes."""
    same_but_for_devices = replace(before, devices=after.devices)
    if differences(same_but_for_devices, after):
        return False
    devices = {device.name: device for device in after.devices}
    for device in before.devices:
        if devices.pop(device.name, None) != device:
            return False
    kinds = {device.kind for device in devices.values()}
    return kinds <= {"volume"}


def _leaving(before: Sequence[Device], after: Sequence[Device]) -> list[Device]:
    """The volumes of ``before`` that go, and could stay beside those of ``after``."""
    names = {device.name for device in after}
    folders = [_folder(device) for device in _volumes(after)]
    leaving = []
    for device in _volumes(before):
        if device.name in names:
            continue
        folder = _folder(device)
        in_the_way = [other for other in folders if _overlap(folder, other)]
        if not in_the_way:
            leaving.append(device)
    return leaving


def _volumes(devices: Sequence[Device]) -> list[Device]:
    return [device for device in devices if device.kind == "volume"]


def _entrance(device: Device) -> tuple[str | None, ...]:
    """Return what a published port takes of its host."""
    return device.properties.get("listen"), device.properties.get("protocol")


def _folder(device: Device) -> PurePosixPath:
    return PurePosixPath(device.properties["path"])


def _overlap(one: PurePosixPath, other: PurePosixPath) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
