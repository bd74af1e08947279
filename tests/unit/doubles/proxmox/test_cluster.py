"""What is seen of the cluster from any node: resources, nodes, storages, pools, tasks; and faults on demand."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from proxmoxer import AuthenticationError, ResourceException
from proxmoxer.tools import Tasks

from tests.doubles.proxmox import Double, double
from tests.doubles.proxmox.client import Hand, ended, proxmoxer, root, with_token
from tests.doubles.proxmox.guests import Template
from tests.doubles.proxmox.storage import Storage
from tests.doubles.proxmox.world import NEWER_TEMPLATE, TEMPLATE, World

NEW = {"ostemplate": f"local:vztmpl/{TEMPLATE}", "storage": "local-lvm", "features": "nesting=1"}


@pytest.fixture
def api(pve: Double) -> Any:
    return proxmoxer(pve)


def test_pools_are_made_once(pve: Double) -> None:
    """The server creates or refuses: of sixteen that make the same pool at once, one does."""
    hand = with_token(pve)
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda n: hand.ask("POST", "/pools", poolid="lock-1", comment=n), range(16)))
    lines = sorted(reply.line for reply in replies)
    assert lines == ["200 OK", *["500 create pool failed: pool 'lock-1' already exists"] * 15]
    winner = next(number for number, reply in enumerate(replies) if reply.status == 200)
    assert hand.ask("GET", "/pools").json["data"] == [{"poolid": "lock-1", "comment": str(winner)}]


def test_pools_come_and_go(pve: Double, api: Any) -> None:
    """Facts: unknown pool: 500 ``pool 'nosuch' does not exist``; only empty ones are deleted."""
    pve.world.add_guest(105, "pve1")
    api.pools.post(poolid="lab", comment="one")
    api.pools.put(poolid="lab", comment="two", vms="105")
    assert api.pools.get(poolid="lab")[0]["comment"] == "two"
    assert api.pools("lab").get()["members"][0]["vmid"] == 105
    hand = root(pve)
    assert hand.ask("DELETE", "/pools/lab").line == "500 delete pool failed: pool 'lab' is not empty (contains VM 105)"
    api.pools.put(poolid="lab", vms="105", delete=1)
    assert api.pools.delete(poolid="lab") is None
    assert hand.ask("GET", "/pools", poolid="nosuch").line == "500 pool 'nosuch' does not exist"
    assert hand.ask("DELETE", "/pools/nosuch").line == "500 delete pool failed: pool 'nosuch' does not exist"
    assert hand.ask("POST", "/pools", poolid="1st").line == "500 create pool failed: pool name must start with a letter"


def test_a_guest_that_goes_leaves_its_pool(pve: Double, api: Any) -> None:
    api.pools.post(poolid="lab")
    assert ended(api, api.nodes("pve1").lxc.post(vmid=105, **NEW, pool="lab")) == "OK"
    assert api.cluster.resources.get(type="vm")[0]["pool"] == "lab"
    assert ended(api, api.nodes("pve1").lxc(105).delete()) == "OK"
    assert pve.world.pools["lab"].vms == set()


def test_resources_are_as_the_nodes_last_told(pve: Double, api: Any) -> None:
    """PVE's nodes tell each other of their guests every 10 s; tags and locks are in the configuration and so live."""
    assert pve.world.stats_s == 10
    assert ended(api, api.nodes("pve1").lxc.post(vmid=105, **NEW, tags="lab")) == "OK"
    seen = api.cluster.resources.get(type="vm")[0]
    assert (seen["id"], seen["status"], seen["tags"]) == ("lxc/105", "unknown", "lab")
    assert "name" not in seen
    pve.world.tell()
    assert api.cluster.resources.get(type="vm")[0]["status"] == "stopped"
    assert {one["type"] for one in api.cluster.resources.get()} == {"lxc", "node", "storage"}


