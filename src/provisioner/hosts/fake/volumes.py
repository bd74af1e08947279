"""Artifact volumes of the fake."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from provisioner.hosts import base
from provisioner.hosts.fake.world import World
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance


@dataclass
class Volume:
    """One artifact volume of the fake."""

    digest: str
    ready: bool = False
    content: bytes = b""


class Volumes(base.Volumes, dict[str, Volume]):
    """The volumes by their names, for tests to set and read."""

    _host: World

    def ready(self) -> frozenset[str]:
        """The names of the volumes that are marked ready."""
        return frozenset(name for name, volume in self.items() if volume.ready)

    def builder(self, volume: str) -> str:
        """The container that mounts the volume to write to it."""
        for name, container in self._host.containers.items():
            for device in container.instance.devices:
                if device.properties.get("volume") == volume and device.properties["readonly"] == "false":
                    return name
        return ""

    def create(self, volume: str, digest: str) -> None:
        """Make an empty volume; one that is ready is refused."""
        with self._host.mutex:
            if volume in self and self[volume].ready:
                raise ProviderError(f"Unable to create volume {volume}", details="Its content is complete.")
            self[volume] = Volume(digest)

    def mark_ready(self, volume: str) -> None:
        """Mark the volume ready."""
        self._named(volume, f"Unable to mark volume {volume}").ready = True

    def delete(self, volume: str) -> None:
        """Delete the volume unless a container or a snapshot uses it."""
        with self._host.mutex:
            used: set[str] = set()
            for container in self._host.containers.values():
                states = [state.instance for state in container.states.values()]
                for instance in (container.instance, *states):
                    used.update(volumes_of(instance))
            if volume not in used:
                self.pop(volume, None)

    def export(self, volume: str, target: Path) -> None:
        """Write the volume's content to a file."""
        target.write_bytes(self._named(volume, f"Unable to export volume {volume}").content)

    def import_from(self, volume: str, digest: str, source: Path) -> None:
        """Make the volume from an exported file."""
        content = source.read_bytes()
        with self._host.mutex:
            self[volume] = Volume(digest, ready=True, content=content)

    def require(self, instance: Instance, what: str) -> None:
        """Refuse a container that mounts a volume which is not there."""
        for volume in volumes_of(instance):
            if volume not in self:
                raise ProviderError(what, details=f"Volume {volume} not found")

    def _named(self, name: str, what: str) -> Volume:
        if name not in self:
            raise ProviderError(what, details="There is no such volume.")
        return self[name]


def volumes_of(instance: Instance) -> list[str]:
    """The names of the volumes that are mounted in it."""
    return [device.properties["volume"] for device in instance.devices if device.kind == "volume"]
