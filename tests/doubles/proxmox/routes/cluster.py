"""``/version`` and ``/cluster``: what is in the cluster, seen from any node."""

from __future__ import annotations

from collections.abc import Iterator

from tests.doubles.proxmox.call import Call, answers
from tests.doubles.proxmox.errors import ApiError, bad_parameters, died
from tests.doubles.proxmox.formats import split_list
from tests.doubles.proxmox.privileges import allowed_tags

LAST = 1_000_000

Entry = dict[str, object]


@answers("GET /version")
def version(call: Call) -> object:
    """What runs there."""
    return call.node.version


@answers("GET /cluster/nextid")
def nextid(call: Call) -> object:
    """The lowest free number, as text; or the asked one when it is free."""
    if "vmid" in call.given:
        if call.vmid in call.world.guests:
            raise bad_parameters({"vmid": f"VM {call.vmid} already exists"})
        return str(call.vmid)
    free = next((vmid for vmid in range(100, LAST) if vmid not in call.world.guests), 0)
    if not free:
        raise died(f"unable to get any free VMID in range [100, {LAST}]")
    return str(free)


@answers("GET /cluster/status")
def status(call: Call) -> object:
    """The cluster and its nodes."""
    nodes = call.world.nodes
    online = sum(node.online for node in nodes.values())
    found: list[Entry] = [
        {
            "id": f"node/{name}",
            "name": name,
            "type": "node",
            "ip": node.ip,
            "level": "",
            "local": int(node is call.node),
            "nodeid": number if call.world.name else 0,
            "online": int(node.online),
        }
        for number, (name, node) in enumerate(nodes.items(), 1)
    ]
    if call.world.name:
        cluster = {"id": "cluster", "type": "cluster", "name": call.world.name, "nodes": len(nodes), "version": 3}
        found.insert(0, {**cluster, "quorate": int(online * 2 > len(nodes))})
    return found


@answers("GET /cluster/options")
def options(call: Call) -> object:
    """What holds for the datacenter; little of it for who may not look, and the tags that there are for everybody."""
    shown = dict(call.world.datacenter) if call.may("/", "Sys.Audit") else {}
    return {**shown, "allowed-tags": allowed_tags(call)}


@answers("PUT /cluster/options")
def change_options(call: Call) -> object:
    """Change what the double knows of it: who may set which tags."""
    for name in split_list(call.text("delete")):
        call.world.datacenter.pop(name, None)
    if "registered-tags" in call.given:
        call.world.datacenter["registered-tags"] = split_list(call.text("registered-tags"))
    if "user-tag-access" in call.given:
        given = dict(part.split("=", 1) for part in call.text("user-tag-access").split(","))
        listed = split_list(given.get("user-allow-list", ""))
        call.world.datacenter["user-tag-access"] = {"user-allow": given["user-allow"], "user-allow-list": listed}
    return None


@answers("GET /cluster/resources")
def resources(call: Call) -> object:
    """The guests that the caller may see; their state is up to ten seconds old."""
    if call.text("type") != "vm":
        raise ApiError(501, "the double lists no resources but guests")
    return list(_guests(call))


def _guests(call: Call) -> Iterator[Entry]:
    world = call.world
    for vmid, guest in sorted(world.guests.items()):
        if not call.may(f"/vms/{vmid}", "VM.Audit"):
            continue
        told = world.stats(vmid) if world.nodes[guest.node].online else {}
        found: Entry = {"id": f"lxc/{vmid}", "vmid": vmid, "node": guest.node, "type": "lxc", "status": "unknown"}
        found.update(told)
        found.update({name: guest.config[name] for name in ("lock", "tags") if name in guest.config})
        pool = world.pool_of(vmid)
        if pool and call.may(f"/pool/{pool}", "Pool.Audit"):
            found["pool"] = pool
        if vmid in world.ha:
            found["hastate"] = "started"
        yield found
