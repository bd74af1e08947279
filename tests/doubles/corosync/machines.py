"""The containers of one run: made from the image, gone with the run, and with the next one where it was killed."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.doubles.corosync.image import ensure_image
from tests.doubles.corosync.incus_cli import incus, query
from tests.doubles.corosync.node import Node, free_addresses, network_text, standins
from tests.lab.incus import Lab

OWNER = "user.corosync-lab.owner"
NAME = "user.corosync-lab.name"
HOME = "user.corosync-lab.home"
KEPT = "kept"
SET_UP = """\
set -e
tar -xf - -C /
hostnamectl set-hostname "$NAME"
mkdir -p -m 0755 /etc/pve /var/lib/pve-lab /var/lib/pve-cluster /etc/corosync
install -d -m 0700 /root/.ssh
rm -f /etc/ssh/ssh_host_* /root/.ssh/id_rsa*
ssh-keygen -q -t rsa -b 2048 -N '' -f /etc/ssh/ssh_host_rsa_key
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
ssh-keygen -q -t rsa -b 2048 -N '' -C "root@$(hostname)" -f /root/.ssh/id_rsa
cp -n /etc/ssh/sshd_config /var/lib/pve-lab/sshd_config
systemctl daemon-reload
systemctl restart ssh
systemctl -q enable corosync pve-cluster pvedaemon pveproxy
systemctl start --no-block --job-mode=ignore-dependencies pvedaemon pveproxy
"""


def parallel(work: Callable[[Node], Any], nodes: Sequence[Node]) -> list[Any]:
    """Do it for all nodes at once."""
    with ThreadPoolExecutor(max_workers=max(len(nodes), 1)) as pool:
        return list(pool.map(work, nodes))


def owner() -> str:
    """This process, by its number and when it began: a number alone may be another's by tomorrow."""
    return f"{os.getpid()}-{_began(os.getpid())}"


def remove_dead(lab: Lab) -> None:
    """Delete the nodes of runs that are over."""
    for name, config in _ours(lab):
        if config[OWNER] != KEPT and not _lives(config[OWNER]):
            incus(lab, "delete", "--force", name)


def create(lab: Lab, names: Sequence[str], owned_by: str) -> list[Node]:
    """New nodes, running, each with an address of its own, host keys and the stand-ins; no cluster yet."""
    image = ensure_image(lab)
    prefix = f"t{secrets.token_hex(4)}"
    nodes = [Node(name, f"{prefix}-{name}", "", lab) for name in names]
    try:
        with free_addresses(lab, len(nodes)) as addresses:
            for node, address in zip(nodes, addresses, strict=True):
                node.address = node.home = address
            parallel(lambda node: _create(image, node, owned_by), nodes)
        parallel(_start, nodes)
    except BaseException:
        remove(lab, prefix)
        raise
    return nodes


def find(lab: Lab, owned_by: str) -> list[Node]:
    """The nodes of that owner as they are now."""
    found = []
    for instance, config in _ours(lab):
        if config[OWNER] == owned_by:
            address = query(lab, f"/1.0/instances/{instance}")["devices"]["eth0"]["ipv4.address"]
            node = Node(config[NAME], instance, address, lab, home=config[HOME])
            node.is_off = query(lab, f"/1.0/instances/{instance}/state")["status"] != "Running"
            if not node.is_off:
                node.host_keys = host_keys(node)
            found.append(node)
    return sorted(found, key=lambda node: node.name)


def remove(lab: Lab, prefix: str) -> None:
    """Delete the nodes whose containers' names begin so."""
    found = [name for name, _ in _ours(lab) if name.startswith(prefix)]
    if found:
        incus(lab, "delete", "--force", *found)


def delete(nodes: Sequence[Node]) -> None:
    """Remove them."""
    incus(nodes[0].lab, "delete", "--force", *(node.instance for node in nodes))


def host_keys(node: Node) -> list[str]:
    """Its sshd's public keys."""
    lines = node.run("cat /etc/ssh/ssh_host_*_key.pub", check=False).splitlines()
    return [" ".join(line.split()[:2]) for line in lines if line.startswith("ssh-")]


def _create(image: str, node: Node, owned_by: str) -> None:
    lab = node.lab
    config = {OWNER: owned_by, NAME: node.name, HOME: node.home, "security.nesting": "true", "raw.lxc": _first()}
    options = [option for key, value in config.items() for option in ("--config", f"{key}={value}")]
    incus(lab, "init", image, node.instance, *options, "--device", f"eth0,ipv4.address={node.address}")


def _start(node: Node) -> None:
    lab = node.lab
    incus(lab, "config", "device", "add", node.instance, "fuse", "unix-char", "source=/dev/fuse", "path=/dev/fuse")
    _push(lab, node, network_text(lab, node.address), "etc/systemd/network/eth0.network")
    incus(lab, "start", node.instance)
    _set_up(node)


def _first() -> str:
    """Corosync's token must come in time on a busy machine; on real nodes it runs in real time, here it may not."""
    is_unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    return "lxc.cgroup2.cpu.weight = 2000" if is_unified else "lxc.cgroup.cpu.shares = 20480"


def _push(lab: Lab, node: Node, text: str, path: str) -> None:
    with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        incus(lab, "file", "push", "--mode=0644", file.name, f"{node.instance}/{path}")


def _set_up(node: Node) -> None:
    node.wait_until_started()
    node.run(f"NAME={node.name}\n{SET_UP}", stdin=standins())
    node.host_keys = host_keys(node)


def _ours(lab: Lab) -> list[tuple[str, dict[str, str]]]:
    instances = query(lab, "/1.0/instances?recursion=1")
    return [(one["name"], one["config"]) for one in instances if OWNER in (one["config"] or {})]


def _began(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]


def _lives(who: str) -> bool:
    pid, _, began = who.partition("-")
    try:
        return _began(int(pid)) == began
    except OSError:
        return False
