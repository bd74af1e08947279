"""A provider in memory, as faithful as the contract suite can tell: for tests, and for trying the program out.

What fails is said by state, not by scripted calls: a pool with no room, an image that is not there, a container that
never comes up.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from provisioner.hosts.base import READY_TIMEOUT_S, Kind, Provider
from provisioner.hosts.fake.cards import Cards
from provisioner.hosts.fake.locks import Locks
from provisioner.hosts.fake.volumes import Volume, Volumes
from provisioner.hosts.fake.world import PROGRAMS, Container, Program, World, asks_dhcp
from provisioner.values import limits
from provisioner.values.errors import ProviderError, ReadyTimeoutError, UnavailableError
from provisioner.values.host_facts import Capacity, Disk
from provisioner.values.plan import Change
from provisioner.values.state import Execution, Fleet, HostState, Instance, Status

__all__ = ["Container", "FakeProvider", "Volume"]


_CHANGED = ("cpu", "memory", "disk", "nesting", "devices", "settings")
"""The attributes of a container that a change may concern."""


class FakeProvider(World, Provider):
    """A host that exists in this process only; its attributes are the state of its world, for tests to set and read."""

    kind: ClassVar[str] = "fake"
    locks: cached_property[Locks]
    volumes: cached_property[Volumes]
    cards: cached_property[Cards]

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
        with self.mutex:
            there = [container.instance for container in self.containers.values()]
        if not detailed:
            there = [replace(instance, address=None, snapshots=()) for instance in there]
        ours = sorted((instance for instance in there if instance.lab == lab), key=lambda instance: instance.name)
        state = HostState(
            self.host,
            self.architecture,
            self.processor_flags,
            unmanaged=frozenset(instance.name for instance in there if instance.lab != lab),
            images=frozenset(self.images),
            volumes=self.volumes.ready(),
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
        with self.mutex:
            container = self.container(instance.name, what)
            if container.instance.lab not in ("", instance.lab):
                raise ProviderError(what, details=f"It bears the mark of lab {container.instance.lab}.")
            if not container.instance.lab:
                container.instance = replace(container.instance, lab=instance.lab, image=instance.image)
            return container.instance

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
        with self.mutex:
            if instance.image not in self.images:
                there = ", ".join(sorted(self.images)) or "none"
                raise ProviderError(f"{what}: image {instance.image} not found", details=f"Images there: {there}")
            self.on_progress(instance.name, f"unpack image {instance.image}")
            self.require_room(instance.name, what)
            self.volumes.require(instance, what)
            altered = replace(instance, **self.alters)  # type: ignore[arg-type]
            made = replace(altered, services=(), status=Status.STOPPED, address=None)
            self.containers[instance.name] = Container(made)
            return made

    def update(self, instance: Instance) -> Instance:
        """Make the container what ``instance`` says, when its volumes are there."""
        what = f"Unable to change container {instance.name}"
        with self.mutex:
            container = self.existing(instance, "change")
            self.volumes.require(instance, what)
            wanted = {name: getattr(instance, name) for name in _CHANGED}
            container.instance = replace(container.instance, **wanted | self.alters)
            return container.instance

    def start(self, instance: Instance) -> None:
        """Start the container; it gets an address when it is ready."""
        container = self.existing(instance, "start")
        container.instance = replace(container.instance, status=Status.RUNNING)

    def stop(self, instance: Instance, timeout_s: float | None = None) -> None:
        """Stop the container; a stopped or missing one is success. No time passes."""
        container = self.owned(instance, "stop")
        if container is not None:
            self._note_end(container.instance, instance.stop_s if timeout_s is None else timeout_s)
            container.instance = replace(container.instance, status=Status.STOPPED, address=None)

    def delete(self, instance: Instance) -> None:
        """Delete the container; a missing one is success, another lab's is refused."""
        with self.mutex:
            container = self.owned(instance, "delete")
            if container is not None:
                self._note_end(container.instance, 0.0)
                del self.containers[instance.name]

    def _note_end(self, running: Instance, patience_s: float) -> None:
        """Note that it is ended by force where it takes longer than that."""
        if running.status is Status.RUNNING and self.stops_in.get(running.name, 0.0) > patience_s:
            self.killed.add(running.name)

    def wait_until_ready(self, instance: Instance, timeout_s: float = READY_TIMEOUT_S) -> Instance:
        """Give the container an address, unless it is one of ``never_ready`` or asks for one that nobody gives."""
        container = self.container(instance.name, f"Unable to wait for container {instance.name}")
        is_in_vain = instance.name in self.never_ready or (not self.dhcp and asks_dhcp(container.instance))
        if is_in_vain or container.instance.status is not Status.RUNNING:
            details = f"It was not ready after {timeout_s:.0f} s.\nThe end of its console:\n(empty)"
            raise ReadyTimeoutError(f"Unable to start container {instance.name}", details=details)
        with self.mutex:
            number = sorted(self.containers).index(instance.name) + 2
            container.instance = replace(container.instance, address=f"192.0.2.{number}")
        return container.instance

    def clone(self, instance: Instance, name: str) -> Instance:
        """Copy what it is now, stopped and unpublished, with no fixed address."""
        what = f"Unable to clone container {instance.name} as {name}"
        with self.mutex:
            source = self.existing(instance, "clone")
            self.require_room(name, what)
            state = source.state()
            devices = tuple(device for device in state.instance.devices if device.kind != "publish")
            settings = dict(state.instance.settings)
            settings.pop("network", None)
            copy = replace(state.instance, name=name, devices=devices, settings=settings)
            made = replace(copy, status=Status.STOPPED, address=None, snapshots=())
            self.containers[name] = Container(made, state.files, state.modes)
            return made

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
        container = self.container(name, what)
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
        container = self.container(name, f"Unable to copy a file to {path} in container {name}")
        content = source if isinstance(source, bytes) else source.read_bytes()
        container.files[path], container.modes[path] = content, mode

    def pull(self, name: str, path: str, target: Path) -> None:
        """Give a file's bytes back."""
        what = f"Unable to copy {path} from container {name}"
        files = self.container(name, what).files
        if path not in files:
            raise ProviderError(what, details="Not Found")
        target.write_bytes(files[path])

    def connection_variables(self, name: str) -> dict[str, str]:
        """Ansible cannot reach a container that exists only here; the variables say so."""
        return {"ansible_connection": "fake", "provision_instance": name}

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


KIND = Kind(lambda *_page: {}, start_command="start {name}")
DRIVER = FakeProvider
