"""The files of ``/etc/pve`` as a value that every member has a copy of."""

from __future__ import annotations

import base64
import errno
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

ROOT = 0
DIRECTORY, FILE = 4, 8
GUEST = re.compile(r"nodes/([^/]+)/(lxc|qemu-server|openvz)/([1-9][0-9]{0,9})\.conf")


@dataclass
class Entry:
    """One file or folder, as a row of the database."""

    inode: int
    parent: int
    version: int
    writer: int
    mtime: int
    type: int
    name: str
    data: bytes = b""


class Tree:
    """Files and folders by inode; ``apply`` gives 0 or the number of the error that the caller gets."""

    def __init__(self) -> None:
        self.entries = {ROOT: Entry(ROOT, ROOT, 0, 0, 0, DIRECTORY, "")}

    @property
    def version(self) -> int:
        """How many changes it has seen; of two copies the one with more is the newer."""
        return self.entries[ROOT].version

    @property
    def mtime(self) -> int:
        """When it was changed last."""
        return self.entries[ROOT].mtime

    def find(self, path: str) -> Entry | None:
        """The entry at a path without leading slash; the root for an empty one."""
        entry = self.entries[ROOT]
        for name in path.split("/") if path else []:
            below = next((one for one in self.children(entry) if one.name == name), None)
            if below is None:
                return None
            entry = below
        return entry

    def children(self, folder: Entry) -> Iterator[Entry]:
        """What lies in a folder."""
        return (one for one in list(self.entries.values()) if one.parent == folder.inode and one.inode != ROOT)

    def path(self, entry: Entry) -> str:
        """Where it lies."""
        names = []
        while entry.inode != ROOT:
            names.append(entry.name)
            entry = self.entries[entry.parent]
        return "/".join(reversed(names))

    def guests(self) -> dict[int, tuple[str, str, int]]:
        """VMID → node, kind of folder, version."""
        found = ((GUEST.fullmatch(self.path(one)), one) for one in list(self.entries.values()) if one.type == FILE)
        return {int(match[3]): (match[1], match[2], one.version) for match, one in found if match}

    def apply(self, op: dict[str, Any]) -> int:
        """A change: ``do``, ``path``, ``mtime``, ``writer``, then ``to``, ``data`` (base64), ``offset``, ``size``."""
        folder, _, name = op["path"].rpartition("/")
        parent, entry = self.find(folder), self.find(op["path"])
        if op["do"] in {"create", "mkdir"}:
            code = self._add(op, parent, entry, name)
        elif entry is None:
            code = errno.ENOENT
        else:
            code = getattr(self, f"_{op['do']}")(op, entry)
        if not code:
            root = self.entries[ROOT]
            root.version, root.writer, root.mtime = root.version + 1, op["writer"], op["mtime"]
        return int(code)

    def dump(self) -> list[dict[str, Any]]:
        """All of it, for JSON."""
        return [asdict(one) | {"data": base64.b64encode(one.data).decode()} for one in self.entries.values()]

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Be what ``dump`` gave, and nothing else."""
        entries = [Entry(**row | {"data": base64.b64decode(row["data"])}) for row in rows]
        self.entries = {one.inode: one for one in entries}

    def _add(self, op: dict[str, Any], parent: Entry | None, entry: Entry | None, name: str) -> int:
        if parent is None:
            return errno.ENOENT
        if entry is not None or self._is_taken(op["path"]):
            return errno.EEXIST
        inode = self.version + 1
        kind = DIRECTORY if op["do"] == "mkdir" else FILE
        self.entries[inode] = Entry(inode, parent.inode, inode, op["writer"], op["mtime"], kind, name)
        return 0

    def _is_taken(self, path: str, moved: int = 0) -> bool:
        match = GUEST.fullmatch(path)
        owner = self.guests().get(int(match[3])) if match else None
        return bool(match and owner and owner[:2] != (match[1], match[2]) and int(match[3]) != moved)

    def _write(self, op: dict[str, Any], entry: Entry) -> int:
        data, offset = base64.b64decode(op["data"]), op["offset"]
        entry.data = entry.data[:offset].ljust(offset, b"\0") + data + entry.data[offset + len(data) :]
        return self._touch(op, entry)

    def _truncate(self, op: dict[str, Any], entry: Entry) -> int:
        entry.data = entry.data[: op["size"]].ljust(op["size"], b"\0")
        return self._touch(op, entry)

    def _touch(self, op: dict[str, Any], entry: Entry) -> int:
        entry.version, entry.writer, entry.mtime = self.version + 1, op["writer"], op["mtime"]
        return 0

    def _unlink(self, _: dict[str, Any], entry: Entry) -> int:
        if entry.type == DIRECTORY and any(self.children(entry)):
            return errno.ENOTEMPTY
        del self.entries[entry.inode]
        return 0

    def _rename(self, op: dict[str, Any], entry: Entry) -> int:
        folder, _, name = op["to"].rpartition("/")
        parent, old = self.find(folder), self.find(op["to"])
        moved = GUEST.fullmatch(op["path"])
        if parent is None:
            return errno.ENOENT
        if self._is_taken(op["to"], int(moved[3]) if moved else 0):
            return errno.EEXIST
        if old is not None and old is not entry:
            if old.type == DIRECTORY:
                return errno.ENOTEMPTY
            del self.entries[old.inode]
        entry.parent, entry.name = parent.inode, name
        return self._touch(op, entry)
