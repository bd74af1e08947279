"""Commands and files in containers: all that a worker of Ansible needs of one Incus, without pylxd.

An ejected lab takes this module and what it imports along (``KIND`` of ``provisioner.hosts.incus``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

from provisioner.hosts.incus import api
from provisioner.hosts.incus.api import Client, Endpoint, WireError, local_endpoint
from provisioner.hosts.incus.translate import LAB, instance_of, is_root
from provisioner.values import limits
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.state import Execution, Instance

PROFILE = "default"
_JUST_CHANGING = "Invalid PID"


class IncusHost:
    """One Incus host, reached through its unix socket or over https."""

    def __init__(self, host: str, *, endpoint: Endpoint | None = None, profile: str = PROFILE) -> None:
        self.host = host
        self.endpoint = endpoint or local_endpoint()
        self.profile = profile
        """Its root disk says which storage pool is used, its ``eth0`` which bridge."""
        self.client = Client(self.endpoint)
        self.on_progress: Callable[[str, str], None] = lambda _name, _message: None

    def worded(self, message: str) -> AbstractContextManager[None]:
        """Turn whatever Incus answers meanwhile into a ``ProviderError`` that begins with ``message``."""
        return api.worded(message, self.endpoint, lambda: self.pool)

    def require_here(self, what: str) -> None:
        """Raise ``UnavailableError`` where Incus is on another machine than this one."""
        if self.endpoint.is_remote:
            raise UnavailableError(
                f"Unable to {what}: host {self.host} is an Incus elsewhere ({self.endpoint})",
                resolution="Run provision on that machine, with { incus: local }.",
            )

    def _change_state(self, name: str, action: str, **options: Any) -> None:
        self.client.change("put", "instances", name, "state", body={"action": action, **options})

    def _stop_by_force(self, name: str) -> None:
        from provisioner.hosts.incus import stopping

        stopping.stop_by_force(self.client, name)

    def read_back(self, name: str) -> Instance:
        """A container that was just made or changed."""
        return instance_of(self.whole(name) or self.client.get("instances", name), self.host)

    def whole(self, name: str) -> Mapping[str, Any] | None:
        """What Incus says of a container with its state and snapshots; None when there is none."""
        try:
            found: Mapping[str, Any] | None = self.client.find("instances", name, recursion="1")
        except WireError as error:
            if _JUST_CHANGING not in str(error):
                raise
            return self._without_state(name)
        return found

    def _without_state(self, name: str) -> Mapping[str, Any] | None:
        """The container without its state, which Incus does not give while it is just starting or stopping."""
        found = self.client.find("instances", name)
        kept = self.client.find("instances", name, "snapshots", recursion="1")
        return None if found is None else {**found, "snapshots": kept}

    def owned(self, instance: Instance, verb: str) -> Mapping[str, Any]:
        """What Incus says of the container; empty when there is none, ``ProviderError`` when it is not this lab's."""
        found: Mapping[str, Any] = self.client.find("instances", instance.name) or {}
        if found and found["config"].get(LAB) != instance.lab:
            raise ProviderError(
                f"Unable to {verb} container {instance.name}",
                details=f"It does not bear the mark of lab {instance.lab}: provision did not make it.",
                resolution="Choose another name in the file; provision never touches what it did not make.",
            )
        return found

    def existing(self, instance: Instance, verb: str) -> Mapping[str, Any]:
        """What Incus says of the container of this lab; ``ProviderError`` when there is none."""
        found = self.owned(instance, verb)
        if not found:
            raise ProviderError(f"Unable to {verb} container {instance.name}", details="There is none of that name.")
        return found

    def _require_image(self, instance: Instance) -> None:
        if self.client.find("images", "aliases", instance.image) is None:
            there = sorted(alias["name"] for alias in self.client.get("images", "aliases", recursion="1"))
            raise ProviderError(
                f"Unable to create container {instance.name}: image {instance.image} not found",
                details="Images there: " + (", ".join(there) or "none"),
                resolution=self.endpoint.prepare(f" --image {instance.image}"),
            )

    @cached_property
    def root_disk(self) -> Mapping[str, str]:
        """The root disk of the profile, which each container has unless it has one of its own."""
        with api.reachable(self.endpoint):
            devices = self.profile_devices
        root = next((device for device in devices.values() if is_root(device)), None)
        if root is None:
            raise UnavailableError(
                f"Unable to use profile {self.profile} of host {self.host}",
                details="It has no root disk, so there is no storage pool to use.",
                resolution=self.endpoint.prepare(),
            )
        return root

    @cached_property
    def profile_devices(self) -> Mapping[str, Mapping[str, str]]:
        """The devices of the profile."""
        devices: Mapping[str, Mapping[str, str]] = self.client.get("profiles", self.profile)["devices"]
        return devices

    @property
    def network_card(self) -> Mapping[str, str]:
        """The network card of the profile; empty where it has none."""
        return self.profile_devices.get("eth0", {})

    @property
    def pool(self) -> str:
        """The storage pool of all disks and volumes."""
        return self.root_disk["pool"]


class Inside(IncusHost):
    """The verbs that work inside a container."""

    def execute(
        self,
        name: str,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        environment: dict[str, str] | None = None,
        timeout_s: float = limits.COMMAND_S,
        limit: int = limits.OUTPUT_BYTES,
    ) -> Execution:
        """Run ``command`` as root in the container; one that is not there gives 127, one that hangs is killed."""
        from provisioner.hosts.incus import execute

        what = f"Unable to run {command[0]} in container {name}"
        with self.worded(what):
            try:
                return execute.run(
                    self.endpoint,
                    name,
                    command,
                    stdin=stdin,
                    environment=environment,
                    timeout_s=timeout_s,
                    limit=limit,
                )
            except execute.ExecutionTimeoutError as error:
                raise ProviderError(what, details=limits.killed_after(timeout_s)) from error
            except execute.OutputLimitError as error:
                raise ProviderError(what, details=limits.cut_at(limit)) from error

    def push(
        self, name: str, source: Path | bytes, path: str, *, mode: int = 0o600, uid: int = 0, gid: int = 0
    ) -> None:
        """Write a file into the container, streamed, and read back its size."""
        from provisioner.hosts.incus import files

        with self.worded(f"Unable to copy a file to {path} in container {name}"):
            files.push(self.endpoint, name, source, path, mode=mode, uid=uid, gid=gid)

    def pull(self, name: str, path: str, target: Path) -> None:
        """Copy a file out of the container, streamed; ``target`` appears when it is whole."""
        from provisioner.hosts.incus import files

        with self.worded(f"Unable to copy {path} from container {name}"):
            files.pull(self.endpoint, name, path, target)
