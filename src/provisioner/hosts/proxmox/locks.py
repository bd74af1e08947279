"""Locks: pools, whose names are unique in a cluster and which the server alone gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from provisioner.hosts import base
from provisioner.hosts.proxmox import failures
from provisioner.hosts.proxmox.failures import PveError
from provisioner.hosts.proxmox.host import ProxmoxHost, worded
from provisioner.values.plain_data import json_value


class Locks(base.Locks):
    """The pools of one node's cluster that are locks: each write on one is replicated to all nodes."""

    kind: ClassVar[str] = "pool"
    removal: ClassVar[str] = "pvesh delete /pools/{name}"
    heartbeat_s: ClassVar[float] = 30.0
    patience_s: ClassVar[float] = 120.0

    _host: ProxmoxHost

    def create(self, name: str, properties: Mapping[str, str]) -> bool:
        """Make the pool; False when the name is taken."""
        with failures.reachable(
            f"Unable to make lock {name} on host {self._host.host}"
        ):  # nothing was touched before it
            try:
                self._host.client.post("pools", poolid=name, comment=json.dumps(dict(properties)))
            except PveError as error:
                if failures.is_taken(error):
                    return False
                if not error.lost:
                    raise
                found = self._host.client.find("pools", name)
                if found is None:
                    raise
                return _properties(found).get("nonce") == properties.get("nonce")
            return True

    def read(self, prefix: str) -> dict[str, dict[str, str]]:
        """What is written on the pools whose names begin with ``prefix``."""
        with worded(f"Unable to read the locks of host {self._host.host}"):
            pools = self._host.client.get("pools")
        return {pool["poolid"]: _properties(pool) for pool in pools if pool["poolid"].startswith(prefix)}

    def renew(self, name: str, properties: Mapping[str, str]) -> bool:
        """Write on the pool; False when it is gone or another run's."""
        client = self._host.client.hasty
        with worded(f"Unable to renew lock {name} on host {self._host.host}"):
            found = client.find("pools", name)
            if found is None or _properties(found).get("nonce") != properties.get("nonce"):
                return False
            # Pools have no digest to compare with. None is needed: the name is unique, and only the holder of that
            # nonce writes. Should the lock have changed hands since the line above, its holder has been silent for so
            # long that it no longer works by its own clock either, and the new one finds another nonce here and stops.
            try:
                client.put("pools", name, comment=json.dumps(dict(properties)))
            except PveError as error:
                if failures.is_missing(error):
                    return False
                raise
            return True

    def delete(self, name: str) -> None:
        """Delete the pool; a missing one is success."""
        with worded(f"Unable to delete lock {name} on host {self._host.host}"):
            try:
                self._host.client.delete("pools", name)
            except PveError as error:
                if not failures.is_missing(error):
                    raise


def _properties(found: Mapping[str, Any]) -> dict[str, str]:
    """What is written on a pool; nothing on one that people have made or written on."""
    try:
        written = json_value(str(found.get("comment", "")))
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in written.items()} if isinstance(written, dict) else {}
