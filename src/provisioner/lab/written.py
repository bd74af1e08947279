"""A container that is there, as a file would write it: the way back from what a host says to the file's words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from provisioner.lab.fleet import desired_fleet
from provisioner.lab.resolved import ResolvedLab, resolve
from provisioner.labfile.hosts import HostPage
from provisioner.labfile.spec import BLOCKS, Container
from provisioner.values.quantities import written_size
from provisioner.values.state import Device, Instance

_NOT_FOR_MAKING = ("transport", "ssh_key", "share", "share_key", "build")
"""Of a host's page: how Ansible goes into containers, which services take turns, and what builders get."""
_DEPTH = 3
"""Of the block for one kind of host only the item is left out that cannot be said: the block, ``mounts``, 0."""


def written_container(there: Instance, lab: ResolvedLab, *, adopt: bool) -> dict[str, Any]:
    """What stands under the container's name in the lab's file; it is valid.

    What no file can say is left out: ``wanted_of`` tells what ``up`` would make of it.
    """
    written: dict[str, Any] = {"host": there.host}
    if there.image:
        written["image"] = there.image
    if there.cpu is not None:
        written["cpu"] = there.cpu
    written |= _written_sizes(there)
    page = lab.hosts[there.host]
    block = page.written_form(there.settings)
    if block:
        written[page.kind] = block
    if adopt:
        written["adopt"] = True
    return _valid(written)


def wanted_of(name: str, written: Mapping[str, Any], lab: ResolvedLab) -> Instance:
    """The container that ``up`` would make of what is written."""
    alone = lab.spec.model_copy(update={"containers": {name: Container.model_validate(dict(written))}})
    return desired_fleet(resolve(alone, lab.catalog), {}).instances[0]


def role_variables(instance: Instance, lab: ResolvedLab) -> dict[str, Any]:
    """The variables by which role ``container`` makes this container."""
    variables: dict[str, Any] = {"lab": instance.lab, "image": instance.image}
    if instance.cpu is not None:
        variables["cpu"] = instance.cpu
    variables |= _written_sizes(instance)
    if instance.nesting:
        variables["nesting"] = True
    if instance.devices:
        variables["devices"] = [_written_device(device) for device in instance.devices]
    has_block = lab.containers[instance.name].written.block is not None
    if has_block or instance.settings.get("devices"):
        page = lab.hosts[instance.host]
        variables[page.kind] = page.written_form(instance.settings)
    return {f"container_{name}": value for name, value in variables.items()}


def host_variables(host: HostPage) -> dict[str, Any]:
    """The variables by which role ``container`` reaches a host; secrets are in it as ``Secret``."""
    if host.is_here:
        return {}
    page = _dumped(host)
    for name in _NOT_FOR_MAKING:
        page.pop(name, None)
    return {"container_host": page}


def _written_sizes(instance: Instance) -> dict[str, str]:
    """Memory and disk as a file writes them; what is not known is left out."""
    sizes = {"memory": instance.memory, "disk": instance.disk}
    return {name: written_size(size) for name, size in sizes.items() if size is not None}


def _written_device(device: Device) -> dict[str, str]:
    return {"name": device.name, "kind": device.kind, **device.properties}


def _dumped(part: Any) -> dict[str, Any]:
    """What was set of a part of the file; a secret stays a ``Secret``."""
    dumped = {}
    for name in type(part).model_fields:
        if name in part.model_fields_set:
            value = getattr(part, name)
            dumped[name] = _dumped(value) if hasattr(value, "model_fields_set") else value
    return dumped


def _valid(written: dict[str, Any]) -> dict[str, Any]:
    """The same without what the file's models refuse."""
    try:
        Container.model_validate(written)
    except ValidationError as error:
        refused = {_refused_place(problem["loc"]) for problem in error.errors()}
        return _valid(_without(written, refused))
    return written


def _refused_place(place: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """What is left out because of a problem there: of a block for one kind of host one item, else the whole key."""
    return place[:_DEPTH] if place[0] in BLOCKS else place[:1]


def _without(value: Any, refused: set[tuple[int | str, ...]]) -> Any:
    """``value`` without what lies at these places; what becomes empty goes, too."""
    if isinstance(value, Mapping):
        kept = dict(_kept(value.items(), refused))
        return {key: inner for key, inner in kept.items() if inner not in ({}, [])}
    return [inner for _, inner in _kept(enumerate(value), refused)]


def _kept(pairs: Iterable[tuple[Any, Any]], refused: set[tuple[int | str, ...]]) -> Iterator[tuple[Any, Any]]:
    """The keys that stay, with what stays of their values."""
    for key, inner in pairs:
        if (key,) in refused:
            continue
        below = {place[1:] for place in refused if place[0] == key}
        yield key, _without(inner, below) if below else inner
