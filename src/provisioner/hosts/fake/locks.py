"""Lock objects of the fake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from provisioner.hosts import base
from provisioner.hosts.fake.world import World


class Locks(base.Locks, dict[str, dict[str, str]]):
    """The properties of the lock objects by their names, for tests to set and read; each verb is atomic."""

    kind: ClassVar[str] = "entry"
    removal: ClassVar[str] = "remove {name} from its attribute `locks`"

    _host: World

    def create(self, name: str, properties: Mapping[str, str]) -> bool:
        """Make the lock object, unless there is one of that name."""
        with self._host.mutex:
            made = dict(properties)
            return self.setdefault(name, made) is made

    def read(self, prefix: str) -> dict[str, dict[str, str]]:
        """Copies of the lock objects whose names begin with ``prefix``."""
        with self._host.mutex:
            return {name: dict(found) for name, found in self.items() if name.startswith(prefix)}

    def renew(self, name: str, properties: Mapping[str, str]) -> bool:
        """Replace the lock object's properties, when it is there and its nonce is the same."""
        with self._host.mutex:
            found = self.get(name)
            if found is None or found.get("nonce") != properties.get("nonce"):
                return False
            self[name] = dict(properties)
            return True

    def delete(self, name: str) -> None:
        """Remove the lock object; a missing one is success."""
        with self._host.mutex:
            self.pop(name, None)
