"""``/etc/pve``: a file system over a ``Replica``, read-only without quorum, with files that show its state."""

from __future__ import annotations

import base64
import errno
import json
import os
import signal
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fusepy

from .database import Database
from .replica import HOST_CONF, Replica
from .tree import DIRECTORY, Entry

MOUNT = "/etc/pve"
DATABASE = Path("/var/lib/pve-cluster/config.db")
PIDFILE = Path("/run/pve-cluster.pid")
LINKS = {"local": "nodes/{}", "lxc": "nodes/{}/lxc", "qemu-server": "nodes/{}/qemu-server", "openvz": "nodes/{}/openvz"}
WWW_DATA = 33


class Pmxcfs(fusepy.Operations):  # type: ignore[misc]
    """The file system's calls; each error is the one that Proxmox VE's own gives."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._began = int(time.time())
        self._shown: dict[str, Callable[[], Any]] = {
            ".members": self._members,
            ".vmlist": self._vmlist,
            ".version": self._version,
            ".clusterlog": lambda: {"data": []},
            ".rrd": str,
            ".debug": lambda: 0,
        }

    def init(self, _: str) -> None:
        """Begin to follow the cluster; called in the process that stays."""
        PIDFILE.write_text(f"{os.getpid()}\n", encoding="ascii")
        self._replica.start()

    def destroy(self, _: str) -> None:
        """Leave nothing in the write-ahead log."""
        self._replica.database.close()

    def getattr(self, path: str, _: object = None) -> dict[str, int | float]:
        """Mode and size: without quorum nothing is writable, and nothing else says so."""
        name = path[1:]
        if name in LINKS:
            return self._attributes(stat.S_IFLNK | 0o755, len(self.readlink(path)), self._began)
        if name in self._shown:
            return self._attributes(stat.S_IFREG | 0o440, len(self._text(name)), self._began)
        entry = self._find(path)
        if entry.type == DIRECTORY:
            mode = stat.S_IFDIR | (0o700 if _is_private(name) else 0o755)
        else:
            mode = stat.S_IFREG | (0o600 if _is_private(name) else 0o640)
        return self._attributes(mode, len(entry.data), entry.mtime)

    def readdir(self, path: str, _: int) -> list[str]:
        """What is in a folder."""
        below = [one.name for one in self._replica.tree.children(self._find(path))]
        return [".", "..", *below, *([*LINKS, *self._shown] if path == "/" else [])]

    def readlink(self, path: str) -> str:
        """Into this node's own folder."""
        return LINKS[path[1:]].format(self._replica.name)

    def read(self, path: str, size: int, offset: int, _: int) -> bytes:
        """Also without quorum."""
        data = self._text(path[1:]) if path[1:] in self._shown else self._find(path).data
        return bytes(data[offset : offset + size])

    def open(self, path: str, flags: int) -> int:
        """To write needs quorum."""
        if path[1:] not in self._shown:
            self._find(path)
        if flags & (os.O_WRONLY | os.O_RDWR) and (path[1:] in self._shown or not self._replica.is_quorate()):
            raise fusepy.FuseOSError(errno.EACCES)
        return 0

    def create(self, path: str, _mode: int, _info: object = None) -> int:
        """A new file."""
        self._submit("create", path)
        return 0

    def mkdir(self, path: str, _: int) -> None:
        """A new folder."""
        self._submit("mkdir", path)

    def write(self, path: str, data: bytes, offset: int, _: int) -> int:
        """A part of a file."""
        self._submit("write", path, data=base64.b64encode(data).decode(), offset=offset)
        return len(data)

    def truncate(self, path: str, length: int, _: object = None) -> None:
        """Its length."""
        self._submit("truncate", path, size=length)

    def unlink(self, path: str) -> None:
        """No longer there."""
        self._submit("unlink", path)

    def rmdir(self, path: str) -> None:
        """No longer there, when it was empty."""
        self._submit("unlink", path)

    def rename(self, old: str, new: str) -> None:
        """At another place, in one step for all members."""
        self._submit("rename", old, to=new[1:])

    def utimens(self, path: str, _: object = None) -> None:
        """Changed just now."""
        self._submit("touch", path)

    def chmod(self, path: str, mode: int) -> int:
        """Only to what it is."""
        if mode & 0o7777 != (0o600 if _is_private(path[1:]) else 0o640):
            raise fusepy.FuseOSError(errno.EPERM)
        return 0

    def chown(self, _path: str, uid: int, gid: int) -> int:
        """Only to root and www-data."""
        if uid not in {0, -1, 2**32 - 1} or gid not in {WWW_DATA, -1, 2**32 - 1}:
            raise fusepy.FuseOSError(errno.EPERM)
        return 0

    def symlink(self, _target: str, _source: str) -> None:
        """There are none but its own."""
        raise fusepy.FuseOSError(errno.EPERM)

    def _submit(self, do: str, path: str, **content: Any) -> None:
        if path[1:] in LINKS or path[1:] in self._shown:
            raise fusepy.FuseOSError(errno.EACCES)
        code = self._replica.submit({"do": do, "path": path[1:], **content})
        if code:
            raise fusepy.FuseOSError(code)

    def _find(self, path: str) -> Entry:
        entry = self._replica.tree.find(path[1:])
        if entry is None:
            raise fusepy.FuseOSError(errno.ENOENT)
        return entry

    def _attributes(self, mode: int, size: int, when: int) -> dict[str, int | float]:
        if not self._replica.is_quorate():
            mode &= ~0o222
        links = 2 if stat.S_ISDIR(mode) else 1
        times = dict.fromkeys(("st_mtime", "st_ctime", "st_atime"), when)
        return {"st_mode": mode, "st_size": size, "st_nlink": links, "st_uid": 0, "st_gid": WWW_DATA, **times}

    def _text(self, name: str) -> bytes:
        content = self._shown[name]()
        return (content if isinstance(content, str) else json.dumps(content, indent=1) + "\n").encode()

    def _members(self) -> dict[str, Any]:
        info = self._replica.info
        head = {"nodename": self._replica.name, "version": info.version}
        if not info.nodes:
            return head
        nodes = {
            name: {"id": nodeid, "online": int(nodeid in info.online)}
            | ({"ip": info.addresses[name]} if name in info.addresses else {})
            for name, nodeid in info.nodes.items()
        }
        quorate = int(self._replica.is_quorate())
        cluster = {"name": info.name, "version": info.config_version, "nodes": len(nodes), "quorate": quorate}
        return {**head, "cluster": cluster, "nodelist": nodes}

    def _vmlist(self) -> dict[str, Any]:
        kinds = {"qemu-server": "qemu"}
        ids = {
            str(vmid): {"node": node, "type": kinds.get(kind, kind), "version": version}
            for vmid, (node, kind, version) in sorted(self._replica.tree.guests().items())
        }
        head = {"version": self._replica.tree.version}
        return {**head, "ids": ids} if ids else head

    def _version(self) -> dict[str, Any]:
        info, tree = self._replica.info, self._replica.tree
        return {"starttime": self._began, "clinfo": info.version, "vmlist": tree.version, "kvstore": {}}


def _is_private(name: str) -> bool:
    parts = name.split("/")
    return parts[0] == "priv" or (parts[0] == "nodes" and len(parts) > 2 and parts[2] == "priv")


def main() -> None:
    """Mount it and stay in the background."""
    is_new = not DATABASE.exists()
    DATABASE.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    database = Database(DATABASE)
    tree = database.load()
    if is_new and HOST_CONF.exists():
        # a new database takes the member list of the host, and so is clustered
        when = {"mtime": int(time.time()), "writer": 0, "path": "corosync.conf"}
        tree.apply({"do": "create", **when})
        tree.apply({"do": "write", "offset": 0, "data": base64.b64encode(HOST_CONF.read_bytes()).decode(), **when})
    database.save(tree)
    name = socket.gethostname().partition(".")[0]
    replica = Replica(tree, database, (name, socket.gethostbyname(name)))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    options = {"attr_timeout": 0, "entry_timeout": 0, "allow_other": True, "default_permissions": True}
    fusepy.FUSE(Pmxcfs(replica), MOUNT, foreground=False, nothreads=True, fsname="/dev/fuse", **options)


if __name__ == "__main__":
    main()
