"""``/nodes``: the nodes themselves."""

from __future__ import annotations

import time
from datetime import datetime
from zoneinfo import ZoneInfo

from tests.doubles.proxmox.call import Call, answers
from tests.doubles.proxmox.privileges import ZONE
from tests.doubles.proxmox.world import VERSION

DISK = 100 << 30
DAY_S = 86_400
UPTIME_S = DAY_S


@answers("GET /nodes")
def listed(call: Call) -> object:
    """All nodes, with figures of those that the caller may see more of."""
    found: list[dict[str, object]] = []
    for name, node in call.world.nodes.items():
        state = "online" if node.online else "offline"
        entry: dict[str, object] = {"id": f"node/{name}", "node": name, "type": "node", "status": state, "level": ""}
        if node.online and call.may(f"/nodes/{name}", "Sys.Audit"):
            memory = {"maxmem": node.memory, "mem": node.memory // 8}
            entry.update(memory, maxcpu=node.cores, cpu=0.02, maxdisk=DISK, disk=DISK // 10, uptime=UPTIME_S)
        found.append(entry)
    return found


@answers("GET /nodes/{node}/status")
def status(call: Call) -> object:
    """What a node is made of, and how loaded."""
    node = call.node
    kernel = "6.17.2-1-pve"
    return {
        "uptime": UPTIME_S,
        "cpu": 0.02,
        "wait": 0,
        "idle": 0,
        "loadavg": ["0.10", "0.08", "0.05"],
        "pveversion": f"pve-manager/{VERSION['version']}/{VERSION['repoid']}",
        "kversion": f"Linux {kernel} #1 SMP PREEMPT_DYNAMIC PMX",
        "current-kernel": {"sysname": "Linux", "release": kernel, "version": "#1 SMP", "machine": "x86_64"},
        "boot-info": {"mode": "efi", "secureboot": 0},
        "cpuinfo": {
            "cpus": node.cores,
            "cores": node.cores,
            "sockets": 1,
            "model": "double",
            "hvm": "1",
            "flags": "fpu sse4_2 fma avx f16c bmi2 avx2",
        },
        "memory": {"total": node.memory, "used": node.memory // 8, "free": node.memory * 7 // 8},
        "swap": {"total": 0, "used": 0, "free": 0},
        "ksm": {"shared": 0},
        "rootfs": {"total": DISK, "used": DISK // 10, "free": DISK * 9 // 10, "avail": DISK * 9 // 10},
    }


@answers("GET /nodes/{node}/time")
def clock(call: Call) -> object:
    """The time, and what the node's clocks show as if it were UTC."""
    now = int(time.time() + call.node.clock_ahead_s)
    offset = datetime.now(ZoneInfo(call.node.timezone)).utcoffset()
    return {
        "timezone": call.node.timezone,
        "time": now,
        "localtime": now + int(offset.total_seconds() if offset else 0),
    }


@answers("GET /nodes/{node}/certificates/info")
def certificates(call: Call) -> object:
    """The authority's certificate and the node's own, as pve-manager's ``API2/Certificates.pm`` lists them."""
    now = int(time.time())
    lives = {"pve-root-ca.pem": 3650, "pve-ssl.pem": call.node.certificate_days}
    issuer = "/CN=Proxmox Virtual Environment"
    return [
        {"filename": name, "subject": f"/CN={name}", "issuer": issuer, "notbefore": now, "notafter": now + days * DAY_S}
        for name, days in lives.items()
    ]


@answers("GET /nodes/{node}/network")
def network(call: Call) -> object:
    """Interfaces; bridges only those that the caller may see or use."""
    found: list[dict[str, object]] = [{"iface": "eno1", "type": "eth", "method": "manual", "exists": 1, "active": 1}]
    for name, cidr in call.node.bridges.items():
        address, _, netmask = cidr.partition("/")
        entry: dict[str, object] = {"iface": name, "type": "bridge", "method": "static", "active": 1, "autostart": 1}
        entry.update(cidr=cidr, address=address, netmask=netmask, bridge_ports="eno1", bridge_stp="off", bridge_fd="0")
        if call.may_any(f"{ZONE}/{name}", "SDN.Audit", "SDN.Use"):
            found.append(entry)
    kind = {"any_bridge": "bridge"}.get(call.text("type"), call.text("type"))
    return [{**entry, "priority": n} for n, entry in enumerate(found, 3) if kind in ("", entry["type"])]
