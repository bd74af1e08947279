"""Snapshots, going back, and copies: what can be done is found out by the task."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doubles.proxmox import Double
from tests.doubles.proxmox.client import ended, proxmoxer, root
from tests.doubles.proxmox.guests import MemoryContainers
from tests.doubles.proxmox.storage import GIB, Storage

LXC = "/nodes/pve1/lxc/105"


@pytest.fixture
def api(pve: Double) -> Any:
    pve.world.add_guest(105, "pve1", features="nesting=1", net0="name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01")
    return proxmoxer(pve)


def files(pve: Double, vmid: int = 105) -> dict[str, str]:
    assert isinstance(pve.world.containers, MemoryContainers)
    return pve.world.containers.boxes[vmid].files


def test_there_and_back(pve: Double, api: Any) -> None:
    lxc = api.nodes("pve1").lxc(105)
    files(pve)["/etc/x"] = "good"
    assert ended(api, lxc.snapshot.post(snapname="proved", description="why")) == "OK"
    files(pve)["/etc/x"] = "bad"
    lxc.config.put(memory=2048)
    listed = {one["name"]: one for one in lxc.snapshot.get()}
    assert listed["proved"]["description"] == "why"
    assert listed["current"]["parent"] == "proved"
    pve.world.containers.start(105, {})
    upid = lxc.snapshot("proved").rollback.post()
    assert upid.split(":")[5] == "vzrollback"
    assert ended(api, upid) == "OK"
    assert files(pve)["/etc/x"] == "good"
    assert lxc.config.get()["memory"] == 512
    assert lxc.status.current.get()["status"] == "stopped"
    assert ended(api, lxc.snapshot("proved").delete()) == "OK"
    assert [one["name"] for one in lxc.snapshot.get()] == ["current"]


def test_a_volume_that_a_snapshot_needs_outlives_its_mount_point(pve: Double, api: Any) -> None:
    """PVE::LXC::Config, vmconfig_apply_pending: an unused volume is freed only when no snapshot uses it."""
    lxc = api.nodes("pve1").lxc(105)
    lxc.config.put(mp0="local-lvm:2,mp=/data")
    volid = "local-lvm:vm-105-disk-1"
    assert ended(api, lxc.snapshot.post(snapname="s1")) == "OK"
    lxc.config.put(delete="mp0")
    assert lxc.config.get()["unused0"] == volid
    lxc.config.put(delete="unused0")
    assert "unused0" not in lxc.config.get()
    assert volid in pve.world.storages["local-lvm"].on("pve1")
    assert ended(api, lxc.snapshot("s1").rollback.post()) == "OK"
    assert lxc.config.get()["mp0"].startswith(volid)
    lxc.config.put(delete="mp0")
    assert ended(api, lxc.snapshot("s1").delete()) == "OK"
    assert lxc.config.get()["unused0"] == volid, "PVE::AbstractConfig, snapshot_delete: it comes back"
    lxc.config.put(delete="unused0")
    assert volid not in pve.world.storages["local-lvm"].on("pve1")


def test_going_back_can_start_it(pve: Double, api: Any) -> None:
    lxc = api.nodes("pve1").lxc(105)
    assert ended(api, lxc.snapshot.post(snapname="s1")) == "OK"
    assert ended(api, lxc.snapshot("s1").rollback.post(start=1)) == "OK"
    for task in list(pve.world.tasks.all.values()):
        assert pve.world.tasks.wait(task.upid).is_good
    assert lxc.status.current.get()["status"] == "running"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mp0": "/srv/models,mp=/models"}, "snapshot feature is not available"),
        ({"mp0": "/dev/sdb1,mp=/models"}, "snapshot feature is not available"),
        ({"lock": "backup"}, "CT is locked (backup)"),
        ({}, "snapshot name 's1' already used"),
    ],
)
def test_a_snapshot_that_cannot_be(pve: Double, api: Any, options: dict[str, str], text: str) -> None:
    """Facts: a container with a bind or device mount point cannot be snapshotted through the API."""
    lxc = api.nodes("pve1").lxc(105)
    assert ended(api, lxc.snapshot.post(snapname="s1")) == "OK"
    pve.world.guests[105].config.update(options)
    if "mp0" in options:
        assert lxc.feature.get(feature="snapshot") == {"hasFeature": 0}
    assert ended(api, lxc.snapshot.post(snapname="s1" if not options else "s2")) == text


def test_a_passed_through_device_is_no_mount_point(pve: Double, api: Any) -> None:
    pve.world.guests[105].config["dev0"] = "/dev/fuse"
    assert ended(api, api.nodes("pve1").lxc(105).snapshot.post(snapname="s1")) == "OK"


def test_raw_files_cannot_be_remembered(pve: Double, api: Any) -> None:
    storage = pve.world.add_storage(Storage("files", "dir", ("rootdir",)))
    volume = storage.allocate("pve1", 105, GIB)
    pve.world.guests[105].config["rootfs"] = f"{volume.volid},size=1G"
    assert ended(api, api.nodes("pve1").lxc(105).snapshot.post(snapname="s1")) == "snapshot feature is not available"


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


def test_a_copy(pve: Double, api: Any) -> None:
    lxc = api.nodes("pve1").lxc
    files(pve)["/etc/x"] = "mine"
    upid = lxc(105).clone.post(newid=106, hostname="copy", full=1, storage="local-zfs")
    assert upid.split(":")[5:7] == ["vzclone", "105"]
    assert ended(api, upid) == "OK"
    config = lxc(106).config.get()
    assert (config["hostname"], config["rootfs"]) == ("copy", "local-zfs:subvol-106-disk-0,size=8G")
    assert "hwaddr=BC:24:11:00:00:01" not in config["net0"]
    assert files(pve, 106)["/etc/x"] == "mine"
    assert all("lock" not in guest.config for guest in pve.world.guests.values())


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


def test_a_copy_that_does_not_fit(pve: Double, api: Any) -> None:
    pve.world.add_storage(Storage("tiny", "lvmthin", ("rootdir",), total=GIB))
    status = ended(api, api.nodes("pve1").lxc(105).clone.post(newid=106, storage="tiny"))
    assert status.startswith("clone failed: lvcreate 'pve/vm-106-disk-0' error: ")
    assert 106 not in pve.world.guests
    assert "lock" not in pve.world.guests[105].config


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
