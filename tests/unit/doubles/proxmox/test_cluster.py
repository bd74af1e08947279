"""What is seen of the cluster from any node: resources, nodes, storages, pools, tasks; and faults on demand."""

from __future__ import annotations

from typing import Any

from tests.doubles.proxmox import Double, double
from tests.doubles.proxmox.client import Hand, ended, root, with_token
from tests.doubles.proxmox.storage import Storage
from tests.doubles.proxmox.world import TEMPLATE, World

NEW = {"ostemplate": f"local:vztmpl/{TEMPLATE}", "storage": "local-lvm", "features": "nesting=1"}


def test_resources_are_as_the_nodes_last_told(pve: Double, api: Any) -> None:
    """PVE's nodes tell each other of their guests every 10 s; tags and locks are in the configuration and so live."""
    assert pve.world.stats_s == 10
    assert ended(api, api.nodes("pve1").lxc.post(vmid=105, **NEW, tags="lab")) == "OK"
    seen = api.cluster.resources.get(type="vm")[0]
    assert (seen["id"], seen["status"], seen["tags"]) == ("lxc/105", "unknown", "lab")
    assert "name" not in seen
    pve.world.tell()
    assert api.cluster.resources.get(type="vm")[0]["status"] == "stopped"


def test_nodes_tell_by_themselves() -> None:
    world = World(nodes=1)
    world.stats_s = 0.02
    with double(world) as pve:
        world.add_guest(105, "pve1")
        world.containers.start(105, {})
        hand = root(pve)
        while hand.ask("GET", "/cluster/resources", type="vm").json["data"][0]["status"] != "running":
            assert not world.unanswered


def test_tasks_that_are_none(pve: Double) -> None:
    """Facts: 400 ``no such task``, ``unable to parse worker upid``."""
    upid = "UPID:pve1:00001000:00A01000:6B006547:vzcreate:100:root@pam:"
    for name, text in ((upid, "no such task"), ("nonsense", "unable to parse worker upid")):
        assert root(pve).ask("GET", f"/nodes/pve1/tasks/{name}/status").json["errors"] == {"upid": text}


def test_a_task_of_another_is_not_everybodys(pve: Double, api: Any) -> None:
    pve.world.access.add_user("joe@pve", "secret")
    upid = api.nodes("pve1").lxc.post(vmid=105, **NEW)
    line = with_token(pve, "joe@pve", "t").ask("GET", f"/nodes/pve1/tasks/{upid}/status").line
    assert line == "403 Permission check failed (/nodes/pve1, Sys.Audit)"


def test_a_client_that_says_nothing_holds_up_nobody(pve: Double) -> None:
    import socket

    host, port = pve.address.split(":")
    with socket.create_connection((host, int(port)), 60):
        assert Hand(pve).ask("GET", "/access/domains").status == 200


def test_a_storage_of_another_node_is_listed_as_not_usable(pve: Double) -> None:
    """pve-storage ``Storage.pm`` storage_info: disabled and foreign ones are left out only where a content is asked."""
    pve.world.add_storage(Storage("slowstore", "lvmthin", ("rootdir",), nodes=("pve2",)))
    pve.world.add_storage(Storage("off", "lvmthin", ("rootdir",), enabled=False))
    found = {one["storage"]: one for one in root(pve).ask("GET", "/nodes/pve1/storage").json["data"]}
    for name in ("slowstore", "off"):
        assert {key: found[name][key] for key in ("enabled", "active", "total", "avail")} == dict.fromkeys(
            ("enabled", "active", "total", "avail"), 0
        )
    assert found["local-lvm"]["enabled"] == 1
    listed = root(pve).ask("GET", "/nodes/pve1/storage", content="rootdir").json["data"]
    assert {one["storage"] for one in listed} == {"local-lvm", "local-zfs"}
    there = {one["storage"] for one in root(pve).ask("GET", "/nodes/pve1/storage", enabled=1).json["data"]}
    assert "slowstore" in there
    assert "off" not in there
