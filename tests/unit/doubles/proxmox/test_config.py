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


def test_a_bridge_that_a_running_container_cannot_get(pve: Double, api: Any) -> None:
    del api
    pve.world.containers.start(105, {})
    reply = root(pve).ask("PUT", CONFIG, memory=300, net0="name=eth0,bridge=vmbr9")
    assert reply.json["errors"]["net0"] == "unable to hotplug net0: bridge 'vmbr9' does not exist\n"
    assert pve.world.guests[105].config["memory"] == "512"


def test_a_disk_grows_and_does_not_shrink(pve: Double, api: Any) -> None:
    """The schema: shrinking disk size is not supported; ``+`` adds."""
    assert ended(api, api.nodes("pve1").lxc(105).resize.put(disk="rootfs", size="+2G")) == "OK"
    assert pve.world.guests[105].config["rootfs"] == "local-lvm:vm-105-disk-0,size=10G"
    assert root(pve).ask("PUT", RESIZE, disk="rootfs", size="9G").line == "500 unable to shrink disk size"
    assert root(pve).ask("PUT", RESIZE, disk="rootfs", size="10G").line == "500 disk is already at specified size"
