"""Lock objects: profiles, because their names are unique and the server alone decides who made one."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from provisioner.hosts.incus import api
from provisioner.hosts.incus.api import Client, WireError

_KEY = "user.provisioner."
_DESCRIPTION = "Run lock of provision; it goes when its run ends, and a dead run's is taken over"
_ATTEMPTS = 5


def create(client: Client, name: str, properties: Mapping[str, str]) -> bool:
    """Make the lock object; False when the name is taken."""
    try:
        client.write("post", "profiles", body={"name": name, **_body(properties)})
    except WireError as error:
        if api.is_name_clash(error):
            return False
        raise
    return True


def read(client: Client, prefix: str) -> dict[str, dict[str, str]]:
    """The properties of the lock objects whose names begin with ``prefix``."""
    found = client.get("profiles", recursion="1")
    return {profile["name"]: _properties(profile) for profile in found if profile["name"].startswith(prefix)}


def renew(client: Client, name: str, properties: Mapping[str, str]) -> bool:
    """Write the lock object's properties; False when it is gone or another run's."""
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


def delete(client: Client, name: str) -> None:
    """Delete the lock object; a missing one is success."""
    try:
        client.write("delete", "profiles", name)
    except WireError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


def _body(properties: Mapping[str, str]) -> dict[str, Any]:
    config = {f"{_KEY}{key}": value for key, value in properties.items()}
    return {"description": _DESCRIPTION, "config": config, "devices": {}}


def _properties(found: Mapping[str, Any]) -> dict[str, str]:
    return {key.removeprefix(_KEY): value for key, value in found["config"].items() if key.startswith(_KEY)}
