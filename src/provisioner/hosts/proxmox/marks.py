"""Whose a container is: tags by which it is found, and a block in its description that decides.

The block is one line of JSON in a comment, below what the user wrote. It names the VMID, so that a copy that somebody
made by hand, or restored under another number, is nobody's; and it holds what Proxmox has no field for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.values.plain_data import json_value
from provisioner.values.state import Device, InstanceKind

TAG = "provisioner"
GROUP = "group:"
"""Before the name of a group whose number was asked for."""
_BLOCK = re.compile(r"^<!-- provisioner (\{.*\}) -->$", re.MULTILINE)
_SEPARATOR = re.compile(r"[;, ]+")


@dataclass(frozen=True, slots=True)
class Mount:
    """An artifact volume in a container; ``slot``: the mount point that holds its content, None: a plain folder."""

    name: str
    volume: str
    path: str
    readonly: bool
    slot: str | None = None

    @property
    def device(self) -> Device:
        """The mount as a device that no kind of host is named in."""
        properties = {"volume": self.volume, "path": self.path, "readonly": str(self.readonly).lower()}
        return Device(self.name, "volume", properties)


@dataclass(frozen=True, slots=True)
class Mark:
    """What is written about a container of ours beside what Proxmox knows of it.

    ``asked``: sizes that were asked for ("memory", "disk", "swap"; None: left out), by which a default or a rounded
    size is told from a changed one, and the numbers of the groups whose device files it got ("group:render").
    ``extra``: mount points that the file asks for, in its words. ``mac``: whether the file decides it. ``discard``:
    volumes that held copies of artifacts and may go. ``snapshot``: the name of the snapshot whose description this
    is in. ``ungrown``: disks that have grown, by their slots, and the bytes that they had when their file systems were
    last seen to fill them.
    """

    lab: str
    vmid: int
    image: str
    kind: InstanceKind = InstanceKind.SERVING
    nesting: bool = False
    volumes: tuple[Mount, ...] = ()
    asked: Mapping[str, int | None] = field(default_factory=dict)
    extra: tuple[Mapping[str, Any], ...] = ()
    mac: bool = False
    discard: tuple[str, ...] = ()
    snapshot: str = ""
    ungrown: Mapping[str, int] = field(default_factory=dict)


def tag_of(lab: str) -> str:
    """The tag that a lab's containers bear beside ``TAG``; several labs may share one, the block tells them apart."""
    return f"{TAG}-{re.sub(r'[^a-z0-9_-]', '_', lab.lower())}"


def tags_in(text: str) -> list[str]:
    """The tags of a container, as Proxmox joins them."""
    return [tag for tag in _SEPARATOR.split(text) if tag]


def with_tags(tags: Iterable[str], lab: str) -> str:
    """``tags`` and those that mark a container of ``lab``, as Proxmox keeps them."""
    return ";".join(sorted({*tags, TAG, tag_of(lab)}))


def without_tags(text: str, lab: str) -> tuple[str, ...]:
    """The tags of a container but for those that mark it."""
    ours = {TAG, tag_of(lab)} if lab else set()
    return tuple(sorted(set(tags_in(text)) - ours))


def is_candidate(tags: str, lab: str) -> bool:
    """Whether a container with these tags may be the lab's: its description says."""
    return {TAG, tag_of(lab)} <= set(tags_in(tags))


def mark_text(text: str, mark: Mark) -> str:
    """A description: what the user wrote, and the block."""
    found: dict[str, Any] = {
        "lab": mark.lab,
        "vmid": mark.vmid,
        "kind": str(mark.kind),
        "image": mark.image,
        "nesting": mark.nesting,
        "volumes": [
            {
                "name": mount.name,
                "volume": mount.volume,
                "path": mount.path,
                "readonly": mount.readonly,
                "slot": mount.slot,
            }
            for mount in mark.volumes
        ],
        "asked": dict(mark.asked),
        "mounts": [dict(mount) for mount in mark.extra],
        "mac": mark.mac,
    }
    found |= {"discard": list(mark.discard)} if mark.discard else {}
    found |= {"snapshot": mark.snapshot} if mark.snapshot else {}
    found |= {"ungrown": dict(mark.ungrown)} if mark.ungrown else {}
    # Everything beyond ASCII is escaped by json; ">" is escaped here, so that nothing in it ends the comment.
    block = f"<!-- provisioner {json.dumps(found).replace('>', chr(92) + 'u003e')} -->"
    return f"{text}\n\n{block}" if text else block


def read_mark(description: str, vmid: int) -> tuple[str, Mark | None]:
    """What the user wrote, and the mark; None when there is none, it is of another VMID, or it cannot be read."""
    blocks = list(_BLOCK.finditer(description))
    if not blocks:
        return description.strip(), None
    last = blocks[-1]
    text = (description[: last.start()] + description[last.end() :]).strip()
    mark = _mark(last[1])
    return text, mark if mark is not None and mark.vmid == vmid else None


def volumes_in(description: str) -> frozenset[str]:
    """The names of the artifact volumes that any block in a description speaks of, whosever it is."""
    names: set[str] = set()
    for block in _BLOCK.finditer(description):
        mark = _mark(block[1])
        if mark is not None:
            names.update(mount.volume for mount in mark.volumes)
    return frozenset(names)


def _mark(text: str) -> Mark | None:
    """The mark in a block; None for one that somebody has changed by hand until it says nothing any more."""
    try:
        found = json_value(text)
        return Mark(
            lab=str(found["lab"]),
            vmid=int(found["vmid"]),
            image=str(found["image"]),
            kind=InstanceKind(found["kind"]),
            nesting=bool(found["nesting"]),
            volumes=tuple(map(_mount, found.get("volumes", ()))),
            asked={str(name): None if size is None else int(size) for name, size in found.get("asked", {}).items()},
            extra=tuple(dict(mount) for mount in found.get("mounts", ())),
            mac=bool(found.get("mac", False)),
            discard=tuple(map(str, found.get("discard", ()))),
            snapshot=str(found.get("snapshot", "")),
            ungrown={str(slot): int(size) for slot, size in found.get("ungrown", {}).items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _mount(found: Mapping[str, Any]) -> Mount:
    slot = found.get("slot")
    return Mount(
        str(found["name"]),
        str(found["volume"]),
        str(found["path"]),
        bool(found["readonly"]),
        None if slot is None else str(slot),
    )
