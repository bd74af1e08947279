"""Incus, here or elsewhere: every verb of ``Provider``; pylxd is imported here only, and only by what needs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from provisioner.hosts.base import READY_TIMEOUT_S, Provider
from provisioner.hosts.incus import api, observe, storage
from provisioner.hosts.incus.api import WireError
from provisioner.hosts.incus.inside import Inside
from provisioner.hosts.incus.translate import (
    LAB,
    instance_of,
    ports_of_others,
    publications_of,
    request_for,
    updated,
)
from provisioner.values.errors import ProviderError
from provisioner.values.plan import Change
from provisioner.values.state import Device, Fleet, HostState, Instance, Snapshot

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card
    from provisioner.gpus.health import HostDriver
    from provisioner.hosts.incus import graphics
    from provisioner.hosts.incus.confinement import Confinement
    from provisioner.inside.file_systems import Run
    from provisioner.values.capacity import Capacity
    from provisioner.values.host_facts import HostFact

_PARALLEL = 10


class IncusProvider(Inside, Provider):
    """One Incus host, reached through its unix socket or over https; one object serves many threads."""

    kind: ClassVar[str] = "incus"
    lock_object: ClassVar[str] = "profile"
    lock_removal: ClassVar[str] = "incus profile delete {name}"

    def check_available(self) -> None:
        """Return when Incus answers and this user may use it; ``UnavailableError`` that says what to do, else."""
        with api.reachable(self.endpoint):
            api.require_trust(self.endpoint, self._client.get())

    def observe(self, lab: str, *, detailed: bool = True, adopt: Collection[str] = ()) -> Fleet:
        """The containers of ``lab`` as they are now, and what else the host has."""
        with api.reachable(self.endpoint):
            found, others = observe.divided_by_project(self._client)
            found = self._complete(found)
            moved = observe.in_other_projects(others, lab)
            aliases = self._client.get("images", "aliases", recursion="1")
            server = self._client.get()
            processor_flags = observe.flags_of(self._client, server, is_remote=self.endpoint.is_remote)
            complete = storage.ready(self._client, self._pool)
            ours = [entry for entry in found if entry["config"].get(LAB) == lab]
            ours.sort(key=lambda entry: str(entry["name"]))
            if detailed:
                ours = self._detailed(ours)
            held = self._confinement(lab).read(server, ours)
        names = frozenset(entry["name"] for entry in found)
        our_names = frozenset(entry["name"] for entry in ours)
        state = HostState(
            name=self.host,
            architecture=server["environment"]["kernel_architecture"],
            processor_flags=processor_flags,
            unmanaged=names - our_names,
            images=frozenset(alias["name"] for alias in aliases),
            volumes=complete,
            published=ports_of_others([*found, *others], lab),
            adoptable=self._adoptable(found, adopt) if adopt else {},
            confines=held is not None,
            moved={name: observe.project_text(project) for name, project in moved.items()},
            moved_hints={name: observe.project_hint(name, project) for name, project in moved.items()},
        )
        instances = [replace(instance_of(one, self.host), **(held or {}).get(one["name"], {})) for one in ours]
        return Fleet(lab, tuple(instances), hosts={self.host: state})

    def confine(self, instance: Instance) -> str:
        """Put a list of access rules of its own on the container's network card, as its addresses are now."""
        with self._worded(f"Unable to keep container {instance.name} in"):
            return self._confinement(instance.lab).hold(instance, self._root_disk)

    def _confinement(self, lab: str) -> Confinement:
        from provisioner.hosts.incus.confinement import Confinement

        return Confinement(self._client, lab, self._card)

    def _adoptable(self, found: Sequence[Mapping[str, Any]], names: Collection[str]) -> dict[str, Instance]:
        from provisioner.hosts.incus import containers

        return containers.adoptable(found, names, self.host)

    def review(self, changes: Sequence[Change]) -> tuple[str, ...]:
        """What should be known of the containers that are to be adopted."""
        from provisioner.hosts.incus import containers

        names = [change.container for change in changes if change.action == "adopt"]
        with api.reachable(self.endpoint):
            seen = [found for name in names if (found := self._client.find("instances", name)) is not None]
        return tuple(note for found in seen for note in containers.adoption_notes(found))

    def read(self, reference: str) -> Instance | None:
        """The container of that name, whoever made it; a virtual machine is none."""
        from provisioner.hosts.incus import containers

        with self._worded(f"Unable to look at container {reference}"):
            found = self._whole(reference)
            if found is None or found["type"] != "container":
                return None
            return containers.described_unmarked(self._client, found, self.host)

    def adopt(self, instance: Instance) -> Instance:
        """Put the lab's mark on a container that bears none, and read it back."""
        from provisioner.hosts.incus import containers

        with self._worded(f"Unable to adopt container {instance.name}"):
            marked = partial(containers.with_mark, instance=instance)
            containers.change(self._client, instance.name, marked, self._root_disk)
            return self._read(instance.name)

    def capacity(self, changes: Sequence[Change]) -> Capacity:
        """Return the host's memory, and the storages on which these changes make or enlarge disks."""
        from provisioner.hosts.incus import health  # nothing that a run without changes needs

        with api.reachable(self.endpoint):
            return health.capacity(self._client, self._pool, changes)

    def examine(self, images: Collection[str]) -> tuple[HostFact, ...]:
        """What was seen of this host."""
        from provisioner.hosts.incus import health  # nothing that a run needs

        return health.examine(self.host, self._client, self.profile, lambda: self._pool, images)

    def cards(self) -> tuple[Card, ...]:
        """The cards of this machine, which is the one that a unix socket leads to; those of others cannot be read."""
        self._require_here("look at its graphics cards")
        from provisioner.hosts.incus import gpus  # nothing that a lab without cards needs

        return gpus.cards_here()

    def host_driver(self) -> HostDriver:
        """What this machine does for its cards."""
        self._require_here("look at the drivers of its graphics cards")
        from provisioner.hosts.incus import gpus

        return gpus.host_driver()

    def mend_cards(self) -> str:
        """Start the unit that makes the nodes of this machine's cards, or make them as it does."""
        if self.endpoint.is_remote:
            return ""
        from provisioner.hosts.incus import gpus

        return gpus.mend_cards()

    def publications(self, name: str) -> tuple[Device, ...]:
        """Return the container's proxy devices, those of its profiles included."""
        with self._worded(f"Unable to look at the devices of container {name}"):
            found = self._whole(name)
        return () if found is None else publications_of(found)

    def create(self, instance: Instance) -> Instance:
        """Create the container from a local image, unprivileged and stopped, and read it back."""
        from provisioner.hosts.incus import graphics

        with self._worded(f"Unable to create container {instance.name}"):
            self._require_image(instance)
            body = request_for(instance, self._root_disk, self._pool) | {"profiles": [self.profile]}
            try:
                self._client.change("post", "instances", body=body)
                if graphics.needed_groups(instance.devices):
                    self._make(instance)
            except (WireError, ProviderError) as error:
                if not (isinstance(error, WireError) and api.is_name_clash(error)):
                    self.delete(instance)
                raise
            return self._read(instance.name)

    def update(self, instance: Instance) -> Instance:
        """Make the container what ``instance`` says, and read it back; nesting counts from the next start."""
        from provisioner.hosts.incus import containers

        with self._worded(f"Unable to change container {instance.name}"):
            before = instance_of(self._existing(instance, "change"), self.host)
            with containers.watched_growth(
                before, instance, self._asked_in(instance.name), self._saying(instance), self._pool
            ):
                self._make(instance)
            self._keep_processors(before, instance)
            return self._read(instance.name)

    def _keep_processors(self, before: Instance, wanted: Instance) -> None:
        """Have a changed number of processors count."""
        if wanted.cpu in (None, before.cpu):
            return
        from provisioner.hosts.incus import containers

        host_has = self._client.get("resources")["cpu"]["total"]
        containers.keep_processors(
            before,
            wanted,
            self._asked_in(wanted.name),
            lambda number: self._make(replace(wanted, cpu=number)),
            host_has,
        )

    def _asked_in(self, name: str) -> Run:
        from provisioner.inside import file_systems

        return lambda command: self.execute(name, command, timeout_s=file_systems.TIMEOUT_S)

    def _saying(self, instance: Instance) -> Callable[[str], None]:
        return lambda words: self.on_progress(instance.name, words)

    def _make(self, instance: Instance) -> None:
        from provisioner.hosts.incus import containers, graphics

        needed = graphics.needed_groups(instance.devices)
        groups = self._groups(instance.name, needed) if needed else graphics.NO_GROUPS
        root, pool = self._root_disk, self._pool
        containers.change(self._client, instance.name, lambda body: updated(body, instance, root, pool, groups), root)

    def _groups(self, name: str, needed: Collection[str]) -> graphics.Groups:
        from provisioner.gpus.choice import FILE, numbers_in
        from provisioner.hosts.incus import files

        return numbers_in(files.read(self.endpoint, name, FILE).decode(errors="replace"), needed)

    def start(self, instance: Instance) -> None:
        """Start the container, or resume one that is frozen; a running one is success."""
        from provisioner.hosts.incus import containers

        with self._worded(f"Unable to start container {instance.name}"):
            status = self._owned(instance, "start").get("status")
            if status != "Running":
                # Incus says of a frozen one that it is running already, and starts nothing.
                action = "unfreeze" if status == "Frozen" else "start"
                containers.begin(self._client, self.endpoint, instance.name, action)

    def stop(self, instance: Instance, timeout_s: float | None = None) -> None:
        """Stop it cleanly, by force after ``timeout_s`` or its ``stop_s``; a stopped or missing one is success."""
        from provisioner.hosts.incus import stopping

        patience_s = instance.stop_s if timeout_s is None else timeout_s
        with self._worded(f"Unable to stop container {instance.name}"):
            found = self._owned(instance, "stop")
            if found.get("status", "Stopped") == "Stopped":
                return
            if found["status"] == "Frozen":
                self._change_state(instance.name, "unfreeze")  # it could not hear that it shall stop
            if not stopping.stop_cleanly(self._client, instance.name, patience_s):
                self._stop_by_force(instance.name)

    def delete(self, instance: Instance) -> None:
        """Delete the container, running or not; a missing one is success, one without this lab's mark is refused."""
        with self._worded(f"Unable to delete container {instance.name}"):
            found = self._owned(instance, "delete")
            if not found:
                return
            if found["status"] != "Stopped":
                self._stop_by_force(instance.name)
            self._client.change("delete", "instances", instance.name)
            self._confinement(instance.lab).delete(instance.name)

    def wait_until_ready(self, instance: Instance, timeout_s: float = READY_TIMEOUT_S) -> Instance:
        """Block until systemd has started and the container has an IPv4 address, and read it back."""
        from provisioner.hosts.incus import containers

        with self._worded(f"Unable to wait for container {instance.name}"):
            containers.wait_until_ready(self._client, instance.name, timeout_s, self._saying(instance))
            return self._read(instance.name)

    def snapshot(self, instance: Instance, name: str) -> Snapshot:
        """Take a snapshot of the container, running or not; it stays until it is deleted."""
        from provisioner.hosts.incus import snapshots

        with self._worded(f"Unable to take snapshot {name} of container {instance.name}"):
            self._existing(instance, "take a snapshot of")
            return snapshots.take(self._client, instance.name, name)

    def delete_snapshot(self, instance: Instance, name: str) -> None:
        """Delete the snapshot; a missing one is success."""
        from provisioner.hosts.incus import snapshots

        with self._worded(f"Unable to delete snapshot {name} of container {instance.name}"):
            self._owned(instance, "delete a snapshot of")
            snapshots.delete(self._client, instance.name, name)

    def rollback(self, instance: Instance, name: str) -> Instance:
        """Stop the container, make it what the snapshot holds, and start it again if it was running."""
        from provisioner.hosts.incus import snapshots

        with self._worded(f"Unable to roll container {instance.name} back to snapshot {name}"):
            was_stopped = self._existing(instance, "roll back")["status"] == "Stopped"
            snapshots.require(self._client, instance.name, name, (LAB, instance.lab))
            # Incus would stop a running one itself, and now and then leaves it stopped with the error "In use".
            self.stop(instance)
            try:
                snapshots.restore(self._client, instance.name, name)
            finally:
                if not was_stopped:
                    self.start(instance)
            return self._read(instance.name)

    def snapshot_obstacle(self, instance: Instance) -> str:
        """The writable volumes and folders that are mounted in it."""
        from provisioner.hosts.incus import snapshots

        with self._worded(f"Unable to look at container {instance.name}"):
            return snapshots.obstacle(self._client.get("instances", instance.name))

    def clone(self, instance: Instance, name: str) -> Instance:
        """Copy the container as it is now, running or not, and read the copy back."""
        from provisioner.hosts.incus import snapshots

        with self._worded(f"Unable to clone container {instance.name} as {name}"):
            self._existing(instance, "clone")
            snapshots.copy(self._client, instance.name, name, self._root_disk)
            return self._read(name)

    def create_volume(self, volume: str, digest: str) -> None:
        """Make an empty artifact volume, not ready yet; a half-made one of that name is replaced."""
        with self._worded(f"Unable to create volume {volume}"):
            storage.create(self._client, self._pool, volume, digest)

    def mark_volume_ready(self, volume: str) -> None:
        """Say that the volume's content is complete."""
        with self._worded(f"Unable to mark volume {volume}"):
            storage.mark_ready(self._client, self._pool, volume)

    def delete_volume(self, volume: str) -> None:
        """Delete an artifact volume; a missing one is success, one still in use is left."""
        with self._worded(f"Unable to delete volume {volume}"):
            storage.delete(self._client, self._pool, volume)

    def export_volume(self, volume: str, target: Path) -> None:
        """Write the volume's content as one compressed file that appears when it is whole."""
        with self._worded(f"Unable to export volume {volume}"):
            storage.export(self._client, self._pool, volume, target)

    def import_volume(self, volume: str, digest: str, source: Path) -> None:
        """Make the volume from an exported file and mark it ready."""
        with self._worded(f"Unable to import volume {volume} from {source}"):
            storage.restore(self._client, self._pool, volume, digest, source)

    def create_lock(self, name: str, properties: Mapping[str, str]) -> bool:
        """Make the profile ``name``; False when there is one."""
        from provisioner.hosts.incus import locks

        with self._worded(f"Unable to make lock {name} on host {self.host}"):
            return locks.create(self._client, name, properties)

    def read_locks(self, prefix: str) -> dict[str, dict[str, str]]:
        """What is written on the profiles whose names begin with ``prefix``."""
        from provisioner.hosts.incus import locks

        with self._worded(f"Unable to read the locks of host {self.host}"):
            return locks.read(self._client, prefix)

    def renew_lock(self, name: str, properties: Mapping[str, str]) -> bool:
        """Write on the profile; False when it is gone or somebody else's."""
        from provisioner.hosts.incus import locks

        with self._worded(f"Unable to renew lock {name} on host {self.host}"):
            return locks.renew(self._client, name, properties)

    def delete_lock(self, name: str) -> None:
        """Delete the profile; a missing one is success."""
        from provisioner.hosts.incus import locks

        with self._worded(f"Unable to delete lock {name} on host {self.host}"):
            locks.delete(self._client, name)

    def connection_variables(self, name: str) -> dict[str, str]:
        """Our connection plugin, and where Incus is."""
        return {
            "ansible_connection": "provision_incus",
            "provision_instance": name,
            **self.endpoint.variables,
        }

    def attach(
        self,
        name: str,
        command: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        terminal: bool,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Run ``command`` as root in the container, its streams joined to ours while it runs."""
        from provisioner.hosts.incus import attach  # a terminal is nothing that every run needs

        with self._worded(f"Unable to run {command[0]} in container {name}"):
            ends = attach.Ends(stdin, stdout, stderr, terminal)
            return attach.attach(self.endpoint, name, command, ends, environment)

    def _detailed(self, found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The containers with their states and snapshots, each asked for by its name.

        A listing with the states of all fails as a whole when any container of the host just starts or stops.
        """
        with ThreadPoolExecutor(_PARALLEL) as pool:
            entries = pool.map(lambda entry: self._whole(entry["name"]), found)
            return [entry for entry in entries if entry is not None]

    def _complete(self, found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The containers with their marks: one that is just starting or stopping is listed as an error without any."""
        complete: list[Mapping[str, Any]] = []
        for entry in found:
            has_mark = entry["config"] is not None
            whole = entry if has_mark else self._without_state(entry["name"])
            if whole is not None:
                complete.append(whole)
        return complete
