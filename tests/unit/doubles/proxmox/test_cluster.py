"""What is seen of the cluster from any node, and by whom: tokens are never root@pam, privileges go by path."""

from __future__ import annotations

from typing import Any

from tests.doubles.proxmox import Double, double
from tests.doubles.proxmox.client import Hand, csrf, ended, root, with_token
from tests.doubles.proxmox.storage import Storage
from tests.doubles.proxmox.world import TEMPLATE, World

CONFIG = "/nodes/pve1/lxc/105/config"
NEW = {"ostemplate": f"local:vztmpl/{TEMPLATE}", "storage": "local-lvm"}


def test_resources_are_as_the_nodes_last_told(pve: Double, api: Any) -> None:
    """PVE's nodes tell each other of their guests every 10 s; tags and locks are in the configuration and so live."""
    assert pve.world.stats_s == 10
    assert ended(api, api.nodes("pve1").lxc.post(vmid=105, **NEW, tags="lab")) == "WARNINGS: 1"
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


def user(pve: Double, name: str = "joe@pve") -> Hand:
    """A user without any permission, logged in."""
    pve.world.access.add_user(name, "secret")
    return Hand(pve, {"Cookie": f"PVEAuthCookie={pve.world.access.ticket(name)}", **csrf(pve, name)})


def test_what_is_missing_is_named(pve: Double) -> None:
    """Facts: ``403 Permission check failed (/nodes/pve1, Sys.Audit)``; create without VM.Allocate: no detail."""
    joe = user(pve)
    reply = joe.ask("GET", "/nodes/pve1/status")
    assert reply.line == "403 Permission check failed (/nodes/pve1, Sys.Audit)"
    assert reply.json == {"data": None, "message": "Permission check failed (/nodes/pve1, Sys.Audit)\n"}
    assert joe.ask("POST", "/nodes/pve1/lxc", vmid=106, **NEW).line == "403 Permission check failed"


def test_features_of_a_privileged_container(pve: Double) -> None:
    """Facts: features on privileged containers are for root@pam; a privileged one for others: ``(/, Sys.Modify)``."""
    pve.world.add_guest(105, "pve1").config.pop("unprivileged")
    text = "changing feature flags for privileged container is only allowed for root@pam"
    assert with_token(pve).ask("PUT", CONFIG, features="nesting=1").line == f"403 Permission check failed ({text})"
    joe = user(pve)
    pve.world.access.permissions.grant("/", "joe@pve", "PVEVMAdmin")
    reply = joe.ask("POST", "/nodes/pve1/lxc", vmid=106, **NEW, unprivileged=0)
    assert reply.line == "403 Permission check failed (/, Sys.Modify)"


def test_what_only_root_in_person_may_call(pve: Double) -> None:
    """Facts: ``403 Permission check failed (user != root@pam)`` for a root token too."""
    reply = with_token(pve).ask("POST", "/cluster/config", clustername="x")
    assert reply.line == "403 Permission check failed (user != root@pam)"


def test_lists_show_what_may_be_seen(pve: Double) -> None:
    for vmid in (105, 106):
        pve.world.add_guest(vmid, "pve1")
    joe = user(pve)
    pve.world.access.permissions.grant("/vms/106", "joe@pve", "PVEAuditor")
    assert [one["vmid"] for one in joe.ask("GET", "/nodes/pve1/lxc").json["data"]] == [106]
    assert [one["id"] for one in joe.ask("GET", "/cluster/resources", type="vm").json["data"]] == ["lxc/106"]
    assert joe.ask("GET", "/nodes/pve1/storage").json["data"] == []
    assert joe.ask("GET", "/access/permissions", path="/vms/106").json["data"]["/vms/106"]["VM.Audit"] == 1


def test_a_pool_gives_its_permissions_to_its_guests(pve: Double) -> None:
    joe = user(pve)
    hand = root(pve)
    assert hand.ask("POST", "/pools", poolid="lab").status == 200
    for path, role in (("/pool/lab", "PVEVMAdmin"), ("/storage", "PVEDatastoreUser")):
        pve.world.access.permissions.grant(path, "joe@pve", role)
    upid = joe.ask("POST", "/nodes/pve1/lxc", vmid=106, **NEW, pool="lab").json["data"]
    assert pve.world.tasks.wait(upid).is_good
    assert joe.ask("GET", "/nodes/pve1/lxc/106/config").status == 200
    assert joe.ask("POST", "/nodes/pve1/lxc", vmid=107, **NEW).status == 403