def test_nodes_tell_by_themselves() -> None:
    world = World(nodes=1)
    world.stats_s = 0.02
    with double(world) as pve:
        world.add_guest(105, "pve1")
        world.containers.start(105, {})
        hand = root(pve)
        while hand.ask("GET", "/cluster/resources", type="vm").json["data"][0]["status"] != "running":
            assert not world.unanswered


def test_a_cluster_of_one(pve: Double) -> None:
    assert root(pve).ask("GET", "/cluster/status").json["data"][0]["name"] == "homelab"
    with double(World(nodes=1)) as single:
        data = root(single).ask("GET", "/cluster/status").json["data"]
        assert [(one["type"], one["name"], one["local"]) for one in data] == [("node", "pve1", 1)]


def test_a_node_that_is_down_is_seen(pve: Double, api: Any) -> None:
    pve.world.add_guest(105, "pve3")
    pve.take_down("pve3")
    assert {one["node"]: one["status"] for one in api.nodes.get()}["pve3"] == "offline"
    assert api.cluster.resources.get(type="vm")[0]["status"] == "unknown"
    with pytest.raises(ResourceException) as caught:
        api.nodes("pve3").lxc(105).config.get()
    assert (caught.value.status_code, caught.value.errors) == (595, {"errors": b""})


def test_what_a_node_is(pve: Double, api: Any) -> None:
    pve.world.nodes["pve1"].pci.append({"id": "0000:01:00.0", "class": "0x030000", "vendor": "0x10de", "device": "0x1"})
    node = api.nodes("pve1")
    assert node.hardware.pci.get()[0]["vendor"] == "0x10de"
    assert [one["iface"] for one in node.network.get(type="bridge")] == ["vmbr0"]
    assert node.dns.get()["dns1"] == "192.168.1.1"
    assert node.time.get()["timezone"] == "Europe/Berlin"
    assert node.status.get()["pveversion"].startswith("pve-manager/9.2")
    assert {one["storage"] for one in node.storage.get(content="rootdir")} == {"local-lvm", "local-zfs"}


def test_templates_are_listed_downloaded_and_deleted(pve: Double, api: Any) -> None:
    node = api.nodes("pve2")
    assert NEWER_TEMPLATE in [one["template"] for one in node.aplinfo.get()]
    assert ended(api, node.aplinfo.post(storage="local", template=NEWER_TEMPLATE)) == "OK"
    volids = {f"local:vztmpl/{TEMPLATE}", f"local:vztmpl/{NEWER_TEMPLATE}"}
    assert {one["volid"] for one in node.storage("local").content.get(content="vztmpl")} == volids
    assert f"local:vztmpl/{NEWER_TEMPLATE}" not in pve.world.storages["local"].on("pve1")
    upid = node.storage("local").content(f"local:vztmpl/{NEWER_TEMPLATE}").delete()
    assert upid.split(":")[5:7] == ["imgdel", "local"]
    assert ended(api, upid) == "OK"
    reply = root(pve).ask("POST", "/nodes/pve2/aplinfo", storage="local", template="nosuch")
    assert reply.json["errors"] == {"template": "no such template"}


def test_a_template_from_anywhere(pve: Double, api: Any) -> None:
    store = api.nodes("pve1").storage("local")
    given = {"content": "vztmpl", "filename": "a b.tar.xz", "url": "https://example.org/x.tar.xz"}
    assert ended(api, store.post("download-url", **given)) == "OK"
    assert pve.world.storages["local"].on("pve1")["local:vztmpl/a_b.tar.xz"].template == Template()
    assert "refusing to override existing file" in ended(api, store.post("download-url", **given))


def test_tasks_that_are_none(pve: Double) -> None:
    """Facts: 400 ``no such task``, ``unable to parse worker upid``."""
    upid = "UPID:pve1:00001000:00A01000:6B006547:vzcreate:100:root@pam:"
    for name, text in ((upid, "no such task"), ("nonsense", "unable to parse worker upid")):
        assert root(pve).ask("GET", f"/nodes/pve1/tasks/{name}/status").json["errors"] == {"upid": text}


