"""Facts about an Incus host for ``doctor``: what runs there, what room, images and bridge it has. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from provisioner.errors import UnavailableError
from provisioner.providers.incus import failures
from provisioner.providers.incus.client import Client
from provisioner.state import Fact


def examine(
    host: str, client: Client, profile: str, pool: Callable[[], str], images: Collection[str]
) -> tuple[Fact, ...]:
    """What was seen; a host that does not answer, or does not let us in, is a fact, too."""
    try:
        with failures.reachable(client.endpoint):
            seen = list(_seen(client, profile, pool, images))
    except UnavailableError as error:
        said = {"problem": error.message, "details": error.details, "hint": error.resolution}
        return (Fact(host, "answers", said),)
    return tuple(Fact(host, name, value) for name, value in [("answers", {"problem": ""}), *seen])


def _seen(
    client: Client, profile: str, pool_name: Callable[[], str], images: Collection[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    server = client.get()
    failures.require_trust(client.endpoint, server)
    yield "version", {"program": "Incus", "version": server["environment"]["server_version"]}
    pool = pool_name()
    space = client.get("storage-pools", pool, "resources").get("space", {})
    total = int(space.get("total", 0))
    if total:  # not every kind of pool says
        room = {"free": total - int(space.get("used", 0)), "total": total}
        yield "storage", {"name": pool, "use": "disks", **room, "problem": ""}
    there = {alias["name"] for alias in client.get("images", "aliases", recursion="1")}
    for image in sorted(images):
        hint = client.endpoint.prepare(f" --image {image}")
        yield "image", {"name": image, "state": "there" if image in there else "missing", "hint": hint}
    yield "bridge", _bridge(client, profile)


def _bridge(client: Client, profile: str) -> Mapping[str, Any]:
    """The network that the profile's network card is on, made by Incus or by somebody else."""
    devices = client.get("profiles", profile)["devices"].values()
    card = next((device for device in devices if device.get("type") == "nic"), None)
    if card is None:
        return {"name": "", "problem": f"profile {profile} has no network card", "hint": client.endpoint.prepare()}
    name = card.get("network") or card.get("parent") or ""
    is_there = client.find("networks", name) is not None
    return {
        "name": name,
        "problem": "" if is_there else f"there is no bridge {name}",
        "hint": client.endpoint.prepare(),
    }
