"""Observe the lab on a node in few calls, however many unmanaged containers there are, and one for each of ours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from provisioner.providers.proxmox import marks, moved, templates, volumes
from provisioner.providers.proxmox.guest import Guest, address_in, names_of, snapshots_of
from provisioner.providers.proxmox.host import Entry, ProxmoxHost
from provisioner.providers.proxmox.translate import instance_of
from provisioner.values.state import Fleet, HostState, Instance, Status


@dataclass(frozen=True, slots=True)
class _FirstAnswers:
    """The answers to the first calls: the cluster's guests, the node's containers, what templates there are."""

    cluster: Sequence[Entry]
    entries: Sequence[Entry]
    offers: Sequence[Entry]
    storages: Sequence[str]
    machine: str

    @property
    def pools(self) -> dict[int, str]:
        """The pools of those guests that are in one, by their numbers."""
        pools: dict[int, str] = {}
        for guest in self.cluster:
            if guest.get("pool"):
                pools[int(guest["vmid"])] = str(guest["pool"])
        return pools


def observe(host: ProxmoxHost, lab: str, *, detailed: bool, adopt: Collection[str] = ()) -> Fleet:
    """The containers of ``lab``, and what else the node has."""
    first = _first_answers(host)
    entries = _entries_to_read(first, lab, adopt)
    contents, guests, ready = _second_answers(host, first, entries, detailed=detailed)
    ours = [guest for guest in guests if guest.lab == lab]
    if detailed:
        ours = host.client.many([partial(_detailed, host, guest) for guest in ours])
    elsewhere = moved.elsewhere(host.client, first.cluster, lab)
    state = HostState(
        name=host.host,
        architecture=first.machine,
        processor_flags=host.processor_flags,
        unmanaged=unmanaged(first, ours, host.client.node),
        moved={name: f"on {moved.words(guest)}" for name, guest in sorted(elsewhere.items())},
        moved_hints={name: moved.hint(host.client.node, guest) for name, guest in elsewhere.items()},
        images=templates.gathered(contents, first.offers, first.machine).images,
        volumes=ready,
        adoptable=_adoptable(guests, host.host, adopt),
        image_hint=templates.HINT,
    )
    instances = [instance_of(guest, host.host) for guest in ours]
    instances.sort(key=lambda instance: instance.name)
    return Fleet(lab, tuple(instances), hosts={host.host: state})


def _entries_to_read(first: _FirstAnswers, lab: str, adopt: Collection[str]) -> list[Entry]:
    """The containers whose configuration is read: those with the lab's tags, then those to be adopted."""
    with_tags: dict[int, Entry] = {}
    to_adopt: dict[int, Entry] = {}
    for entry in first.entries:
        vmid = int(entry["vmid"])
        if marks.is_candidate(str(entry.get("tags", "")), lab):
            with_tags[vmid] = entry
        if entry.get("name") in adopt:
            to_adopt[vmid] = entry
    return list((with_tags | to_adopt).values())


def _adoptable(guests: Sequence[Guest], host: str, adopt: Collection[str]) -> dict[str, Instance]:
    """The containers that may be adopted, by name: they are asked for and bear no mark."""
    instances: dict[str, Instance] = {}
    for guest in guests:
        if guest.mark is None and guest.name in adopt:
            instances[guest.name] = instance_of(guest, host)
    return instances


def _first_answers(host: ProxmoxHost) -> _FirstAnswers:
    client = host.client
    node = client.node
    calls: list[Callable[[], Any]] = [
        partial(client.get, "cluster", "resources", type="vm"),
        host.entries,
        partial(client.get, "nodes", node, "aplinfo"),
        partial(templates.storages_of, client),
        lambda: host.machine,
    ]
    return _FirstAnswers(*client.many(calls))


def _second_answers(
    host: ProxmoxHost, first: _FirstAnswers, entries: Sequence[Entry], *, detailed: bool
) -> tuple[list[Any], list[Guest], frozenset[str]]:
    """What is on the storages for templates, the containers in ``entries``, and the artifact volumes that are ready.

    The last only if ``detailed``: a command on the node tells them, and it is the one that looks into containers, too.
    """
    pools = first.pools
    content_calls = templates.calls(host.client, first.storages)
    guest_calls: list[Callable[[], Any]] = []
    for entry in entries:
        pool = pools.get(int(entry["vmid"]), "")
        guest_calls.append(partial(host.guest, entry, pool))
    ready_calls: list[Callable[[], Any]] = []
    if host.shell and detailed:
        ready_calls.append(partial(volumes.ready, host.shell))
    answers = iter(host.client.many([*content_calls, *guest_calls, *ready_calls]))
    contents = list(islice(answers, len(content_calls)))
    guests = list(islice(answers, len(guest_calls)))
    ready: frozenset[str] = next(answers, frozenset())
    return contents, [guest for guest in guests if guest is not None], ready


def _detailed(host: ProxmoxHost, guest: Guest) -> Guest:
    """The same container with its snapshots, and its address when it runs."""
    snapshots = host.client.find(*host.path(guest.vmid, "snapshot")) or []
    interfaces = None
    if guest.status is Status.RUNNING:
        interfaces = host.client.find(*host.path(guest.vmid, "interfaces"))
    return replace(guest, snapshots=snapshots_of(snapshots, guest.vmid), address=address_in(interfaces))


def unmanaged(first: _FirstAnswers, ours: Sequence[Guest], node: str) -> frozenset[str]:
    """The names that guests have on the node which are not this lab's: containers and virtual machines."""
    our_numbers = {guest.vmid for guest in ours}
    our_names = {guest.name for guest in ours}
    other_containers = [entry for entry in first.entries if entry["vmid"] not in our_numbers]
    names = set(names_of(other_containers))
    for guest in first.cluster:
        is_machine_here = guest.get("node") == node and guest.get("type") != "lxc"
        if is_machine_here and guest.get("name"):
            names.add(str(guest["name"]))
    return frozenset(names - our_names)
