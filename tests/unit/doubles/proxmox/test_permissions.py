"""Who may do what: tokens are never root@pam, privileges by path, and what is for root@pam in person."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("privsep", [False, True])
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"dev0": "/dev/fuse"}, "configuring device passthrough is only allowed for root@pam"),
        ({"delete": "dev0"}, "configuring device passthrough is only allowed for root@pam"),
        ({"features": "nesting=1,keyctl=1"}, "changing feature flags (except nesting) is only allowed for root@pam"),
        ({"mp0": "/srv/models,mp=/models"}, "mount point type bind is only allowed for root@pam"),
        ({"mp0": "/dev/sda1,mp=/data"}, "mount point type device is only allowed for root@pam"),
        ({"hookscript": "local:snippets/x.pl"}, "changing the hookscript is only allowed for root@pam"),
    ],
)
def test_no_token_is_root_in_person(pve: Double, given: dict[str, str], text: str, *, privsep: bool) -> None:
    """Facts: dev[n], features beyond nesting, bind and device mounts, hookscript: tokens of root@pam are refused."""
    pve.world.add_guest(105, "pve1")
    pve.world.access.permissions.grant("/", "root@pam!ci", "Administrator")
    token = with_token(pve, privsep=privsep)
    assert token.ask("PUT", CONFIG, **given).line == f"403 Permission check failed ({text})"
    if "delete" not in given:
        reply = token.ask("POST", "/nodes/pve1/lxc", **NEW, rootfs="local-lvm:8", **given)
        assert reply.line == f"403 Permission check failed ({text})"
    assert 106 not in pve.world.guests


def test_root_in_person_may(pve: Double) -> None:
    """Facts: a root@pam password ticket is ok for dev[n] and features."""
    guest = pve.world.add_guest(105, "pve1")
    reply = root(pve).ask("PUT", CONFIG, dev0="/dev/fuse,gid=44", features="nesting=1,keyctl=1")
    assert (reply.line, reply.json) == ("200 OK", {"data": None})
    assert (guest.config["dev0"], guest.config["features"]) == ("/dev/fuse,gid=44", "nesting=1,keyctl=1")


def test_a_token_may_not_even_send_features_again(pve: Double) -> None:
    """Facts: re-sending features=nesting=1 if keyctl was set is refused; nesting alone is allowed."""
    guest = pve.world.add_guest(105, "pve1")
    token = with_token(pve)
    assert token.ask("PUT", CONFIG, features="nesting=1").status == 200
    guest.config["features"] = "nesting=1,keyctl=1"
    assert token.ask("PUT", CONFIG, features="nesting=1").status == 403


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


def test_a_separated_token_may_only_what_both_may(pve: Double) -> None:
    """The schema on privsep: restrict a token's privileges with separate ACLs."""
    pve.world.add_guest(105, "pve1")
    pve.world.access.add_user("joe@pve", "secret")
    grants = pve.world.access.permissions
    grants.grant("/vms", "joe@pve", "PVEAuditor")
    token = with_token(pve, "joe@pve", "t", privsep=True)
    assert token.ask("GET", CONFIG).line == "403 Permission check failed (/vms/105, VM.Audit)"
    grants.grant("/vms/105", "joe@pve!t", "PVEVMAdmin")
    assert token.ask("GET", CONFIG).status == 200
    assert token.ask("POST", "/nodes/pve1/lxc/105/status/start").status == 403
    assert with_token(pve, "joe@pve", "u").ask("GET", CONFIG).status == 200


def test_lists_show_what_may_be_seen(pve: Double) -> None:
    for vmid in (105, 106):
        pve.world.add_guest(vmid, "pve1")
    joe = user(pve)
    pve.world.access.permissions.grant("/vms/106", "joe@pve", "PVEAuditor")
    assert [one["vmid"] for one in joe.ask("GET", "/nodes/pve1/lxc").json["data"]] == [106]
    assert [one["id"] for one in joe.ask("GET", "/cluster/resources", type="vm").json["data"]] == ["lxc/106"]
    assert joe.ask("GET", "/nodes/pve1/storage").json["data"] == []
    assert joe.ask("GET", "/access/permissions").json["data"]["/vms/106"]["VM.Audit"] == 1


def test_a_bridge_needs_a_permission_of_its_own(pve: Double) -> None:
    pve.world.add_guest(105, "pve1")
    joe = user(pve)
    pve.world.access.permissions.grant("/vms", "joe@pve", "PVEVMAdmin")
    net = "name=eth0,bridge=vmbr0,ip=dhcp"
    line = joe.ask("PUT", CONFIG, net0=net).line
    assert line == "403 Permission check failed (/sdn/zones/localnetwork/vmbr0, SDN.Use)"
    pve.world.access.permissions.grant("/sdn/zones/localnetwork", "joe@pve", "PVESDNUser")
    assert joe.ask("PUT", CONFIG, net0=net).status == 200


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


def test_tokens_are_made_and_revoked(pve: Double) -> None:
    path = "/access/users/root@pam/token/new"
    made = root(pve).ask("POST", path, privsep=0).json["data"]
    assert made["full-tokenid"] == "root@pam!new"
    hand = Hand(pve, {"Authorization": f"PVEAPIToken=root@pam!new={made['value']}"})
    assert hand.ask("GET", "/version").status == 200
    assert root(pve).ask("POST", path).json["errors"] == {"tokenid": "Token already exists."}
    assert root(pve).ask("DELETE", path).status == 200
    assert hand.ask("GET", "/version").line == "401 Authentication failed!"
