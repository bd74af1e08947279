"""The cluster that tests break and mend."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from tests.doubles.corosync import machines, stale
from tests.doubles.corosync.conf import Entry, entries_of
from tests.doubles.corosync.incus_cli import incus
from tests.doubles.corosync.machines import parallel
from tests.doubles.corosync.node import Node, free_addresses
from tests.doubles.corosync.reset import Wanted, reset, state
from tests.doubles.corosync.tracker import QuorumTracker, tracked

CLIENT = """\
Host *
  User root
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
"""


@dataclass(frozen=True)
class GuestSpec:
    """A guest to be made: its number, kind and disks."""

    vmid: int
    kind: Literal["lxc", "qemu"] = "lxc"
    volumes: tuple[str, ...] = ()


class Cluster:
    """``nodes`` pve1, pve2, …; ssh to them with ``ssh_config``; a CLI started with ``environment`` does so."""

    def __init__(self, nodes: Sequence[Node], folder: Path) -> None:
        self.nodes = list(nodes)
        self.folder = folder
        self.ssh_config = folder / "ssh_config"
        self._wanted: Wanted | None = None
        self._healthy: list[list[str]] = []
        if not self.ssh_config.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "user_key")]
            subprocess.run(key, check=True, timeout=60)
            self.ssh_config.write_text(CLIENT.format(folder=folder), encoding="ascii")
        self.know_hosts()

    @property
    def environment(self) -> dict[str, str]:
        """What a ``provision`` must have in its environment to reach the nodes."""
        return {"PROVISION_SSH_CONFIG": str(self.ssh_config)}

    def node(self, name: str) -> Node:
        """The node of that name."""
        return next(node for node in self.nodes if node.name == name)

    def know_hosts(self) -> None:
        """Let the controller know every node's host keys at the addresses that they have now, and nothing else."""
        lines = [f"{node.address} {key}\n" for node in self.nodes for key in node.host_keys]
        (self.folder / "known_hosts").write_text("".join(lines), encoding="ascii")

    def members(self) -> list[Entry]:
        """Who is in the cluster as the first quorate node's ``/etc/pve/corosync.conf`` has it."""
        return entries_of(self.quorate().read("/etc/pve/corosync.conf"))[1]

    def quorate(self) -> Node:
        """A node that is in the quorate partition."""
        return next(node for node in self.nodes if not node.is_off and node.is_quorate())

    def heal(self, votes: Sequence[int] = (), *, trust: bool = True) -> None:
        """All nodes members, quorate, of one version, with nothing else: as at first; quick where they still are.

        ``trust``: whether the nodes may log in to each other, as in a real cluster.
        """
        key = (self.folder / "user_key.pub").read_text(encoding="ascii")
        all_votes = tuple(votes) or (1,) * len(self.nodes)
        for node in self.nodes:
            self.power_on(node.name)
        now = state(self.nodes)
        is_same = self._wanted is not None and self._wanted.votes == all_votes
        is_corosync_well = is_same and [one[:1] for one in now] == [one[:1] for one in self._healthy]
        authkey = self._wanted.authkey if self._wanted and is_corosync_well else os.urandom(256)
        wanted = Wanted(all_votes, trust, key, authkey)
        if is_corosync_well and (wanted, now) == (self._wanted, self._healthy):
            return
        for node in self.nodes:
            node.use_address(node.home)
        self.know_hosts()
        reset(self.nodes, wanted, is_corosync_well=is_corosync_well)
        self._wanted, self._healthy = wanted, state(self.nodes)

    def make_stale(self, name: str, mode: stale.Mode) -> None:
        """The others move on while this node is off; then it comes back with its old files, in that way stale."""
        stale.make_stale(self, self.node(name), mode)

    def renumber(self, name: str) -> None:
        """The node gets another address, which its own ``/etc/hosts`` says, and no list."""
        node = self.node(name)
        node.run("systemctl stop pve-cluster corosync")
        old = node.address
        with free_addresses(node.lab, 1) as free:
            node.use_address(free[0])
        node.run(f"sed -i 's/^{old} /{node.address} /' /etc/hosts && systemctl start corosync pve-cluster")
        self.know_hosts()

    def power_off(self, *names: str) -> None:
        """At once, as by its plug; the others have noticed when this returns, which takes them seven seconds."""
        self._switch_off(names, "true")

    def shut_down(self, *names: str) -> None:
        """As by its button: corosync takes leave and every connection is closed, so that all others know at once."""
        self._switch_off(names, "systemctl stop pve-cluster corosync ssh; pkill -KILL sshd || true")

    def _switch_off(self, names: Sequence[str], before: str) -> None:
        going = [node for node in map(self.node, names) if not node.is_off]
        parallel(lambda node: node.run(before), going)
        if going:
            incus(going[0].lab, "stop", "--force", *(node.instance for node in going))
        for node in going:
            node.is_off = True
        is_gone = " && ".join(f"! corosync-quorumtool -l | grep -qw {node.name}" for node in going)
        for other in self._running() if going else []:
            other.wait_for(f"without {', '.join(names)}", is_gone)

    def power_on(self, name: str) -> None:
        """Its system has started when this returns; what it is in the cluster is for the caller to wait for."""
        node = self.node(name)
        if node.is_off:
            incus(node.lab, "start", node.instance)
            node.is_off = False
            node.wait_until_started()
            node.host_keys = node.host_keys or machines.host_keys(node)

    def add_guest(
        self,
        node: str,
        vmid: int,
        kind: Literal["lxc", "qemu"] = "lxc",
        volumes: Sequence[str] = ("local-lvm:vm-101-disk-0",),
    ) -> None:
        """A guest's configuration in that node's folder; on a node without quorum, in its own copy only."""
        self._plant(self.node(node), node, GuestSpec(vmid, kind, tuple(volumes)))

    def add_ghost(self, name: str, guests: Sequence[GuestSpec] = ()) -> None:
        """What is left of a node that is no member any more: its folder with guests, its key."""
        node = self.quorate()
        node.run(f"mkdir -p /etc/pve/nodes/{name}/lxc /etc/pve/nodes/{name}/qemu-server /etc/pve/nodes/{name}/priv")
        node.run(f"echo 'ssh-rsa AAAAB3ghost root@{name}' >> /etc/pve/priv/authorized_keys")
        for guest in guests:
            self._plant(node, name, guest)

    def make_single(self, name: str) -> None:
        """A node that is in no cluster, with the files that it had."""
        node = self.node(name)
        edit = "PYTHONPATH=/usr/lib/pve-lab python3 -P -m standin.plant --remove corosync.conf"
        files = "rm -rf /etc/corosync/authkey /etc/corosync/corosync.conf /var/lib/corosync/*"
        node.run(f"systemctl stop pve-cluster corosync && {edit} && {files} && systemctl start pve-cluster")

    def partition(self, *groups: Sequence[str]) -> None:
        """The groups no longer hear each other, and all of them hear the controller; ``heal`` ends it."""
        addresses = [{self.node(name).address for name in group} for group in groups]
        everybody = set().union(*addresses)
        for group, mine in zip(groups, addresses, strict=True):
            cut = " && ".join(f"ip route replace blackhole {address}/32" for address in everybody - mine)
            for name in group:
                self.node(name).run(cut)
        for group, mine in zip(groups, addresses, strict=True):
            for node in map(self.node, group):
                node.wait("partitioned", partial(_is_partition, node, mine))

    def set_ha(self, lines: Sequence[str]) -> None:
        """What ``ha-manager status`` says on all nodes, after its line on quorum."""
        text = "".join(f"{line}\n" for line in lines)
        parallel(lambda node: node.write("/var/lib/pve-lab/ha-status", text), self._running())

    def break_trust(self, name: str, other: str) -> None:
        """Node ``name`` no longer knows the host key of ``other``, by its name nor by its address."""
        node, stranger = self.node(name), self.node(other)
        words = f"^({stranger.name}|{stranger.home}|{stranger.address}) ".replace(".", r"\.")
        # where it is a link into /etc/pve, sed leaves a file of the node's own in its place
        node.run(f"sed -i -E '/{words}/d' /etc/ssh/ssh_known_hosts; rm -f /root/.ssh/known_hosts")

    def quorum_tracker(self, names: Sequence[str]) -> AbstractContextManager[QuorumTracker]:
        """While it lasts every node of these reports each change of its quorum: ``lost`` is empty if there was none."""
        return tracked([self.node(name) for name in names])

    def close(self) -> None:
        """All of it is gone."""
        machines.delete(self.nodes)
        shutil.rmtree(self.folder)

    def _running(self) -> list[Node]:
        return [node for node in self.nodes if not node.is_off]

    def write_alone(self, node: str, path: str, times: int) -> None:
        """A file that a node without quorum has written so often in its own copy of /etc/pve, as with expected 1."""
        self._plant_file(self.node(node), f"--times {times} {path}", b"alone\n")

    def _plant(self, node: Node, folder: str, guest: GuestSpec) -> None:
        kind = {"lxc": "lxc", "qemu": "qemu-server"}[guest.kind]
        path = f"nodes/{folder}/{kind}/{guest.vmid}.conf"
        text = _guest_text(guest)
        if node.is_quorate():
            node.run(f"cat > /etc/pve/{path}", stdin=text.encode())
            return
        self._plant_file(node, path, text.encode())

    def _plant_file(self, node: Node, words: str, text: bytes) -> None:
        stop = "systemctl stop pve-cluster"
        start = "systemctl start --job-mode=ignore-dependencies pve-cluster"
        plant = f"PYTHONPATH=/usr/lib/pve-lab python3 -P -m standin.plant {words}"
        node.run(f"{stop} && {plant} && {start}", stdin=text)


def _is_partition(node: Node, addresses: set[str]) -> bool:
    said = node.run("corosync-quorumtool -si", check=False).partition("Votes Name")[2]
    return {line.split()[2] for line in said.splitlines() if line.strip()} == addresses


def _guest_text(guest: GuestSpec) -> str:
    if guest.kind == "lxc":
        disks = [
            f"rootfs: {volume},size=8G" if n == 0 else f"mp{n - 1}: {volume},mp=/mnt/{n}"
            for n, volume in enumerate(guest.volumes)
        ]
        head = ["arch: amd64", "cores: 2", f"hostname: ct{guest.vmid}", "memory: 2048", "ostype: debian"]
    else:
        disks = [f"scsi{n}: {volume},size=32G" for n, volume in enumerate(guest.volumes)]
        head = ["boot: order=scsi0", "cores: 2", "memory: 4096", f"name: vm{guest.vmid}"]
    return "".join(f"{line}\n" for line in (*head, *disks))
