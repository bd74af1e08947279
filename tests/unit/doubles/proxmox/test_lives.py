"""Containers are started, stopped and destroyed; what fails, fails as in PVE: at once or in the task."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doubles.proxmox import Double
from tests.doubles.proxmox.client import ended, root

LXC = "/nodes/pve1/lxc"


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
