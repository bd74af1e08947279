"""A provider in memory, as faithful as the contract suite can tell: for tests, and for trying the program out.

What fails is said by state, not by scripted calls: a pool with no room, an image that is not there, a container that
never comes up.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from provisioner.gpus.cards import Card
from provisioner.hosts.base import READY_TIMEOUT_S, Provider
from provisioner.hosts.fake.locks import Locks
from provisioner.hosts.fake.programs import PROGRAMS
from provisioner.hosts.fake.snapshots import Snapshots
from provisioner.hosts.fake.world import Container, Program, Volume, World, volumes_of
from provisioner.values import limits
from provisioner.values.capacity import Capacity, Disk
from provisioner.values.errors import ProviderError, ReadyTimeoutError, UnavailableError
from provisioner.values.plan import Change
from provisioner.values.state import Device, Execution, Fleet, HostState, Instance, Status

__all__ = ["Container", "FakeProvider", "Volume"]


class FakeProvider(Snapshots, Locks, Provider):
    """A host that exists in this process only; its attributes are the state of its world, for tests to set and read."""

    kind: ClassVar[str] = "fake"
    lock_object: ClassVar[str] = "entry"
    lock_removal: ClassVar[str] = "remove {name} from its attribute `locks`"

    def __init__(self, host: str, *, images: Sequence[str] = ("debian/12", "debian/13"), room: int = 1000) -> None:
        World.__init__(self, images, room)
        Provider.__init__(self, host)
        self.programs: dict[str, Program] = dict(PROGRAMS)

    def check_available(self) -> None:
        """Return, unless ``available`` is False."""
        if not self.available:
            raise UnavailableError(f"Unable to reach host {self.host}", resolution="Set its attribute `available`.")

    def observe(self, lab: str, *, detailed: bool = True, adopt: Collection[str] = ()) -> Fleet:
        """The containers of ``lab``, and the names of all others."""
        self.check_available()
        with self._lock:
            there = [container.instance for container in self.containers.values()]
            complete = frozenset(name for name, volume in self.volumes.items() if volume.ready)
        if not detailed:
            there = [replace(instance, address=None, snapshots=()) for instance in there]
        ours = sorted((instance for instance in there if instance.lab == lab), key=lambda instance: instance.name)
        state = HostState(
            self.host,
            self.architecture,
            self.processor_flags,
            unmanaged=frozenset(instance.name for instance in there if instance.lab != lab),
            images=frozenset(self.images),
            volumes=complete,
            published=self.published,
            moved=dict(self.elsewhere),
            moved_hints=dict.fromkeys(self.elsewhere, "Bring it back."),
            confines=self.confines,
            adoptable={instance.name: instance for instance in there if instance.name in adopt and not instance.lab},
        )
        return Fleet(lab, tuple(ours), hosts={self.host: state})

    def read(self, reference: str) -> Instance | None:
        """The container of that name; the fake has no other ids."""
        self.check_available()
        found = self.containers.get(reference)
        return found.instance if found else None

    def adopt(self, instance: Instance) -> Instance:
        """Mark a container that is no lab's as the lab's, and remember its image."""
        what = f"Unable to adopt container {instance.name}"
        with self._lock:
            container = self._container(instance.name, what)
            if container.instance.lab not in ("", instance.lab):
                raise ProviderError(what, details=f"It bears the mark of lab {container.instance.lab}.")
            if not container.instance.lab:
                container.instance = replace(container.instance, lab=instance.lab, image=instance.image)
            return container.instance

    def confine(self, instance: Instance) -> str:
        """Note what the container is held to."""
        container = self._existing(instance, "keep in")
        container.instance = replace(container.instance, reaches=instance.reaches, refused_by=self.refusal)
        return self.refusal

    def publications(self, name: str) -> tuple[Device, ...]:
        """Return those of the container, and of ``profile``."""
        devices = (*self._container(name, f"Unable to look at container {name}").instance.devices, *self.profile)
        return tuple(device for device in devices if device.kind == "publish")

    def cards(self) -> tuple[Card, ...]:
        """The host's cards."""
        self.check_available()
        return self.graphics

    def capacity(self, changes: Sequence[Change]) -> Capacity:
        """Return its ``memory``, and its ``pool`` with all new and larger disks."""
        pool = self.pool
        for change in changes:
            if isinstance(change.after, Instance) and change.disk_growth > 0:
                pool = pool.with_disk(Disk(change.target, change.after.disk or 0, change.disk_growth))
        return Capacity(self.memory, (pool,))

    def create(self, instance: Instance) -> Instance:
        """Create the container when its image and volumes are there, its name is free and the pool has room."""
        what = f"Unable to create container {instance.name}"
        with self._lock:
            if instance.image not in self.images:
                there = ", ".join(sorted(self.images)) or "none"
                raise ProviderError(f"{what}: image {instance.image} not found", details=f"Images there: {there}")
            self.on_progress(instance.name, f"unpack image {instance.image}")
            self._require_room(instance.name, what)
            self._require_volumes(instance, what)
            altered = replace(instance, **self.alters)  # type: ignore[arg-type]
            made = replace(altered, services=(), status=Status.STOPPED, address=None)
            self.containers[instance.name] = Container(made)
            return made

    def update(self, instance: Instance) -> Instance:
        """Make the container what ``instance`` says, when its volumes are there."""
        what = f"Unable to change container {instance.name}"
        with self._lock:
            container = self._existing(instance, "change")
            self._require_volumes(instance, what)
            wanted = {name: getattr(instance, name) for name in ("cpu", "memory", "disk", "nesting", "devices")}
            container.instance = replace(container.instance, **wanted | self.alters)
            return container.instance

    def start(self, instance: Instance) -> None:
        """Start the container; it gets an address when it is ready."""
        container = self._owned(instance, "start")
        if container is None:
            raise ProviderError(f"Unable to start container {instance.name}", details="There is none.")
        container.instance = replace(container.instance, status=Status.RUNNING)

    def stop(self, instance: Instance, timeout_s: float | None = None) -> None:
        """Stop the container; a stopped or missing one is success. No time passes."""
        container = self._owned(instance, "stop")
        if container is not None:
            self._note_end(container.instance, instance.stop_s if timeout_s is None else timeout_s)
            container.instance = replace(container.instance, status=Status.STOPPED, address=None)

    def delete(self, instance: Instance) -> None:
        """Delete the container; a missing one is success, another lab's is refused."""
        with self._lock:
            container = self._owned(instance, "delete")
            if container is not None:
                self._note_end(container.instance, 0.0)
                del self.containers[instance.name]

    def _note_end(self, running: Instance, patience_s: float) -> None:
        """Note that it is ended by force where it takes longer than that."""
        if running.status is Status.RUNNING and self.stops_in.get(running.name, 0.0) > patience_s:
            self.killed.add(running.name)

    def wait_until_ready(self, instance: Instance, timeout_s: float = READY_TIMEOUT_S) -> Instance:
        """Give the container an address, unless it is one of ``never_ready``."""
        container = self._container(instance.name, f"Unable to wait for container {instance.name}")
        if instance.name in self.never_ready or container.instance.status is not Status.RUNNING:
            details = f"It was not ready after {timeout_s:.0f} s.\nThe end of its console:\n(empty)"
            raise ReadyTimeoutError(f"Unable to start container {instance.name}", details=details)
        with self._lock:
            number = sorted(self.containers).index(instance.name) + 2
            container.instance = replace(container.instance, address=f"192.0.2.{number}")
        return container.instance

    def execute(
        self,
        name: str,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        environment: dict[str, str] | None = None,
        timeout_s: float = limits.COMMAND_S,  # noqa: ARG002 - its programs end at once
        limit: int = limits.OUTPUT_BYTES,  # noqa: ARG002 - they say what they are made to say
    ) -> Execution:
        """Run one of ``programs``; any other command is missing (127), as it would be in an empty container."""
        what = f"Unable to run {command[0]} in container {name}"
        container = self._container(name, what)
        if container.instance.status is not Status.RUNNING:
            raise ProviderError(what, details="It is not running.")
        program = self.programs.get(command[0])
        if program is None:
            return Execution(127, b"", b"Command not found")
        return program(container, command, stdin, environment or {})

    def push(
        self, name: str, source: Path | bytes, path: str, *, mode: int = 0o600, uid: int = 0, gid: int = 0
    ) -> None:
        """Store the file's bytes and mode; root owns everything here."""
        if (uid, gid) != (0, 0):
            raise NotImplementedError("the fake knows no other owner than root")
        container = self._container(name, f"Unable to copy a file to {path} in container {name}")
        content = source if isinstance(source, bytes) else source.read_bytes()
        container.files[path], container.modes[path] = content, mode

    def pull(self, name: str, path: str, target: Path) -> None:
        """Give a file's bytes back."""
        what = f"Unable to copy {path} from container {name}"
        files = self._container(name, what).files
        if path not in files:
            raise ProviderError(what, details="Not Found")
        target.write_bytes(files[path])

    def create_volume(self, volume: str, digest: str) -> None:
        """Make an empty volume; one that is ready is refused."""
        with self._lock:
            if volume in self.volumes and self.volumes[volume].ready:
                raise ProviderError(f"Unable to create volume {volume}", details="Its content is complete.")
            self.volumes[volume] = Volume(digest)

    def mark_volume_ready(self, volume: str) -> None:
        """Mark the volume ready."""
        self._volume(volume, f"Unable to mark volume {volume}").ready = True

    def delete_volume(self, volume: str) -> None:
        """Delete the volume unless a container or a snapshot uses it."""
        with self._lock:
            used: set[str] = set()
            for container in self.containers.values():
                states = [state.instance for state in container.states.values()]
                for instance in (container.instance, *states):
                    used.update(volumes_of(instance))
            if volume not in used:
                self.volumes.pop(volume, None)

    def export_volume(self, volume: str, target: Path) -> None:
        """Write the volume's content to a file."""
        target.write_bytes(self._volume(volume, f"Unable to export volume {volume}").content)

    def import_volume(self, volume: str, digest: str, source: Path) -> None:
        """Make the volume from an exported file."""
        content = source.read_bytes()
        with self._lock:
            self.volumes[volume] = Volume(digest, ready=True, content=content)

    def connection_variables(self, name: str) -> dict[str, str]:
        """Ansible cannot reach a container that exists only here; the variables say so."""
        return {"ansible_connection": "fake", "provision_instance": name}

    def address(self, name: str) -> str | None:
        """What it was given when it was ready."""
        found = self.containers.get(name)
        return found.instance.address if found else None

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
        """Give the program all of ``stdin``, then write all that it gave; a terminal's input is not read."""
        given = b""
        if not terminal:
            with os.fdopen(os.dup(stdin), "rb") as stream:
                given = stream.read()
        done = self.execute(name, command, stdin=given, environment=dict(environment or {}))
        for descriptor, output in ((stdout, done.stdout), (stderr, done.stderr)):
            with os.fdopen(os.dup(descriptor), "wb") as stream:
                stream.write(output)
        return done.returncode
