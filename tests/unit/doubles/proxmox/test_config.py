"""Changing a container: what is written, what waits for its next start, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.case_files import read_cases
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.client import ended, proxmoxer, root

CASES = read_cases("doubles/proxmox/config")

CONFIG = "/nodes/pve1/lxc/105/config"
RESIZE = "/nodes/pve1/lxc/105/resize"


@pytest.fixture
def api(pve: Double) -> Any:
    pve.world.add_guest(105, "pve1", features="nesting=1")
    return proxmoxer(pve)


def test_a_change_answers_null(pve: Double, api: Any) -> None:
    """Facts: PUT config gives ``{"data":null}``."""
    assert api.nodes("pve1").lxc(105).config.put(memory=300, description="a\nb", delete="swap") is None
    assert pve.world.guests[105].config["memory"] == "300"
    assert api.nodes("pve1").lxc(105).config.get()["description"] == "a\nb\n"


def test_a_missing_bridge_is_found_after_the_rest_was_written(pve: Double, api: Any) -> None:
    """Facts: 500 ``bridge 'vmbr9' does not exist``, but the other change WAS written."""
    reply = root(pve).ask("PUT", CONFIG, memory=300, net0="name=eth0,bridge=vmbr9,ip=dhcp")
    assert reply.line == "500 bridge 'vmbr9' does not exist"
    assert api.nodes("pve1").lxc(105).config.get()["memory"] == 300


@pytest.mark.parametrize(("given", "line"), CASES["a change that is refused changes nothing"])
def test_a_change_that_is_refused_changes_nothing(pve: Double, api: Any, given: dict[str, Any], line: str) -> None:
    """Facts: empty PUT, read-only option, dev not on host."""
    del api
    before = pve.world.guests[105].digest
    assert root(pve).ask("PUT", CONFIG, **{"cores": 2, **given} if given else given).line == line
    assert pve.world.guests[105].digest == before


def test_a_digest_of_something_else(pve: Double, api: Any) -> None:
    """Facts: 500 ``detected modified configuration - file changed by other user? Try again.``"""
    digest = api.nodes("pve1").lxc(105).config.get()["digest"]
    assert root(pve).ask("PUT", CONFIG, memory=300, digest=digest).status == 200
    line = "500 detected modified configuration - file changed by other user? Try again."
    assert root(pve).ask("PUT", CONFIG, memory=400, digest=digest).line == line


def test_raw_lines_are_not_in_the_schema_and_survive(pve: Double, api: Any) -> None:
    """Facts: raw ``lxc.*`` only by editing the file; they survive API PUTs and show as ``lxc``."""
    pve.world.guests[105].raw.append(("lxc.mount.entry", "/a b none bind"))
    assert root(pve).ask("PUT", CONFIG, memory=300).status == 200
    assert api.nodes("pve1").lxc(105).config.get()["lxc"] == [["lxc.mount.entry", "/a b none bind"]]


def test_what_a_running_container_cannot_take_up_waits(pve: Double, api: Any) -> None:
    """The schema: ``current`` gets current values instead of pending ones; ``revert`` takes a pending change back."""
    lxc = api.nodes("pve1").lxc(105)
    pve.world.containers.start(105, {})
    lxc.config.put(features="nesting=1,keyctl=1", memory=300)
    assert lxc.config.get()["features"] == "nesting=1,keyctl=1"
    assert lxc.config.get(current=1)["features"] == "nesting=1"
    assert lxc.config.get(current=1)["memory"] == 300
    assert {"key": "features", "value": "nesting=1", "pending": "nesting=1,keyctl=1"} in lxc.pending.get()
    lxc.config.put(revert="features")
    assert lxc.config.get()["features"] == "nesting=1"
    lxc.config.put(features="nesting=1,keyctl=1")
    assert ended(api, lxc.status.reboot.post()) == "OK"
    assert lxc.config.get(current=1)["features"] == "nesting=1,keyctl=1"


def test_a_bridge_that_a_running_container_cannot_get(pve: Double, api: Any) -> None:
    del api
    pve.world.containers.start(105, {})
    reply = root(pve).ask("PUT", CONFIG, memory=300, net0="name=eth0,bridge=vmbr9")
    assert reply.json["errors"]["net0"] == "unable to hotplug net0: bridge 'vmbr9' does not exist\n"
    assert pve.world.guests[105].config["memory"] == "512"


def test_a_device_is_plugged_in_while_it_runs(pve: Double, api: Any) -> None:
    """Facts: hot-plug of dev[n] works on running containers."""
    pve.world.containers.start(105, {})
    api.nodes("pve1").lxc(105).config.put(dev0="/dev/fuse")
    assert api.nodes("pve1").lxc(105).config.get(current=1)["dev0"] == "/dev/fuse"


def test_a_mount_point_that_goes_leaves_its_volume(pve: Double, api: Any) -> None:
    lxc = api.nodes("pve1").lxc(105)
    lxc.config.put(mp0="local-lvm:2,mp=/data")
    volid = "local-lvm:vm-105-disk-1"
    assert pve.world.guests[105].config["mp0"] == f"{volid},mp=/data,size=2G"
    lxc.config.put(delete="mp0")
    assert lxc.config.get()["unused0"] == volid
    assert volid in pve.world.storages["local-lvm"].on("pve1")
    lxc.config.put(delete="unused0")
    assert volid not in pve.world.storages["local-lvm"].on("pve1")


def test_a_disk_grows_and_does_not_shrink(pve: Double, api: Any) -> None:
    """The schema: shrinking disk size is not supported; ``+`` adds."""
    assert ended(api, api.nodes("pve1").lxc(105).resize.put(disk="rootfs", size="+2G")) == "OK"
    assert pve.world.guests[105].config["rootfs"] == "local-lvm:vm-105-disk-0,size=10G"
    assert root(pve).ask("PUT", RESIZE, disk="rootfs", size="9G").line == "500 unable to shrink disk size"
    assert root(pve).ask("PUT", RESIZE, disk="rootfs", size="10G").line == "500 disk is already at specified size"
