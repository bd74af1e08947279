"""Who may do what: tokens are never root@pam, privileges by path, and what is for root@pam in person."""

from __future__ import annotations

from tests.doubles.proxmox import Double
from tests.doubles.proxmox.client import Hand, csrf, root, with_token

CONFIG = "/nodes/pve1/lxc/105/config"
TEMPLATE = "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst"
NEW = {"vmid": 106, "ostemplate": TEMPLATE, "storage": "local-lvm"}


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
    assert joe.ask("POST", "/nodes/pve1/lxc", **NEW).line == "403 Permission check failed"


def test_features_of_a_privileged_container(pve: Double) -> None:
    """Facts: features on privileged containers are for root@pam; a privileged one for others: ``(/, Sys.Modify)``."""
    pve.world.add_guest(105, "pve1").config.pop("unprivileged")
    text = "changing feature flags for privileged container is only allowed for root@pam"
    assert with_token(pve).ask("PUT", CONFIG, features="nesting=1").line == f"403 Permission check failed ({text})"
    joe = user(pve)
    pve.world.access.permissions.grant("/", "joe@pve", "PVEVMAdmin")
    reply = joe.ask("POST", "/nodes/pve1/lxc", **NEW, unprivileged=0)
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
    upid = joe.ask("POST", "/nodes/pve1/lxc", **NEW, pool="lab").json["data"]
    assert pve.world.tasks.wait(upid).is_good
    assert joe.ask("GET", "/nodes/pve1/lxc/106/config").status == 200
    assert joe.ask("POST", "/nodes/pve1/lxc", **{**NEW, "vmid": 107}).status == 403
