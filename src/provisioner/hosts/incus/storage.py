"""Artifact volumes: custom volumes that many unprivileged containers mount at once, and their one-file exports."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from provisioner.hosts.incus import api
from provisioner.hosts.incus.api import Client
from provisioner.hosts.incus.translate import ARTIFACT, READY
from provisioner.values import limits
from provisioner.values.errors import ProviderError

_EXPORT = "provisioner"
_IN_USE = "still in use"


def ready(client: Client, pool: str) -> frozenset[str]:
    """The names of artifact volumes whose content is complete."""
    names = set()
    for volume in client.get("storage-pools", pool, "volumes", "custom", recursion="1"):
        is_complete = volume["config"].get(READY) == "true"
        if is_complete and ARTIFACT in volume["config"]:
            names.add(volume["name"])
    return frozenset(names)


def create(client: Client, pool: str, volume: str, digest: str) -> None:
    """Make the volume empty and not ready; one of that name that is not ready is replaced."""
    found = _ours(client, pool, volume)
    if found is not None and found.get(READY) == "true":
        raise ProviderError(f"Unable to create volume {volume}", details="It is there, and its content is complete.")
    if found is not None:
        client.change("delete", "storage-pools", pool, "volumes", "custom", volume)
    # Shifted: every container sees the files under its own ids, whatever its id map is.
    # The mode of its top folder is kept in its config: an import would make it 0711, which nobody but root can list.
    config = {ARTIFACT: digest, "security.shifted": "true", "initial.mode": "0755"}
    body = {"name": volume, "type": "custom", "content_type": "filesystem", "config": config}
    client.change("post", "storage-pools", pool, "volumes", "custom", body=body)


def mark_ready(client: Client, pool: str, volume: str) -> None:
    """Say on the volume itself that its content is complete."""
    _configure(client, pool, volume, {READY: "true"})


def delete(client: Client, pool: str, volume: str) -> None:
    """Delete the volume; a missing one, or one that a container or a snapshot still uses, is success."""
    if _ours(client, pool, volume) is None or _is_in_a_snapshot(client, pool, volume):
        return
    try:
        client.change("delete", "storage-pools", pool, "volumes", "custom", volume)
    except api.WireError as error:
        if _IN_USE not in str(error):
            raise


def export(client: Client, pool: str, volume: str, target: Path) -> None:
    """Write the volume as one zstd-compressed file; ``target`` appears when it is whole."""
    from provisioner.hosts.incus import files

    place = ("storage-pools", pool, "volumes", "custom", volume, "backups")
    if client.find(*place, _EXPORT) is not None:
        client.change("delete", *place, _EXPORT)
    body = {"name": _EXPORT, "volume_only": True, "optimized_storage": False, "compression_algorithm": "zstd -1 -T0"}
    client.change("post", *place, body=body)
    try:
        with closing(api.connection_to(client.endpoint, limits.SILENCE_S)) as connection:
            connection.request("GET", api.path_of(*place, _EXPORT, "export"))
            files.save(api.checked(connection.getresponse()), target)
    finally:
        client.change("delete", *place, _EXPORT)


def restore(client: Client, pool: str, volume: str, digest: str, source: Path) -> None:
    """Make the volume from an exported file and mark it ready; a half-made one of that name is replaced."""
    found = _ours(client, pool, volume)
    if found is not None:
        client.change("delete", "storage-pools", pool, "volumes", "custom", volume)
    headers = {"Content-Type": "application/octet-stream", "X-Incus-name": volume}
    headers["Content-Length"] = str(source.stat().st_size)
    with source.open("rb") as file, closing(api.connection_to(client.endpoint, limits.SILENCE_S)) as connection:
        connection.request("POST", api.path_of("storage-pools", pool, "volumes", "custom"), file, headers)
        operation = api.answer_of(connection.getresponse())["operation"]
    client.wait(operation)
    _configure(client, pool, volume, {ARTIFACT: digest, READY: "true", "security.shifted": "true"})


def _is_in_a_snapshot(client: Client, pool: str, volume: str) -> bool:
    """Whether a rollback to a snapshot would need the volume; Incus counts containers only."""
    for instance in client.get("instances", recursion="1"):
        for snapshot in client.find("instances", instance["name"], "snapshots", recursion="1") or ():
            for device in snapshot["devices"].values():
                if (device.get("pool"), device.get("source")) == (pool, volume):
                    return True
    return False


def _configure(client: Client, pool: str, volume: str, config: Mapping[str, str]) -> None:
    place = ("storage-pools", pool, "volumes", "custom", volume)
    # Config and description are written together: a patch with only one of them would empty the other.
    now = client.get(*place)
    client.change("put", *place, body={"config": now["config"] | config, "description": now["description"]})


def _ours(client: Client, pool: str, volume: str) -> Mapping[str, Any] | None:
    """The volume's config, None when there is no such volume; one that we did not make is refused."""
    found = client.find("storage-pools", pool, "volumes", "custom", volume)
    if found is None:
        return None
    if ARTIFACT not in found["config"]:
        details = "A volume of that name is there that provision did not make."
        raise ProviderError(f"Unable to use volume {volume}", details=details, resolution="Rename or delete it.")
    config: Mapping[str, Any] = found["config"]
    return config
