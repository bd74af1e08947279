"""What a verb was about to do with a container, written on its host until it is done: a killed run's next one reads it.

Only what cannot be seen of the container itself is written down, such as that it ran before it was stopped. It lies
beside the run lock, as an object of the same kind, which a killed run leaves behind and a rollback does not undo.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

from provisioner.values.state import Instance
from provisioner.workflow.effects import Effects

PREFIX = "provisioner-unfinished-"


def note(containers: Iterable[Instance], work: str, effects: Effects) -> None:
    """Write down that ``work`` is begun with these containers; what was written of them before no longer counts."""
    for container in containers:
        provider, name = effects.providers[container.host], _name(container)
        written = {
            "lab": container.lab,
            "host": container.host,
            "container": container.name,
            "work": work,
            "volumes": " ".join(volumes_of(container)),
            "nonce": secrets.token_hex(8),  # by which a host whose answer was lost tells whose it is
        }
        if not provider.create_lock(name, written):
            provider.delete_lock(name)
            provider.create_lock(name, written)


def noted(lab: str, work: str, effects: Effects) -> frozenset[str]:
    """The names of the lab's containers with which ``work`` was begun and not ended."""
    return frozenset(written.get("container", "") for _, written in _read(lab, work, effects).values())


def drop_volumes_of(lab: str, work: str, effects: Effects) -> None:
    """End ``work`` with all containers: delete the volumes that they used, but for those that are still needed."""
    for name, (host, written) in _read(lab, work, effects).items():
        for volume in written.get("volumes", "").split():
            effects.providers[host].delete_volume(volume)
        effects.providers[host].delete_lock(name)


def volumes_of(container: Instance) -> list[str]:
    """The names of the volumes that are mounted in it, or were when a snapshot of it was taken."""
    mounted = {device.properties["volume"] for device in container.devices if device.kind == "volume"}
    return sorted(mounted.union(*(snapshot.volumes for snapshot in container.snapshots)))


def forget(containers: Iterable[Instance], effects: Effects) -> None:
    """It is done, or nobody wants it any more."""
    by_host: dict[str, set[str]] = {}
    for container in containers:
        by_host.setdefault(container.host, set()).add(_name(container))
    for host, names in by_host.items():
        provider = effects.providers[host]
        for name in names.intersection(provider.read_locks(PREFIX)):
            provider.delete_lock(name)


def _read(lab: str, work: str, effects: Effects) -> dict[str, tuple[str, Mapping[str, str]]]:
    """What is written of that work, and on which host, by the objects' names."""
    found: dict[str, tuple[str, Mapping[str, str]]] = {}
    for host, provider in effects.providers.items():
        for name, written in provider.read_locks(f"{PREFIX}{lab}_").items():
            # The nodes of a cluster have these objects in common.
            if (written.get("lab"), written.get("host"), written.get("work")) == (lab, host, work):
                found[name] = (host, written)
    return found


def _name(container: Instance) -> str:
    # No name of a lab or a container has an underscore: two of them never make one.
    return f"{PREFIX}{container.lab}_{container.name}"
