"""The lab on a node as it is now: few calls, however many strangers there are, and one more for each of ours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from provisioner.providers.proxmox import marks, moved, templates, volumes
from provisioner.providers.proxmox.guest import Guest, address_in, names_of, snapshots_of
from provisioner.providers.proxmox.host import Entry, ProxmoxHost
from provisioner.providers.proxmox.translate import instance_of
from provisioner.state import Fleet, HostState, Status


@dataclass(frozen=True, slots=True)
class _Look:
    """What the first round of questions gave: the cluster's guests, the node's containers, what templates there are."""

    cluster: Sequence[Entry]
    entries: Sequence[Entry]
    offers: Sequence[Entry]
    storages: Sequence[str]
    machine: str

    @property
    def pools(self) -> dict[int, str]:
        """The pools of guests; of those that are in one."""
        return {int(one["vmid"]): str(one["pool"]) for one in self.cluster if one.get("pool")}


def observe(host: ProxmoxHost, lab: str, *, detailed: bool, adopt: Collection[str] = ()) -> Fleet:
    """The containers of ``lab``, and what else the node has."""
    look = _look(host)
    named = [one for one in look.entries if one.get("name") in adopt]
    candidates = [one for one in look.entries if marks.is_candidate(str(one.get("tags", "")), lab)]
    asked = {int(one["vmid"]): one for one in (*candidates, *named)}
    contents, guests, ready = _second_look(host, look, list(asked.values()), detailed=detailed)
    ours = [one for one in guests if one.lab == lab]
    if detailed:
        ours = host.client.many([partial(_detailed, host, one) for one in ours])
    elsewhere = moved.elsewhere(host.client, look.cluster, lab)
    state = HostState(
        name=host.host,
        architecture=look.machine,
        strangers=_strangers(look, ours, host.client.node),
        moved={name: f"on {moved.words(guest)}" for name, guest in sorted(elsewhere.items())},
        moved_hints={name: moved.hint(host.client.node, guest) for name, guest in elsewhere.items()},
        images=templates.gathered(contents, look.offers, look.machine).images,
        volumes=ready,
        adoptable={one.name: instance_of(one, host.host) for one in guests if one.mark is None and one.name in adopt},
        image_hint=templates.HINT,
    )
    found = sorted((instance_of(one, host.host) for one in ours), key=lambda one: one.name)
    return Fleet(lab, tuple(found), hosts={host.host: state})


def _look(host: ProxmoxHost) -> _Look:
    client = host.client
    node = client.node
    calls: list[Callable[[], Any]] = [
        partial(client.get, "cluster", "resources", type="vm"),
        host.entries,
        partial(client.get, "nodes", node, "aplinfo"),
        partial(templates.storages_of, client),
        lambda: host.machine,
    ]
    return _Look(*client.many(calls))


def _second_look(
    host: ProxmoxHost, look: _Look, entries: Sequence[Entry], *, detailed: bool
) -> tuple[list[Any], list[Guest], frozenset[str]]:
    """What is on the storages for templates, the containers in ``entries``, and the artifact volumes that are ready.

    The last only if ``detailed``: a command on the node tells them, and it is the one that looks into containers, too.
    """
    contents = templates.calls(host.client, look.storages)
    pools = look.pools
    guests: list[Callable[[], Any]] = [partial(host.guest, one, pools.get(int(one["vmid"]), "")) for one in entries]
    ready: list[Callable[[], Any]] = [partial(volumes.ready, host.shell)] if host.shell and detailed else []
    found = host.client.many([*contents, *guests, *ready])
    seen = [one for one in found[len(contents) : len(contents) + len(guests)] if one is not None]
    return found[: len(contents)], seen, found[-1] if ready else frozenset()


def _detailed(host: ProxmoxHost, guest: Guest) -> Guest:
    """The same with its snapshots, and its address when it runs."""
    kept = host.client.find(*host.path(guest.vmid, "snapshot")) or []
    interfaces = None
    if guest.status is Status.RUNNING:
        interfaces = host.client.find(*host.path(guest.vmid, "interfaces"))
    return replace(guest, snapshots=snapshots_of(kept, guest.vmid), address=address_in(interfaces))


def _strangers(look: _Look, ours: Sequence[Guest], node: str) -> frozenset[str]:
    """The names that others have on the node."""
    own = {one.vmid for one in ours}
    containers = names_of([one for one in look.entries if one["vmid"] not in own])
    others = [one for one in look.cluster if one.get("name")]
    machines = {str(one["name"]) for one in others if one.get("node") == node and one.get("type") != "lxc"}
    return (containers | machines) - {one.name for one in ours}
