"""What a healthy cluster has in ``/etc/pve``: one database, the same on all its nodes."""

from __future__ import annotations

import base64
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.doubles.corosync.node import Node
from tests.doubles.corosync.standin.database import Database
from tests.doubles.corosync.standin.tree import Tree

FOLDERS = ("priv", "priv/lock", "priv/acme", "nodes", "ha", "sdn", "mapping", "firewall", "virtual-guest")
STORAGE = """\
dir: local
\tpath /var/lib/vz
\tcontent iso,vztmpl,backup

lvmthin: local-lvm
\tthinpool data
\tvgname pve
\tcontent rootdir,images

nfs: nas
\tserver 192.0.2.10
\texport /export/pve
\tpath /mnt/pve/nas
\tcontent images,rootdir,backup
"""
CRON = """\
# cluster wide vzdump cron schedule
# Atomatically generated file - do not edit

PATH="/usr/sbin:/usr/bin:/sbin:/bin"

"""


def config_db(nodes: Sequence[Node], conf: str, authorized: str, *, trust: bool) -> bytes:
    """The bytes of a ``config.db`` for these nodes; ``authorized``: the keys that may log in from outside."""
    public = {node.name: node.run("cat /root/.ssh/id_rsa.pub") for node in nodes} if trust else {}
    known = [f"{name} {key}" for node in nodes for key in node.host_keys for name in (node.name, node.home)]
    files = {
        "authkey.pub": "a public key, for tests\n",
        "corosync.conf": conf,
        "datacenter.cfg": "keyboard: en-us\n",
        "storage.cfg": STORAGE,
        "user.cfg": "user:root@pam:1:0::::::\n",
        "vzdump.cron": CRON,
        "pve-root-ca.pem": "a certificate, for tests\n",
        "pve-www.key": "a key, for tests\n",
        "priv/authkey.key": "a key, for tests\n",
        "priv/pve-root-ca.key": "a key, for tests\n",
        "priv/pve-root-ca.srl": "01\n",
        "priv/authorized_keys": authorized + "".join(public.values()),
        "priv/known_hosts": "".join(f"{line}\n" for line in known) if trust else "",
    }
    folders = list(FOLDERS)
    for node in nodes:
        mine = f"nodes/{node.name}"
        folders += [mine, *(f"{mine}/{kind}" for kind in ("lxc", "qemu-server", "openvz", "priv"))]
        rsa = next(key for key in node.host_keys if key.startswith("ssh-rsa"))
        files |= {
            f"{mine}/pve-ssl.key": f"a key of {node.name}, for tests\n",
            f"{mine}/pve-ssl.pem": f"a certificate of {node.name}, for tests\n",
            f"{mine}/ssh_known_hosts": f"{node.name} {rsa}",
        }
    return _saved(folders, files)


def _saved(folders: Sequence[str], files: dict[str, str]) -> bytes:
    tree = Tree()
    when = {"mtime": int(time.time()), "writer": 0}
    codes = [tree.apply({"do": "mkdir", "path": folder, **when}) for folder in folders]
    for path, text in files.items():
        data = base64.b64encode(text.encode()).decode()
        codes.append(tree.apply({"do": "create", "path": path, **when}))
        codes.append(tree.apply({"do": "write", "path": path, "offset": 0, "data": data, **when}))
    if any(codes):
        raise RuntimeError(f"Unable to make a database: {codes}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.db")
        database = Database(file)
        database.save(tree)
        database.close()
        return file.read_bytes()
