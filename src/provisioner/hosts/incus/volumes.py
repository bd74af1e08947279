"""Artifact volumes: custom volumes that many unprivileged containers mount at once, and their one-file exports."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provisioner.hosts import base
from provisioner.hosts.incus import api
from provisioner.hosts.incus.translate import ARTIFACT, READY
from provisioner.values import limits
from provisioner.values.errors import ProviderError

if TYPE_CHECKING:
    from provisioner.hosts.incus.inside import IncusHost

_EXPORT = "provisioner"
_AS_ONE_FILE = {"volume_only": True, "optimized_storage": False, "compression_algorithm": "zstd -1 -T0"}
_IN_USE = "still in use"


class Volumes(base.Volumes):
    """The custom volumes of one host's storage pool."""

    _host: IncusHost

    def ready(self) -> frozenset[str]:
        """The names of artifact volumes whose content is complete."""
        names = set()
        for volume in self._host.client.get(*self._place(), recursion="1"):
            is_complete = volume["config"].get(READY) == "true"
            if is_complete and ARTIFACT in volume["config"]:
                names.add(volume["name"])
        return frozenset(names)

    def builder(self, volume: str) -> str:
        """The name of the container that mounts a volume which is not ready: nothing else does."""
        with self._host.worded(f"Unable to read volume {volume}"):
            found = self._host.client.find(*self._place(volume)) or {"used_by": ()}
            return next((user.rpartition("/")[2].partition("?")[0] for user in found["used_by"]), "")

    def create(self, volume: str, digest: str) -> None:
        """Make the volume empty and not ready; one of that name that is not ready is replaced."""
        what = f"Unable to create volume {volume}"
        with self._host.worded(what):
            found = self._ours(volume)
            if found:
                if found.get(READY) == "true":
                    raise ProviderError(what, details="It is there, and its content is complete.")
                self._host.client.change("delete", *self._place(volume))
            # Shifted: every container sees the files under its own ids, whatever its id map is. The mode of its top
            # folder is kept in its config: an import would make it 0711, which nobody but root can list.
            config = {ARTIFACT: digest, "security.shifted": "true", "initial.mode": "0755"}
            body = {"name": volume, "type": "custom", "content_type": "filesystem", "config": config}
            self._host.client.change("post", *self._place(), body=body)

    def mark_ready(self, volume: str) -> None:
        """Say on the volume itself that its content is complete."""
        with self._host.worded(f"Unable to mark volume {volume}"):
            self._configure(volume, {READY: "true"})

    def delete(self, volume: str) -> None:
        """Delete the volume; a missing one, or one that a container or a snapshot still uses, is success."""
        with self._host.worded(f"Unable to delete volume {volume}"):
            if self._ours(volume) is None or self._is_in_a_snapshot(volume):
                return
            try:
                self._host.client.change("delete", *self._place(volume))
            except api.WireError as error:
                if _IN_USE not in str(error):
                    raise

    def export(self, volume: str, target: Path) -> None:
        """Write the volume as one zstd-compressed file; ``target`` appears when it is whole."""
        from provisioner.hosts.incus import files

        place = self._place(volume, "backups")
        with self._host.worded(f"Unable to export volume {volume}"):
            if self._host.client.find(*place, _EXPORT) is not None:
                self._host.client.change("delete", *place, _EXPORT)
            self._host.client.change("post", *place, body={"name": _EXPORT, **_AS_ONE_FILE})
            try:
                with closing(api.connection_to(self._host.endpoint, limits.SILENCE_S)) as connection:
                    connection.request("GET", api.path_of(*place, _EXPORT, "export"))
                    files.save(api.checked(connection.getresponse()), target)
            finally:
                self._host.client.change("delete", *place, _EXPORT)

    def import_from(self, volume: str, digest: str, source: Path) -> None:
        """Make the volume from an exported file and mark it ready; a half-made one of that name is replaced."""
        with self._host.worded(f"Unable to import volume {volume} from {source}"):
            if self._ours(volume) is not None:
                self._host.client.change("delete", *self._place(volume))
            headers = {"Content-Type": "application/octet-stream", "X-Incus-name": volume}
            headers["Content-Length"] = str(source.stat().st_size)
            connecting = api.connection_to(self._host.endpoint, limits.SILENCE_S)
            with source.open("rb") as file, closing(connecting) as connection:
                connection.request("POST", api.path_of(*self._place()), file, headers)
                operation = api.answer_of(connection.getresponse())["operation"]
            self._host.client.wait(operation)
            self._configure(volume, {ARTIFACT: digest, READY: "true", "security.shifted": "true"})

    def _place(self, *rest: str) -> tuple[str, ...]:
        return ("storage-pools", self._host.pool, "volumes", "custom", *rest)

    def _is_in_a_snapshot(self, volume: str) -> bool:
        """Whether a rollback to a snapshot would need the volume; Incus counts containers only."""
        used = (self._host.pool, volume)
        for instance in self._host.client.get("instances", recursion="1"):
            for snapshot in self._host.client.find("instances", instance["name"], "snapshots", recursion="1") or ():
                for device in snapshot["devices"].values():
                    if (device.get("pool"), device.get("source")) == used:
                        return True
        return False

    def _configure(self, volume: str, config: Mapping[str, str]) -> None:
        # Config and description are written together: a patch with only one of them would empty the other.
        now = self._host.client.get(*self._place(volume))
        body = {"config": now["config"] | config, "description": now["description"]}
        self._host.client.change("put", *self._place(volume), body=body)

    def _ours(self, volume: str) -> Mapping[str, Any] | None:
        """The volume's config, None when there is no such volume; one that we did not make is refused."""
        found = self._host.client.find(*self._place(volume))
        if found is None:
            return None
        if ARTIFACT not in found["config"]:
            details = "A volume of that name is there that provision did not make."
            raise ProviderError(f"Unable to use volume {volume}", details=details, resolution="Rename or delete it.")
        config: Mapping[str, Any] = found["config"]
        return config
