"""How the nodes become what they were at first: wholly, or without touching a corosync that is as it was."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tests.doubles.corosync import baseline
from tests.doubles.corosync.conf import Entry, conf_text
from tests.doubles.corosync.machines import parallel
from tests.doubles.corosync.node import Node

NAME = "homelab"
VERSION = 7
"""The member list's version when all is well: as if the cluster had had a life before."""
FILES = """\
find /var/lib/pve-cluster /root/.ssh -mindepth 1 ! -name 'id_rsa*' -delete
rm -rf /var/lib/provisioner /run/lock/provisioner-repair /var/lib/pve-lab/ha-status /etc/ssh/ssh_known_hosts
tar -xf - -C / --no-same-owner
ln -s /etc/pve/priv/authorized_keys /root/.ssh/authorized_keys
ln -s /etc/pve/priv/known_hosts /etc/ssh/ssh_known_hosts
if ! cmp -s /etc/ssh/sshd_config /var/lib/pve-lab/sshd_config; then
  cp /var/lib/pve-lab/sshd_config /etc/ssh/sshd_config
  systemctl restart ssh
fi
chmod 0600 /var/lib/pve-cluster/config.db
"""
WHOLLY = f"""\
set -e
ip route flush type blackhole
systemctl stop pve-cluster
systemctl kill --signal KILL corosync 2>/dev/null || true
systemctl stop corosync
systemctl reset-failed
rm -rf /dev/shm/qb-*
find /etc/corosync /var/lib/corosync -mindepth 1 -delete
mkdir -p /etc/corosync/uidgid.d
{FILES}
chmod 0400 /etc/corosync/authkey
journalctl -q --rotate --vacuum-time=1s
systemctl start corosync pve-cluster
"""
AROUND_COROSYNC = f"""\
set -e
systemctl stop pve-cluster
{FILES}
chmod 0400 /etc/corosync/authkey
"""
STATE = """\
set -e
corosync-quorumtool -s >/dev/null
{
  systemctl show -p InvocationID corosync
  sha256sum /etc/corosync/*.conf /etc/corosync/authkey /etc/hosts
  corosync-cmapctl totem.config_version
  corosync-cmapctl -b runtime.votequorum. | grep -v two_node || true
  corosync-quorumtool -s | grep -E 'Expected votes|Total votes'
  ip -4 -brief address show eth0
  ip route show type blackhole
} | sha256sum
[ "$(systemctl is-active pve-cluster ssh pvedaemon pveproxy | sort -u)" = active ] || exit 0
{
  cd /etc/pve && find . -type f ! -path './.*' | sort | xargs sha256sum
  find /etc/corosync /root/.ssh /var/lib/provisioner /etc/ssh -type f 2>/dev/null | sort | xargs sha256sum
  find /root/.ssh /etc/ssh -type l -printf '%p %l\\n' | sort
  find /etc/pve -type d | sort
  ls /var/lib/pve-cluster/backup /var/lib/pve-lab 2>/dev/null || true
} | sha256sum
"""


@dataclass(frozen=True)
class Wanted:
    """What the nodes are to be: their votes, whether they trust each other, who may log in, and their secret."""

    votes: tuple[int, ...]
    trust: bool
    user_key: str
    authkey: bytes


def state(nodes: Sequence[Node]) -> list[list[str]]:
    """For each node what sums up its corosync, then what sums up the rest; fewer where it is not well."""
    return [said.split()[::2] if code == 0 else [os.urandom(8).hex()] for code, said in parallel(_state, nodes)]


def reset(nodes: Sequence[Node], wanted: Wanted, *, is_corosync_well: bool) -> None:
    """Make them so; corosync goes on where it ``is_corosync_well``."""
    archive = _archive(nodes, wanted)
    if is_corosync_well:
        parallel(lambda node: node.run(AROUND_COROSYNC, stdin=archive), nodes)
        # only now: what still ran would have told the first that starts its newer files
        parallel(lambda node: node.run("systemctl start pve-cluster"), nodes)
    else:
        parallel(lambda node: node.run(WHOLLY, stdin=archive), nodes)
    parallel(partial(_wait, votes=sum(wanted.votes), count=len(nodes)), nodes)


def _state(node: Node) -> tuple[int, str]:
    return node.try_run(STATE)


def _wait(node: Node, votes: int, count: int) -> None:
    node.wait("quorate", partial(node.is_quorate, votes))
    is_all = f"[ $(grep -c '\"online\": 1' /etc/pve/.members) = {count} ]"
    is_quorate = "grep -q '\"quorate\": 1' /etc/pve/.members"
    node.wait_for("attached", f"{is_quorate} && {is_all} && touch /etc/pve/priv/known_hosts")


def _archive(nodes: Sequence[Node], wanted: Wanted) -> bytes:
    entries = [Entry(node.name, n, node.home, wanted.votes[n - 1]) for n, node in enumerate(nodes, start=1)]
    conf = conf_text(NAME, VERSION, entries)
    hosts = "127.0.0.1 localhost\n" + "".join(f"{node.home} {node.name}.lab {node.name}\n" for node in nodes)
    files = {
        "etc/hosts": hosts.encode(),
        "etc/corosync/corosync.conf": conf.encode(),
        "etc/corosync/authkey": wanted.authkey,
        "var/lib/pve-cluster/config.db": baseline.config_db(nodes, conf, wanted.user_key, trust=wanted.trust),
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), 0o644
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
