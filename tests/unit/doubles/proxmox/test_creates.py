"""Containers are created, started and destroyed: what is refused at once, and what the task finds out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.case_files import read_cases
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.client import ended, root
from tests.doubles.proxmox.guests import Template
from tests.doubles.proxmox.storage import Storage

CASES = read_cases("doubles/proxmox/creates")

TEMPLATE = "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst"
NEW = {"ostemplate": TEMPLATE, "storage": "local-lvm", "features": "nesting=1"}
LXC = "/nodes/pve1/lxc"


def test_systemd_without_nesting_is_a_warning_and_a_success(pve: Double, api: Any) -> None:
    """Facts: ``WARNINGS: 1`` IS success; ``Systemd 252 detected. You may need to enable nesting.``"""
    upid = api.nodes("pve1").lxc.post(vmid=100, ostemplate=TEMPLATE, storage="local-lvm")
    assert ended(api, upid) == "WARNINGS: 1"
    lines = [line["t"] for line in api.nodes("pve1").tasks(upid).log.get()]
    assert "WARN: Systemd 252 detected. You may need to enable nesting." in lines
    assert lines[-1] == "TASK WARNINGS: 1"
    assert pve.world.tasks.all[upid].is_good


@pytest.mark.parametrize(
    ("template", "storage", "text"),
    [
        ("local:vztmpl/nosuch.tar.zst", "local-lvm", "volume 'local:vztmpl/nosuch.tar.zst' does not exist"),
        ("/x", "local-lvm", "can't find file '/x'"),
        ("local:vztmpl/torn.tar.zst", "local-lvm", "command 'lxc-usernsexec "),
        (TEMPLATE, "tiny-lvm", "lvcreate 'pve/vm-122-disk-0' error: "),
        (TEMPLATE, "tiny-zfs", "zfs error: "),
        (TEMPLATE, "tiny-dir", "unable to create image: "),
    ],
)
def test_a_create_that_fails_in_its_task(pve: Double, api: Any, template: str, storage: str, text: str) -> None:
    """Facts: missing template, corrupt template, storage full: 200 and a UPID, the exit status says why."""
    pve.world.storages["local"].add_template("pve1", "torn.tar.zst", Template(corrupt=True))
    for name, kind in (("tiny-lvm", "lvmthin"), ("tiny-zfs", "zfspool"), ("tiny-dir", "dir")):
        pve.world.add_storage(Storage(name, kind, ("rootdir",), total=1 << 30))
    upid = api.nodes("pve1").lxc.post(vmid=122, ostemplate=template, storage=storage)
    status = ended(api, upid)
    assert status.startswith(f"unable to create CT 122 - {text}")
    assert api.nodes("pve1").tasks(upid).log.get()[-1]["t"].startswith("TASK ERROR: unable to create CT 122 - ")
    assert 122 not in pve.world.guests
    assert not any(one.on("pve1") for name, one in pve.world.storages.items() if name != "local")


def test_the_number_is_taken_while_a_failing_create_runs(pve: Double, api: Any) -> None:
    """Facts: the stub is removed at the end, but while the task runs the VMID is taken."""
    with pve.world.faults.hold_tasks("vzcreate"):
        upid = api.nodes("pve1").lxc.post(vmid=122, ostemplate="local:vztmpl/nosuch.tar.zst", storage="local-lvm")
        text = "CT 122 already exists on node 'pve1'"
        assert root(pve).ask("POST", LXC, vmid=122, **NEW).line == f"500 {text}"
        assert root(pve).ask("POST", "/nodes/pve2/lxc", vmid=122, **NEW).line == f"500 {text}"
        assert root(pve).ask("GET", "/cluster/nextid", vmid=122).json["errors"] == {"vmid": "VM 122 already exists"}
        assert api.nodes("pve1").lxc(122).config.get()["lock"] == "create"
    assert ended(api, upid).startswith("unable to create CT 122")
    assert root(pve).ask("GET", "/cluster/nextid", vmid=122).json == {"data": "122"}
    assert ended(api, api.nodes("pve1").lxc.post(vmid=122, **NEW)) == "OK"


@pytest.mark.parametrize(("given", "line"), CASES["a create that is refused at once"])
def test_a_create_that_is_refused_at_once(pve: Double, given: dict[str, str], line: str) -> None:
    """Facts: unknown storage, storage not on this node, dev not on host; nothing is left of such a create."""
    pve.world.add_storage(Storage("slowstore", "lvmthin", ("rootdir",), nodes=("pve2",)))
    assert root(pve).ask("POST", LXC, **{"vmid": 105, **NEW, **given}).line == line
    assert 105 not in pve.world.guests
    assert not pve.world.tasks.all


def test_a_start_asked_for_with_the_create_is_a_task_of_its_own(pve: Double, api: Any) -> None:
    assert ended(api, api.nodes("pve1").lxc.post(vmid=105, **NEW, start=1)) == "OK"
    starts = [task for task in pve.world.tasks.all.values() if task.kind == "vzstart"]
    assert [pve.world.tasks.wait(task.upid).exitstatus for task in starts] == ["OK"]
    assert api.nodes("pve1").lxc(105).status.current.get()["status"] == "running"


def test_half_a_cluster_creates_nothing(pve: Double) -> None:
    """Facts: ``cluster not ready - no quorum?``"""
    for node in ("pve2", "pve3"):
        pve.take_down(node)
    assert root(pve).ask("POST", LXC, vmid=105, **NEW).line == "500 cluster not ready - no quorum?"
    assert root(pve).ask("GET", "/cluster/status").json["data"][0]["quorate"] == 0


def test_running_and_not_running(pve: Double, api: Any) -> None:
    """Facts: ``CT 205 already running``, ``CT 100 not running``, destroy of a running one; force lifts it."""
    pve.world.add_guest(205, "pve1", features="nesting=1")
    hand = root(pve)
    assert hand.ask("POST", f"{LXC}/205/status/stop").line == "500 CT 205 not running"
    assert hand.ask("POST", f"{LXC}/205/status/shutdown").line == "500 CT 205 not running"
    assert ended(api, api.nodes("pve1").lxc(205).status.start.post()) == "OK"
    assert hand.ask("POST", f"{LXC}/205/status/start").line == "500 CT 205 already running"
    assert hand.ask("DELETE", f"{LXC}/205").line == "500 unable to destroy CT 205 - container is running"
    assert ended(api, api.nodes("pve1").lxc(205).delete(force=1)) == "OK"


def test_protection(pve: Double) -> None:
    """Facts: ``can't remove CT 200 - protection mode enabled``."""
    pve.world.add_guest(200, "pve1", protection="1")
    assert root(pve).ask("DELETE", f"{LXC}/200").line == "500 can't remove CT 200 - protection mode enabled"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"dev0": "/dev/nvidia0"}, "Device /dev/nvidia0 does not exist"),
        ({"net0": "name=eth0,bridge=vmbr9"}, "bridge 'vmbr9' does not exist"),
    ],
)
def test_a_start_fails_without_what_the_host_must_have(
    pve: Double, api: Any, option: dict[str, str], said: str
) -> None:
    """Facts: the device must exist at every start, else the start fails."""
    pve.world.add_guest(105, "pve1", features="nesting=1", **option)
    upid = api.nodes("pve1").lxc(105).status.start.post()
    assert ended(api, upid) == "startup for container '105' failed"
    assert said in [line["t"] for line in api.nodes("pve1").tasks(upid).log.get()]
    assert api.nodes("pve1").lxc(105).status.current.get()["status"] == "stopped"
