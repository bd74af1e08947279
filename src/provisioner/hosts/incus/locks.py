"""Lock objects: profiles, because their names are unique and the server alone decides who made one."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from provisioner.hosts import base
from provisioner.hosts.incus import api
from provisioner.hosts.incus.api import WireError

if TYPE_CHECKING:
    from provisioner.hosts.incus.inside import IncusHost

_KEY = "user.provisioner."
_DESCRIPTION = "Run lock of provision; it goes when its run ends, and a dead run's is taken over"
_ATTEMPTS = 5


class Locks(base.Locks):
    """The profiles of one host that are locks."""

    kind: ClassVar[str] = "profile"
    removal: ClassVar[str] = "incus profile delete {name}"

    _host: IncusHost

    def create(self, name: str, properties: Mapping[str, str]) -> bool:
        """Make the profile; False when the name is taken."""
        with self._host.worded(f"Unable to make lock {name} on host {self._host.host}"):
            try:
                self._host.client.write("post", "profiles", body={"name": name, **_body(properties)})
            except WireError as error:
                if api.is_name_clash(error):
                    return False
                raise
            return True

    def read(self, prefix: str) -> dict[str, dict[str, str]]:
        """What is written on the profiles whose names begin with ``prefix``."""
        with self._host.worded(f"Unable to read the locks of host {self._host.host}"):
            found = self._host.client.get("profiles", recursion="1")
            return {profile["name"]: _properties(profile) for profile in found if profile["name"].startswith(prefix)}

    def renew(self, name: str, properties: Mapping[str, str]) -> bool:
        """Write on the profile; False when it is gone or another run's."""
        client = self._host.client
        with self._host.worded(f"Unable to renew lock {name} on host {self._host.host}"):
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    found, tag = client.get_tagged("profiles", name)
                    if _properties(found).get("nonce") != properties.get("nonce"):
                        return False
                    client.write("put", "profiles", name, body=_body(properties), tag=tag)
                except WireError as error:
                    if error.status == HTTPStatus.NOT_FOUND:
                        return False
                    if error.status != HTTPStatus.PRECONDITION_FAILED or attempt == _ATTEMPTS:
                        raise
                else:
                    return True
            return False

    def delete(self, name: str) -> None:
        """Delete the profile; a missing one is success."""
        with self._host.worded(f"Unable to delete lock {name} on host {self._host.host}"):
            try:
                self._host.client.write("delete", "profiles", name)
            except WireError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise


def _body(properties: Mapping[str, str]) -> dict[str, Any]:
    config = {f"{_KEY}{key}": value for key, value in properties.items()}
    return {"description": _DESCRIPTION, "config": config, "devices": {}}


def _properties(found: Mapping[str, Any]) -> dict[str, str]:
    return {key.removeprefix(_KEY): value for key, value in found["config"].items() if key.startswith(_KEY)}
