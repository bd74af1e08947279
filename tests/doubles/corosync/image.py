"""The image of a node: Debian with corosync and what Proxmox VE brings along; made once, kept in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets

from provisioner.hosts.incus import IncusProvider
from provisioner.values import paths
from provisioner.values.state import Instance
from tests.doubles.corosync.incus_cli import incus, query
from tests.lab.incus import RUN, Lab

BASE = "debian/12"
PACKAGES = ("corosync", "openssh-server", "openssh-client", "rsync", "python3-fusepy", "fuse3", "sqlite3")
TIMEOUT_S = 600
INSTALL = """\
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@"
systemctl disable --now corosync
rm -rf /etc/corosync/corosync.conf /etc/ssh/ssh_host_* /var/lib/apt/lists/* /var/cache/apt/*.bin
apt-get clean
# each node gets an identity of its own when it starts
truncate -s 0 /etc/machine-id
rm -rf /var/log/journal/*
sync
"""


def ensure_image(lab: Lab) -> str:
    """The image's alias in the lab; several runs wait for the first of them to make it."""
    digest = hashlib.sha256(repr((BASE, PACKAGES, INSTALL)).encode()).hexdigest()[:16]
    alias = f"provision-test/corosync-{digest}"
    with (RUN / "corosync-image.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if any(alias == one["name"] for one in query(lab, "/1.0/images/aliases?recursion=1")):
            return alias
        cached = paths.cache() / "corosync" / f"{digest}.tar.zst"
        if not cached.exists():
            _build(lab, alias)
            cached.parent.mkdir(parents=True, exist_ok=True)
            partial = cached.parent / f".{digest}-{os.getpid()}"
            incus(lab, "image", "export", alias, partial)
            next(partial.parent.glob(f"{partial.name}*")).replace(cached)
            return alias
        incus(lab, "image", "import", cached, "--alias", alias)
        return alias


def _build(lab: Lab, alias: str) -> None:
    provider = IncusProvider("box")
    one = Instance(f"t{secrets.token_hex(4)}-corosync", "box", "corosync", BASE)
    provider.create(one)
    try:
        provider.start(one)
        provider.wait_until_ready(one)
        done = provider.execute(one.name, ["sh", "-c", INSTALL, "sh", *PACKAGES], timeout_s=TIMEOUT_S)
        if done.returncode:
            raise RuntimeError(
                f"Unable to install {', '.join(PACKAGES)}\n{done.stdout[-2000:]!r}{done.stderr[-2000:]!r}"
            )
        provider.stop(one)
        incus(lab, "publish", one.name, "--alias", alias, "--compression", "zstd")
    finally:
        provider.delete(one)
