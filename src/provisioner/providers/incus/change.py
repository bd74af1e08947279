"""Change a container that exists: all that is asked for, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from typing import Any

from provisioner.providers.incus.client import Client
from provisioner.providers.incus.translate import KIND, LAB, bytes_of, is_root
from provisioner.providers.incus.wire import WireError
from provisioner.values.errors import ProviderError
from provisioner.values.state import InstanceKind

Body = dict[str, Any]
Changed = Callable[[Body], Body]

ATTEMPTS = 5
SPARE_BYTES = 64 * 2**20
"""What a container may write between the trial of a smaller disk and the change."""
_WRITABLE = ("architecture", "config", "description", "devices", "ephemeral", "profiles", "stateful")
_QUOTA = "quota"
_CPU = "limits.cpu"


def change(client: Client, name: str, changed: Changed, root: Mapping[str, str]) -> None:
    """Make the container what ``changed`` makes of its body; on failure it is as it was, ``WireError`` says why.

    ``root`` is the profile's root disk.
    """
    found = client.get("instances", name)
    before = _body(found)
    after = changed(deepcopy(before))
    _require_disk(client, name, _size(before, root), _size(after, root), root["pool"])
    if found["status"] == "Stopped" or before["config"] == after["config"]:
        _put(client, name, changed)
        return
    reached = before
    try:
        for step in _steps(before, after):
            if step != reached:
                _put(client, name, partial(_with_changes, before=before, after=step))
                reached = step
    except WireError:
        _put(client, name, partial(_with_changes, before=reached, after=before))
        raise


def _steps(before: Body, after: Body) -> Iterator[Body]:
    """The bodies that a running container is given one after the other.

    A limit that it cannot keep fails after its devices were changed, and Incus forgets about them: so these go first,
    and can be taken back. Incus spreads containers over processors when it hears of ``limits.cpu``, which may be
    before it has written it down, and then goes by the old one: so that goes last, with nothing to wait for.
    """
    yield {**before, "devices": after["devices"]}
    config = {key: value for key, value in after["config"].items() if key != _CPU}
    if _CPU in before["config"]:
        config[_CPU] = before["config"][_CPU]
    yield {**after, "config": config}
    yield after


def _with_changes(body: Body, *, before: Body, after: Body) -> Body:
    """``body`` with what differs between the two others, and nothing else."""
    changed = dict(body)
    for part, value in after.items():
        if part in ("config", "devices"):
            changed[part] = _mapping_with_changes(body[part], before=before[part], after=value)
        elif before[part] != value:
            changed[part] = value
    return changed


def _mapping_with_changes(
    values: Mapping[str, Any], *, before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """``values`` without the keys that are gone in ``after``, and with those that are new or different there."""
    changed = dict(values)
    for key in before.keys() - after.keys():
        changed.pop(key, None)
    changed |= {key: value for key, value in after.items() if before.get(key) != value}
    return changed


def _body(found: Mapping[str, Any]) -> Body:
    return {key: found[key] for key in _WRITABLE}


def _put(client: Client, name: str, changed: Changed) -> None:
    """One request; whoever changes the container at the same time loses nothing."""
    for attempt in range(1, ATTEMPTS + 1):
        found, tag = client.get_tagged("instances", name)
        before = _body(found)
        after = changed(deepcopy(before))
        if after == before:
            return
        try:
            client.change("put", "instances", name, body=after, tag=tag)
        except WireError as error:
            if error.status == HTTPStatus.PRECONDITION_FAILED and attempt < ATTEMPTS:
                continue
            _plug_again(client, name, before, after, error)
            raise
        return


def _plug_again(client: Client, name: str, before: Body, after: Body, error: WireError) -> None:
    """Plug again what was unplugged before another device failed.

    Incus keeps its old list then, so that writing this list is no change to it: the container gets a list without the
    changed devices in between. Its root disk cannot be left out and goes by way of its new size.
    """
    old, new = before["devices"], after["devices"]
    roots = old if 'device "root"' in str(error) else new
    between = {key: device for key, device in old.items() if new.get(key) == device and not is_root(device)}
    between |= {key: device for key, device in roots.items() if is_root(device)}
    if between == old:
        return
    try:
        for devices in (between, old):
            config = client.get("instances", name)["config"]
            client.change("put", "instances", name, body={**before, "config": config, "devices": devices})
    except WireError as second:
        words = f"{error}\nWhat it had could not be plugged in again ({second}). Restart it: incus restart {name}"
        raise WireError(second.status, words) from error


def _size(body: Body, root: Mapping[str, str]) -> int | None:
    """The size of its own disk; None: as large as the pool."""
    for device in body["devices"].values():
        if is_root(device):
            return bytes_of(device.get("size"))
    return bytes_of(root.get("size"))


def _require_disk(client: Client, name: str, before: int | None, after: int | None, pool: str) -> None:
    """Refuse a disk that is smaller than what is in it, where the storage would take it.

    btrfs sets such a limit, fails after it, and then neither writes nor takes any other limit. What counts against
    the limit is not known from its API (the image does), so a copy, which costs next to nothing there, is tried.
    """
    shrinks = after is not None and (before is None or after < before)
    if after is None or not shrinks or client.get("storage-pools", pool)["driver"] != "btrfs":
        return
    trial = f"provision-trial-{sha256(name.encode()).hexdigest()[:16]}"
    _delete_trial(client, trial)
    disk = {"type": "disk", "path": "/", "pool": pool, "size": str(max(after - SPARE_BYTES, 1))}
    source = {"type": "copy", "source": name, "instance_only": True}
    body = {"name": trial, "type": "container", "source": source, "devices": {_root_name(client, name): disk}}
    try:
        # The kind says that it may go: the next plan deletes one that an interrupted run has left.
        client.change("post", "instances", body=body | {"config": {KIND: str(InstanceKind.BUILDER)}})
    except WireError as error:
        if _QUOTA not in str(error).lower():
            raise
        raise ProviderError(
            f"Unable to change container {name}: there is more on its disk than {after} bytes hold",
            details=str(error),
            resolution="Give it a larger `disk`, or delete files in it first.",
        ) from error
    finally:
        _delete_trial(client, trial)


def _root_name(client: Client, name: str) -> str:
    devices: Mapping[str, Mapping[str, str]] = client.get("instances", name)["expanded_devices"]
    return next(key for key, device in devices.items() if is_root(device))


def _delete_trial(client: Client, trial: str) -> None:
    found = client.find("instances", trial)
    if found is not None and found["config"].get(KIND) == InstanceKind.BUILDER and LAB in found["config"]:
        client.change("delete", "instances", trial)
