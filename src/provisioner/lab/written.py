"""A container that is there, as a file would write it: the way back from what a host says to the file's words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from provisioner.lab.fleet import desired_fleet
from provisioner.lab.hosts import LOCAL_INCUS, HostPage
from provisioner.lab.proxmox import written_form
from provisioner.lab.resolved import ResolvedLab, resolve
from provisioner.sizes import written_size
from provisioner.spec import Container, IncusHost, ProxmoxHost
from provisioner.state import Instance

_DEEP = "proxmox"
_NOT_FOR_MAKING = ("transport", "ssh_key")
"""How Ansible goes into containers, of a host's page."""
_DEPTH = 3
"""Of a block of Proxmox' own words only the item is left out that cannot be said: ``proxmox``, ``mounts``, 0."""


def written_container(there: Instance, lab: ResolvedLab, *, adopt: bool) -> dict[str, Any]:
    """What stands under the container's name in the lab's file; it is valid.

    What no file can say is left out: ``wanted_of`` tells what ``up`` would make of it.
    """
    host = lab.hosts[there.host]
    written: dict[str, Any] = {
        "host": there.host,
        "image": there.image or None,
        "cpu": there.cpu,
        "memory": None if there.memory is None else written_size(there.memory),
        "disk": None if there.disk is None else written_size(there.disk),
        _DEEP: written_form(there.settings, host) if isinstance(host, ProxmoxHost) else None,
        "adopt": adopt or None,
    }
    return _valid({name: value for name, value in written.items() if value not in (None, {})})


def wanted_of(name: str, written: Mapping[str, Any], lab: ResolvedLab) -> Instance:
    """The container that ``up`` would make of what is written."""
    alone = lab.spec.model_copy(update={"containers": {name: Container.model_validate(dict(written))}})
    return desired_fleet(resolve(alone, lab.catalog), {}).instances[0]


def role_variables(one: Instance, lab: ResolvedLab) -> dict[str, Any]:
    """The variables by which role ``container`` makes this container."""
    written = lab.containers[one.name].written.proxmox
    found: dict[str, Any] = {
        "lab": one.lab,
        "image": one.image,
        "cpu": one.cpu,
        "memory": None if one.memory is None else written_size(one.memory),
        "disk": None if one.disk is None else written_size(one.disk),
        "nesting": one.nesting or None,
        "devices": [{"name": each.name, "kind": each.kind, **each.properties} for each in one.devices] or None,
        _DEEP: _block(one, lab) if written is not None or one.settings.get("devices") else None,
    }
    return {f"container_{name}": value for name, value in found.items() if value is not None}


def host_variables(host: HostPage) -> dict[str, Any]:
    """The variables by which role ``container`` reaches a host; secrets are in it as ``Secret``."""
    if isinstance(host, IncusHost) and host.incus == LOCAL_INCUS:
        return {}
    return {"container_host": {name: one for name, one in _dumped(host).items() if name not in _NOT_FOR_MAKING}}


def _block(one: Instance, lab: ResolvedLab) -> dict[str, Any]:
    host = lab.hosts[one.host]
    return written_form(one.settings, host) if isinstance(host, ProxmoxHost) else {}


def _dumped(part: Any) -> dict[str, Any]:
    """What was set of a part of the file; a secret stays a ``Secret``."""
    found = {name: getattr(part, name) for name in type(part).model_fields if name in part.model_fields_set}
    return {name: _dumped(one) if hasattr(one, "model_fields_set") else one for name, one in found.items()}


def _valid(written: dict[str, Any]) -> dict[str, Any]:
    """The same without what the file's models refuse."""
    try:
        Container.model_validate(written)
    except ValidationError as error:
        refused = {one["loc"][: _DEPTH if one["loc"][0] == _DEEP else 1] for one in error.errors()}
        return _valid(_without(written, refused))
    return written


def _without(value: Any, refused: set[tuple[int | str, ...]]) -> Any:
    """``value`` without what lies at these places; what becomes empty goes, too."""
    whole = {place[0] for place in refused if len(place) == 1}
    inner = {key: {place[1:] for place in refused if place[0] == key and len(place) > 1} for key, *_ in refused}
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
    kept = {key: _without(one, inner[key]) if inner.get(key) else one for key, one in pairs if key not in whole}
    if isinstance(value, Mapping):
        return {key: one for key, one in kept.items() if one not in ({}, [])}
    return list(kept.values())
