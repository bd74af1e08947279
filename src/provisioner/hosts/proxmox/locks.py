"""Locks: pools, whose names are unique in a cluster and which the server alone gives; and turns within this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from provisioner.hosts.proxmox import failures
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.failures import PveError
from provisioner.values.plain_data import json_value


def create(client: Client, name: str, properties: Mapping[str, str]) -> bool:
    """Make the lock object; False when the name is taken."""
    try:
        client.post("pools", poolid=name, comment=_comment(properties))
    except PveError as error:
        if failures.is_taken(error):
            return False
        if not error.lost:
            raise
        found = client.find("pools", name)
        if found is None:
            raise
        return _properties(found).get("nonce") == properties.get("nonce")
    return True


def read(client: Client, prefix: str) -> dict[str, dict[str, str]]:
    """The properties of the lock objects whose names begin with ``prefix``."""
    return {pool["poolid"]: _properties(pool) for pool in client.get("pools") if pool["poolid"].startswith(prefix)}


def renew(client: Client, name: str, properties: Mapping[str, str]) -> bool:
    """Write the lock object's properties; False when it is gone or another run's."""
    client = client.hasty
    found = client.find("pools", name)
    if found is None or _properties(found).get("nonce") != properties.get("nonce"):
        return False
    # Pools have no digest to compare with. None is needed: the name is unique, and only the holder of that nonce
    # writes. Should the lock have changed hands since the line above, its holder has been silent for so long that it
    # no longer works by its own clock either, and the new one finds another nonce here and stops, too.
    try:
        client.put("pools", name, comment=_comment(properties))
    except PveError as error:
        if failures.is_missing(error):
            return False
        raise
    return True


def delete(client: Client, name: str) -> None:
    """Delete the lock object; a missing one is success."""
    try:
        client.delete("pools", name)
    except PveError as error:
        if not failures.is_missing(error):
            raise


def _comment(properties: Mapping[str, str]) -> str:
    return json.dumps(dict(properties))


def _properties(found: Mapping[str, Any]) -> dict[str, str]:
    """What is written on a pool; nothing on one that people have made or written on."""
    try:
        written = json_value(str(found.get("comment", "")))
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in written.items()} if isinstance(written, dict) else {}


# Turns in this process: one create, clone or start at a time on each storage of each node, because PVE's own locks
# time out before they are done.

_TURNS: dict[tuple[str, str, str], threading.RLock] = {}
_LOCK = threading.Lock()


@contextmanager
def storage_turn(url: str, node: str, storage: str) -> Iterator[None]:
    """Wait until nobody else of this process works there; nodes and storages go side by side."""
    key = (url.rstrip("/").lower(), node, storage)
    with _LOCK:
        mine = _TURNS.setdefault(key, threading.RLock())
    with mine:
        yield
