"""Images by the names of their templates: ``debian/12`` is the newest ``debian-12-standard_*``, there or to be had."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from provisioner.hosts.base import OnProgress
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.host import storage_turn
from provisioner.values.errors import ProviderError

HINT = (
    "Let the node read its list of templates again: pveam update, then pveam available --section system; "
    "or put a template {image} of your own there, named like debian-12-standard_1_amd64.tar.zst."
)
CONTENT = "vztmpl"
_NAME = re.compile(
    r"(?P<distribution>[a-z]+)-(?P<version>\d[\d.]*)(-stream)?-(standard|default)_(?P<release>[^_/]+)_"
    r"(?P<architecture>amd64|arm64)\.tar\.(zst|xz|gz|bz2)"
)
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(slots=True)
class Templates:
    """Templates by their images: ``there`` by volume id, ``offered`` by file name."""

    there: dict[str, str] = field(default_factory=dict)
    offered: dict[str, str] = field(default_factory=dict)

    @property
    def images(self) -> frozenset[str]:
        """Whatever a container can be made of."""
        return frozenset({*self.there, *self.offered})


def newest(names: Iterable[str], machine: str) -> dict[str, str]:
    """The newest of templates by their images; ``names`` may be volume ids. Those of other machines are left out."""
    found: dict[str, tuple[list[tuple[int, int | str]], str]] = {}
    for name in names:
        match = _NAME.fullmatch(name.rpartition("/")[2])
        if match and match["architecture"] == _MACHINES.get(machine, machine):
            image = f"{match['distribution']}/{match['version']}"
            found[image] = max(found.get(image, ([], "")), (_release(match["release"]), name))
    return {image: name for image, (_, name) in found.items()}


def storages_of(client: Client) -> list[str]:
    """The storages that may hold templates: the one that the file names, or all of the node."""
    if client.access.templates:
        return [client.access.templates]
    entries = client.get("nodes", client.node, "storage", content=CONTENT, enabled=True)
    names = [str(entry["storage"]) for entry in entries]
    # The one that every installation has comes first: it is where a download goes.
    return sorted(names, key=lambda name: (name != "local", name))


def gathered(
    contents: Iterable[Iterable[Mapping[str, Any]]], offers: Iterable[Mapping[str, Any]], machine: str
) -> Templates:
    """The templates of what storages hold and of what Proxmox offers."""
    volumes = [str(entry["volid"]) for entry in chain.from_iterable(contents)]
    files = [str(offer["template"]) for offer in offers]
    return Templates(newest(volumes, machine), newest(files, machine))


def calls(client: Client, storages: Iterable[str]) -> list[Callable[[], Any]]:
    """The questions whose answers ``gathered`` takes: what each storage holds."""

    def content(storage: str) -> Callable[[], Any]:
        return lambda: client.get("nodes", client.node, "storage", storage, "content", content=CONTENT)

    return [content(storage) for storage in storages]


def provided(client: Client, image: str, name: str, machine: str, on_progress: OnProgress) -> str:
    """The volume id of an image's template for container ``name``; it is downloaded where it is not there yet."""
    storages = storages_of(client)
    found = _look(client, storages, machine)
    if image in found.there:
        return found.there[image]
    if image not in found.offered or not storages:
        raise _missing(client, image, name, found, storages)
    with storage_turn(client.access.url, client.node, f"{CONTENT} on {storages[0]}"):
        found = _look(client, storages, machine)  # a container beside this one may have waited for the same
        if image not in found.there:
            _download(client, found.offered[image], storages[0], name, on_progress)
            found = _look(client, storages, machine)
    if image not in found.there:
        raise _missing(client, image, name, found, storages)
    return found.there[image]


def there(client: Client, machine: str) -> frozenset[str]:
    """The images whose templates are on the node."""
    return frozenset(_look(client, storages_of(client), machine).there)


def _look(client: Client, storages: Iterable[str], machine: str) -> Templates:
    offers: list[Callable[[], Any]] = [lambda: client.get("nodes", client.node, "aplinfo")]
    *contents, offered = client.many([*calls(client, storages), *offers])
    return gathered(contents, offered, machine)


def _download(client: Client, template: str, storage: str, name: str, on_progress: OnProgress) -> None:
    on_progress(name, f"download template {template} to storage {storage}")
    path = ("nodes", client.node, "aplinfo")
    client.run(lambda: str(client.post(*path, storage=storage, template=template)), name=name, on_progress=on_progress)


def _missing(client: Client, image: str, name: str, found: Templates, storages: list[str]) -> ProviderError:
    resolution = HINT.format(image=image)
    if not storages:
        resolution = f"No storage of node {client.node} may hold templates: pvesm set local --content iso,vztmpl,backup"
    there = ", ".join(sorted(found.there)) or "none"
    offered = ", ".join(sorted(found.offered.keys() - found.there.keys())) or "none"
    return ProviderError(
        f"Unable to create container {name}: image {image} not found",
        details=f"Templates there: {there}; offered for download: {offered}",
        resolution=resolution,
    )


def _release(text: str) -> list[tuple[int, int | str]]:
    """Something that orders releases as people do: 12.12-1 after 12.7-1."""
    return [(1, int(part)) if part.isdecimal() else (0, part) for part in re.findall(r"\d{1,18}|\D+", text)]
