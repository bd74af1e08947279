"""What role `container` made for this scenario is what its platforms ask for."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from testinfra.host import Host


def config_of(name: str) -> dict[str, Any]:
    """The container as Incus itself describes it."""
    found = subprocess.run(
        ("incus", "query", f"/1.0/instances/{name}"), capture_output=True, check=True, timeout=120
    ).stdout
    described: dict[str, Any] = json.loads(found)
    return described


def test_the_system_runs_and_has_an_address(host: Host) -> None:
    assert host.check_output("systemctl is-system-running") == "running"
    assert host.interface("eth0").addresses


def test_root_inside_is_nobody_outside(host: Host) -> None:
    assert host.file("/proc/self/uid_map").content_string.split()[:2] == ["0", "1000000"]


def test_limits_and_marks(host: Host) -> None:
    name = host.check_output("hostname")
    config = config_of(name)["config"]
    assert config["user.provisioner.lab"] == "molecule-container"
    assert config["limits.memory"] == str(512 * 2**20)
    assert int(host.check_output("awk '/MemTotal/ {print $2}' /proc/meminfo")) == 512 * 1024


def test_the_published_port_reaches_the_container(host: Host) -> None:
    name = host.check_output("hostname")
    if name != "molecule-container-12":
        pytest.skip("only one container publishes a port")
    web = config_of(name)["devices"]["web"]
    assert web == {"type": "proxy", "bind": "host", "listen": "tcp:127.0.0.1:18911", "connect": "tcp:127.0.0.1:8000"}
