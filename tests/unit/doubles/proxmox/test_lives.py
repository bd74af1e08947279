"""Containers are started, stopped and destroyed; what fails, fails as in PVE: at once or in the task."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.doubles.proxmox import Double
from tests.doubles.proxmox.client import ended, proxmoxer, root
from tests.doubles.proxmox.guests import MemoryContainers

TEMPLATE = "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst"
NEW = {"ostemplate": TEMPLATE, "storage": "local-lvm", "features": "nesting=1"}
LXC = "/nodes/pve1/lxc"


@pytest.fixture
def api(pve: Double) -> Any:
    return proxmoxer(pve)


def test_a_life(pve: Double, api: Any) -> None:
    """Facts: nextid is text; creates, starts and destroys give a UPID; the types of tasks."""
    lxc = api.nodes("pve1").lxc
    vmid = api.cluster.nextid.get()
    assert vmid == "100"
    upid = lxc.post(vmid=vmid, **NEW, hostname="web", net0="name=eth0,bridge=vmbr0,ip=dhcp", tags="Lab;a", onboot=1)
    assert upid.split(":")[5:] == ["vzcreate", "100", "root@pam", ""]
    assert ended(api, upid) == "OK"
    config = lxc(vmid).config.get()
    assert config["rootfs"] == "local-lvm:vm-100-disk-0,size=4G"
    assert config["net0"].startswith("name=eth0,bridge=vmbr0,hwaddr=BC:24:11:")
    assert (config["tags"], config["memory"], config["onboot"], config["unprivileged"]) == ("a;lab", 512, 1, 1)
    assert "lock" not in config
    assert ended(api, lxc(vmid).status.start.post()) == "OK"
    assert lxc(vmid).status.current.get()["status"] == "running"
    assert lxc.get()[0]["vmid"] == 100
    assert ended(api, lxc(vmid).status.shutdown.post()) == "OK"
    assert ended(api, lxc(vmid).delete(purge=1)) == "OK"
    assert lxc.get() == []
    assert pve.world.storages["local-lvm"].on("pve1") == {}


def test_what_there_is_not(pve: Double, api: Any) -> None:
    """Facts: unknown CT: config/status/delete 500; start is 200 and a task that fails with the same text."""
    text = "Configuration file 'nodes/pve1/lxc/999.conf' does not exist"
    for verb, path in (("GET", "config"), ("GET", "status/current"), ("DELETE", "")):
        assert root(pve).ask(verb, f"{LXC}/999/{path}").line == f"500 {text}"
    assert ended(api, api.nodes("pve1").lxc(999).status.start.post()) == text


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


def test_ha_needs_purge(pve: Double, api: Any) -> None:
    """Facts: ``unable to remove CT N - used in HA resources and purge parameter not set.``"""
    pve.world.add_guest(200, "pve1")
    pve.world.ha.add(200)
    line = root(pve).ask("DELETE", f"{LXC}/200").line
    assert line == "500 unable to remove CT 200 - used in HA resources and purge parameter not set."
    assert ended(api, api.nodes("pve1").lxc(200).delete(purge=1)) == "OK"
    assert not pve.world.ha


def test_a_lock_that_is_left(pve: Double, api: Any) -> None:
    """Facts: locked: PUT and DELETE 500 ``CT is locked (backup)``, start 200 and a task; status shows the lock."""
    pve.world.add_guest(105, "pve1", lock="backup")
    for verb, path, given in (("PUT", "/config", {"memory": 300}), ("DELETE", "", {})):
        assert root(pve).ask(verb, f"{LXC}/105{path}", **given).line == "500 CT is locked (backup)"
    assert ended(api, api.nodes("pve1").lxc(105).status.start.post()) == "CT is locked (backup)"
    assert api.nodes("pve1").lxc(105).status.current.get()["lock"] == "backup"
    assert api.cluster.resources.get(type="vm")[0]["lock"] == "backup"


def test_a_lock_that_is_held(pve: Double, api: Any) -> None:
    """Facts: ``can't lock file '/run/lock/lxc/pve-config-105.lock' - got timeout``."""
    pve.world.add_guest(105, "pve1", features="nesting=1")
    text = "can't lock file '/run/lock/lxc/pve-config-105.lock' - got timeout"
    with pve.world.faults.hold_lock(105):
        assert root(pve).ask("PUT", f"{LXC}/105/config", memory=300).line == f"500 {text}"
        assert ended(api, api.nodes("pve1").lxc(105).status.start.post()) == text
    assert ended(api, api.nodes("pve1").lxc(105).status.start.post()) == "OK"


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


def test_who_does_not_end_is_killed_only_by_force(pve: Double, api: Any) -> None:
    pve.world.add_guest(105, "pve1")
    containers = pve.world.containers
    assert isinstance(containers, MemoryContainers)
    containers.start(105, {})
    containers.boxes[105].deaf = True
    lxc = api.nodes("pve1").lxc(105)
    assert ended(api, lxc.status.shutdown.post(timeout=0)) == "container did not stop"
    assert lxc.status.current.get()["status"] == "running"
    assert ended(api, lxc.status.shutdown.post(timeout=0, forceStop=1)) == "OK"
    assert lxc.status.current.get()["status"] == "stopped"


def test_dhcp_takes_a_while(pve: Double, api: Any) -> None:
    """Facts: DHCP containers may answer only with the IPv6 link-local address at first."""
    pve.world.add_guest(105, "pve1", net0="name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,ip=dhcp,type=veth")
    interfaces = api.nodes("pve1").lxc(105).interfaces
    assert interfaces.get() is None
    pve.world.containers.start(105, {})
    assert [address["ip-address-type"] for address in interfaces.get()[1]["ip-addresses"]] == ["inet6"]
    until = time.monotonic() + 5
    while "inet" not in interfaces.get()[1]:
        assert time.monotonic() < until
        threading.Event().wait(0.02)
    assert interfaces.get()[1]["inet"].endswith("/24")
