"""Lock objects of the fake."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.hosts.fake.world import World


class Locks(World):
    """The verbs about lock objects; each is atomic, as it is on a server."""

    def create_lock(self, name: str, properties: Mapping[str, str]) -> bool:
        """Make the lock object, unless there is one of that name."""
        with self._lock:
            if name in self.locks:
                return False
            self.locks[name] = dict(properties)
            return True

    def read_locks(self, prefix: str) -> dict[str, dict[str, str]]:
        """Copies of the lock objects whose names begin with ``prefix``."""
        with self._lock:
            return {name: dict(found) for name, found in self.locks.items() if name.startswith(prefix)}

    def renew_lock(self, name: str, properties: Mapping[str, str]) -> bool:
        """Replace the lock object's properties, when it is there and its nonce is the same."""
        with self._lock:
            found = self.locks.get(name)
            if found is None or found.get("nonce") != properties.get("nonce"):
                return False
            self.locks[name] = dict(properties)
            return True

    def delete_lock(self, name: str) -> None:
        """Remove the lock object; a missing one is success."""
        with self._lock:
            self.locks.pop(name, None)