def test_a_task_of_a_token(pve: Double) -> None:
    """Facts: the user field of a UPID carries ``root@pam!ci``; its status has ``tokenid``."""
    hand = with_token(pve)
    upid = hand.ask("POST", "/nodes/pve1/lxc", vmid=105, **NEW).json["data"]
    assert upid.endswith(":vzcreate:105:root@pam!ci:")
    pve.world.tasks.wait(upid)
    status = hand.ask("GET", f"/nodes/pve1/tasks/{upid}/status").json["data"]
    assert (status["user"], status["tokenid"], status["exitstatus"]) == ("root@pam", "ci", "OK")


def test_a_task_while_it_runs_and_after(pve: Double, api: Any) -> None:
    """Facts: status running or stopped; the log has a total and ends in ``TASK OK``."""
    with pve.world.faults.hold_tasks("vzcreate"):
        upid = api.nodes("pve1").lxc.post(vmid=105, **NEW)
        status = api.nodes("pve1").tasks(upid).status.get()
        assert status["status"] == "running"
        assert "exitstatus" not in status
        assert api.nodes("pve1").tasks.get() == []
        assert api.nodes("pve1").tasks.get(source="active")[0]["upid"] == upid
    assert Tasks.blocking_status(api, upid, timeout=5, polling_interval=0.02)["exitstatus"] == "OK"
    reply = root(pve).ask("GET", f"/nodes/pve1/tasks/{upid}/log", start=1)
    assert (reply.json["total"], reply.json["data"]) == (2, [{"n": 2, "t": "TASK OK"}])
    assert [one["status"] for one in api.nodes("pve1").tasks.get(vmid=105)] == ["OK"]


def test_a_task_of_another_is_not_everybodys(pve: Double, api: Any) -> None:
    pve.world.access.add_user("joe@pve", "secret")
    upid = api.nodes("pve1").lxc.post(vmid=105, **NEW)
    line = with_token(pve, "joe@pve", "t").ask("GET", f"/nodes/pve1/tasks/{upid}/status").line
    assert line == "403 Permission check failed (/nodes/pve1, Sys.Audit)"


def test_a_task_can_be_interrupted(pve: Double, api: Any) -> None:
    pve.world.faults.slow_tasks("vzcreate", 30)
    upid = api.nodes("pve1").lxc.post(vmid=105, **NEW)
    api.nodes("pve1").tasks(upid).delete()
    assert ended(api, upid) == "received interrupt"


def test_tickets_run_out(pve: Double, api: Any) -> None:
    """Facts: proxmoxer: an expired ticket is a 401 at the next call, a bad login an error of its own."""
    pve.world.faults.expire_tickets()
    with pytest.raises(ResourceException) as caught:
        api.version.get()
    assert (caught.value.status_code, caught.value.content) == (401, "Authentication failed!")
    assert proxmoxer(pve).version.get()["release"] == "9.2"
    with pytest.raises(AuthenticationError):
        proxmoxer(pve, user="root@pam", password="wrong")


def test_a_connection_that_is_dropped_before_and_after_the_work(pve: Double, api: Any) -> None:
    """Facts: network errors come out of proxmoxer as those of requests."""
    for name, done in (("before", False), ("after", True)):
        pve.world.faults.drop("POST", "/pools", done=done)
        with pytest.raises(requests.ConnectionError):
            api.pools.post(poolid=name)
    assert list(pve.world.pools) == ["after"]
    api.pools.post(poolid="later")


def test_a_client_that_trusts_another_authority_is_told(pve: Double) -> None:
    """Facts: PVE's own authority: ``SSLError`` unless its certificate is given."""
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(f"{pve.url}/api2/json/version", timeout=5)


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


def test_a_node_tells_its_certificates(pve: Double) -> None:
    """pve-manager ``API2/Certificates.pm``: the authority's, the node's own, and one that somebody put there."""
    found = root(pve).ask("GET", "/nodes/pve1/certificates/info").json["data"]
    assert [one["filename"] for one in found] == ["pve-root-ca.pem", "pve-ssl.pem"]
    assert all(one["notafter"] > one["notbefore"] for one in found)
