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
    candidates = [guest for guest in guests if _may_be_elsewhere(guest, client.node, lab)]
    owners = client.many([partial(_lab_of, client, guest) for guest in candidates])
    found: dict[str, Mapping[str, Any]] = {}
    for guest, owner in zip(candidates, owners, strict=True):
        is_of_any_lab = bool(owner) and not lab
        if owner is None or owner == lab or is_of_any_lab:
            found[str(guest["name"])] = guest
    return found


def _may_be_elsewhere(guest: Mapping[str, Any], node: str, lab: str) -> bool:
    """Whether a guest is a container on another node whose tags are the lab's; ``lab``: "" for any lab."""
    if not guest.get("name") or guest.get("type") != "lxc" or guest.get("node") == node:
        return False
    tags = str(guest.get("tags", ""))
    if lab:
        return marks.is_candidate(tags, lab)
    return marks.TAG in marks.tags_in(tags)


def words(guest: Mapping[str, Any]) -> str:
    """Where such a container is."""
    return f"node {guest['node']}, as CT {guest['vmid']}"


def hint(node: str, guest: Mapping[str, Any]) -> str:
    """What to do about it; ``node``: the host's own."""
    back = f"Bring it back, on node {guest['node']}: pct migrate {guest['vmid']} {node}"
    return f"{back} (--restart where it runs); or write node: {guest['node']} on the host's page."


def _lab_of(client: Client, entry: Mapping[str, Any]) -> str | None:
    """The lab of a guest on another node, "" for none; None where its node is down, and its tags are all there is."""
    vmid = int(entry["vmid"])
    try:
        config = client.find("nodes", entry["node"], "lxc", vmid, "config") or {}
    except PveError as error:
        if error.status not in failures.NODE_DOWN:
            raise
        return None
    _, mark = marks.read(str(config.get("description", "")), vmid)
    return mark.lab if mark else ""
