"""What of a container of Incus no block of a file can say is told, its profiles' keys and devices included."""

from __future__ import annotations

from typing import Any

from provisioner.hosts.incus.translate import beyond_the_file

NIC = {"type": "nic", "network": "incusbr0", "name": "eth0"}
CHAR = {"type": "unix-char", "source": "/dev/ttyUSB0", "path": "/dev/ttyUSB0"}
OWN = {"limits.cpu": "2", "security.nesting": "true", "user.note": "x", "volatile.uuid": "1", "image.os": "Debian"}
ROOT = {"type": "disk", "path": "/", "pool": "default"}
BY_HAND: dict[str, Any] = {
    "config": {**OWN, "raw.lxc": "lxc.mount.entry = /dev/fuse dev/fuse none bind 0 0", "environment.TOKEN": "canary"},
    "expanded_config": {
        **OWN,
        "raw.lxc": "lxc.mount.entry = /dev/fuse dev/fuse none bind 0 0",
        "environment.TOKEN": "canary",
        "limits.memory": "2GiB",
        "limits.processes": "500",
        "security.privileged": "true",
    },
    "devices": {"serial": CHAR},
    "expanded_devices": {"eth0": NIC, "eth1": {**NIC, "name": "eth1"}, "root": ROOT, "serial": CHAR},
}


def test_keys_and_devices_without_a_word_are_told() -> None:
    assert beyond_the_file(BY_HAND) == [
        "environment.TOKEN",
        "limits.memory: 2GiB (of its profile)",
        "limits.processes: 500 (of its profile)",
        "raw.lxc: lxc.mount.entry = /dev/fuse dev/fuse none bind 0 0",
        "device eth1: name=eth1, network=incusbr0, type=nic (of its profile)",
        "device serial: path=/dev/ttyUSB0, source=/dev/ttyUSB0, type=unix-char",
    ]


def test_nothing_is_told_of_one_that_a_block_says() -> None:
    usual = {"config": OWN, "expanded_config": OWN, "devices": {}, "expanded_devices": {"eth0": NIC, "root": ROOT}}
    assert beyond_the_file(usual) == []
