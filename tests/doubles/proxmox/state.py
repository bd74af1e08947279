"""How a guest is: what its node measures, and what it tells the other nodes about it."""

from __future__ import annotations

from tests.doubles.proxmox.formats import size_bytes
from tests.doubles.proxmox.guest import Guest, parts
from tests.doubles.proxmox.guests import Containers

MIB = 1 << 20
CORES = 8
USED_MEMORY = 40 * MIB
USED_DISK = 900 * MIB
COUNTERS = ("netin", "netout", "diskread", "diskwrite")


def state(containers: Containers, guest: Guest) -> dict[str, object]:
    """A guest as ``status/current`` and the list of a node's guests have it."""
    config = guest.config
    uptime = containers.running_s(guest.vmid)
    running = uptime is not None
    found: dict[str, object] = {
        "vmid": guest.vmid,
        "type": "lxc",
        "status": "running" if running else "stopped",
        "name": config.get("hostname") or f"CT{guest.vmid}",
        "cpus": int(config["cores"]) if "cores" in config else CORES,
        "maxmem": int(config.get("memory", "512")) * MIB,
        "maxswap": int(config.get("swap", "0")) * MIB,
        "maxdisk": root_size(guest),
        "mem": USED_MEMORY if running else 0,
        "swap": 0,
        "disk": USED_DISK if running else 0,
        "cpu": 0,
        "uptime": int(uptime or 0),
        **dict.fromkeys(COUNTERS, 0),
    }
    if running:
        found["pid"] = 100_000 + guest.vmid
    if config.get("template") == "1":
        found["template"] = 1
    found.update({name: config[name] for name in ("tags", "lock") if name in config})
    return found


def root_size(guest: Guest) -> int:
    """The bytes of the root file system, 4 GiB when nothing is said."""
    text = parts("rootfs", guest.config["rootfs"]).get("size", "") if "rootfs" in guest.config else ""
    return size_bytes(text) or 4096 * MIB


def told(containers: Containers, guest: Guest) -> dict[str, object]:
    """What a node tells about a guest every ten seconds; ``/cluster/resources`` knows nothing newer."""
    now = state(containers, guest)
    kept = ("name", "status", "uptime", "maxmem", "mem", "maxdisk", "disk", "cpu", *COUNTERS)
    return {**{name: now[name] for name in kept}, "maxcpu": now["cpus"], "template": now.get("template", 0)}
