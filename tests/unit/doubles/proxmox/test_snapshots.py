"""Snapshots, going back, and copies: what can be done is found out by the task."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doubles.proxmox import Double
from tests.doubles.proxmox.client import ended, proxmoxer, root
from tests.doubles.proxmox.storage import GIB

LXC = "/nodes/pve1/lxc/105"


@pytest.fixture
def api(pve: Double) -> Any:
    pve.world.add_guest(105, "pve1", features="nesting=1", net0="name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01")
    return proxmoxer(pve)


def test_going_back_can_start_it(pve: Double, api: Any) -> None:
    lxc = api.nodes("pve1").lxc(105)
    assert ended(api, lxc.snapshot.post(snapname="s1")) == "OK"
    assert ended(api, lxc.snapshot("s1").rollback.post(start=1)) == "OK"
    for task in list(pve.world.tasks.all.values()):
        assert pve.world.tasks.wait(task.upid).is_good
    assert lxc.status.current.get()["status"] == "running"


def test_a_passed_through_device_is_no_mount_point(pve: Double, api: Any) -> None:
    pve.world.guests[105].config["dev0"] = "/dev/fuse"
    assert ended(api, api.nodes("pve1").lxc(105).snapshot.post(snapname="s1")) == "OK"


def test_zfs_goes_back_to_the_newest_only(pve: Double, api: Any) -> None:
    volume = pve.world.storages["local-zfs"].allocate("pve1", 105, GIB)
    pve.world.guests[105].config["rootfs"] = f"{volume.volid},size=1G"
    lxc = api.nodes("pve1").lxc(105)
    for name in ("s1", "s2"):
        assert ended(api, lxc.snapshot.post(snapname=name)) == "OK"
    text = "can't rollback, 's1' is not most recent snapshot on 'local-zfs:subvol-105-disk-0'"
    assert ended(api, lxc.snapshot("s1").rollback.post()) == text
    assert ended(api, lxc.snapshot("s2").rollback.post()) == "OK"


def test_snapshots_that_are_not_there(api: Any, pve: Double) -> None:
    lxc = api.nodes("pve1").lxc(105)
    for upid in (lxc.snapshot("no").rollback.post(), lxc.snapshot("no").delete()):
        assert ended(api, upid) == "snapshot 'no' does not exist"
    hand = root(pve)
    assert hand.ask("GET", f"{LXC}/snapshot/no/config").line == "500 snapshot 'no' does not exist"
    line = hand.ask("POST", f"{LXC}/snapshot", snapname="current").line
    assert line == "500 unable to use snapshot name 'current' (reserved name)"
    assert "snapname" in hand.ask("POST", f"{LXC}/snapshot", snapname="2nd").json["errors"]


def test_a_killed_rollback_leaves_its_lock(pve: Double, api: Any) -> None:
    lxc = api.nodes("pve1").lxc(105)
    assert ended(api, lxc.snapshot.post(snapname="s1")) == "OK"
    pve.world.faults.slow_tasks("volume-rollback", 30)
    upid = lxc.snapshot("s1").rollback.post()
    while "lock" not in lxc.config.get():
        assert pve.world.tasks.all[upid].exitstatus == ""
    assert api.nodes("pve1").tasks(upid).delete() is None
    assert ended(api, upid) == "received interrupt"
    assert lxc.config.get()["lock"] == "rollback"


def test_a_running_container_is_copied_from_a_snapshot(pve: Double, api: Any) -> None:
    lxc = api.nodes("pve1").lxc(105)
    assert ended(api, lxc.snapshot.post(snapname="s1")) == "OK"
    pve.world.containers.start(105, {})
    reply = root(pve).ask("POST", f"{LXC}/clone", newid=106)
    assert reply.line == "500 Full clone of a running container is only possible from a snapshot"
    assert 106 not in pve.world.guests
    assert ended(api, lxc.clone.post(newid=106, snapname="s1")) == "OK"
    assert "parent" not in pve.world.guests[106].config


def test_both_are_locked_while_one_is_copied(pve: Double, api: Any) -> None:
    with pve.world.faults.hold_tasks("vzclone"):
        upid = api.nodes("pve1").lxc(105).clone.post(newid=106)
        assert root(pve).ask("PUT", f"{LXC}/config", memory=300).line == "500 CT is locked (disk)"
        assert root(pve).ask("DELETE", "/nodes/pve1/lxc/106").line == "500 CT is locked (create)"
        assert root(pve).ask("POST", f"{LXC}/clone", newid=107).line == "500 CT is locked (disk)"
    assert ended(api, upid) == "OK"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"newid": 105}, "500 CT 105 already exists on node 'pve1'"),
        ({"newid": 106, "storage": "nostore"}, "500 storage 'nostore' does not exist"),
        ({"newid": 106, "snapname": "nosuch"}, "500 snapshot 'nosuch' does not exist"),
        ({"newid": 106, "pool": "nosuch"}, "403 Permission check failed (pool 'nosuch' does not exist)"),
    ],
)
def test_a_copy_that_is_refused(pve: Double, api: Any, given: dict[str, Any], line: str) -> None:
    del api
    assert root(pve).ask("POST", f"{LXC}/clone", **given).line == line
    assert "lock" not in pve.world.guests[105].config
