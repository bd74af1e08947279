"""Facts about an Incus host for ``doctor``: what runs there, what room, images and bridge it has. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from provisioner.providers.incus import failures
from provisioner.providers.incus.client import Client
from provisioner.values.errors import UnavailableError
from provisioner.values.host_facts import BridgeState, HostAnswers, HostFact, HostVersion, ImageState, StorageRoom


def examine(
    host: str, client: Client, profile: str, pool: Callable[[], str], images: Collection[str]
) -> tuple[HostFact, ...]:
    """What was seen; a host that does not answer, or does not let us in, is a fact, too."""
    try:
        with failures.reachable(client.endpoint):
            seen = tuple(_seen(host, client, profile, pool, images))
    except UnavailableError as error:
        return (HostAnswers(host, error.message, error.resolution, error.details),)
    return (HostAnswers(host), *seen)


def _seen(
    host: str, client: Client, profile: str, pool_name: Callable[[], str], images: Collection[str]
) -> Iterator[HostFact]:
    server = client.get()
    failures.require_trust(client.endpoint, server)
    yield HostVersion(host, "Incus", server["environment"]["server_version"])
    pool = pool_name()
    space = client.get("storage-pools", pool, "resources").get("space", {})
    total = int(space.get("total", 0))
    if total:  # not every kind of pool says
        free = total - int(space.get("used", 0))
        yield StorageRoom(host, pool, "disks", free, total)
    there = {alias["name"] for alias in client.get("images", "aliases", recursion="1")}
    for image in sorted(images):
        hint = client.endpoint.prepare(f" --image {image}")
        yield ImageState(host, image, "there" if image in there else "missing", hint)
    yield _bridge(host, client, profile)


def _bridge(host: str, client: Client, profile: str) -> BridgeState:
    """The network that the profile's network card is on, made by Incus or by somebody else."""
    hint = client.endpoint.prepare()
    devices = client.get("profiles", profile)["devices"].values()
    card = next((device for device in devices if device.get("type") == "nic"), None)
    if card is None:
        return BridgeState(host, "", f"profile {profile} has no network card", hint)
    name = card.get("network") or card.get("parent") or ""
    is_there = client.find("networks", name) is not None
    return BridgeState(host, name, "" if is_there else f"there is no bridge {name}", hint)
