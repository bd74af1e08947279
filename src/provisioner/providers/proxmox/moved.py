"""Containers of a lab that are on another node of the cluster now: somebody has migrated them, or they failed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from provisioner.providers.proxmox import failures, marks
from provisioner.providers.proxmox.failures import PveError

if TYPE_CHECKING:
    from provisioner.providers.proxmox.client import Client


def elsewhere(client: Client, guests: Iterable[Mapping[str, Any]], lab: str) -> dict[str, Mapping[str, Any]]:
    """The lab's containers on other nodes by their names, as ``/cluster/resources`` lists them in ``guests``.

    ``lab``: "" for those of any lab.
    Tags say which may be the lab's, and the mark of each decides; of a node that is down the tags are all there is.
    """
    candidates = [
        guest
        for guest in guests
        if guest.get("name")
        and guest.get("type") == "lxc"
        and guest.get("node") != client.node
        and _may_be_of(str(guest.get("tags", "")), lab)
    ]
    labs = client.many([partial(_lab_of, client, guest) for guest in candidates])
    found: dict[str, Mapping[str, Any]] = {}
    for guest, owner in zip(candidates, labs, strict=True):
        if owner is None or owner == lab or (owner and not lab):
            found[str(guest["name"])] = guest
    return found


def _may_be_of(tags: str, lab: str) -> bool:
    return marks.is_candidate(tags, lab) if lab else marks.TAG in marks.tags_in(tags)


def words(guest: Mapping[str, Any]) -> str:
    """Where such a container is."""
    return f"node {guest['node']}, as CT {guest['vmid']}"


def hint(node: str, guest: Mapping[str, Any]) -> str:
    """What to do about it; ``node``: the host's own."""
    back = f"Bring it back, on node {guest['node']}: pct migrate {guest['vmid']} {node}"
    return f"{back} (--restart where it runs); or write node: {guest['node']} on the host's page."


def _lab_of(client: Client, entry: Mapping[str, Any]) -> str | None:
    """Whose a guest of another node is; None where its node is down, and its tags are all that is known."""
    vmid = int(entry["vmid"])
    try:
        config = client.find("nodes", entry["node"], "lxc", vmid, "config")
    except PveError as error:
        if error.status not in failures.NODE_DOWN:
            raise
        return None
    mark = marks.read(str((config or {}).get("description", "")), vmid)[1]
    return mark.lab if mark else ""
