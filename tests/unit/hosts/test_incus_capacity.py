"""An Incus tells its memory, and the pools of new and larger disks."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest

from provisioner.hosts.incus.api import WireError
from provisioner.hosts.incus.health import capacity
from provisioner.values.host_facts import Capacity, Disk, Pool
from provisioner.values.plan import Change
from provisioner.values.state import Instance

GIB = 2**30
SPACE = {"space": {"used": 10 * GIB, "total": 30 * GIB}}
WEB = Instance("web", "box", "homelab", "debian/12", disk=8 * GIB)
LARGER = replace(WEB, disk=12 * GIB)
CREATED = Change("create", "web", None, WEB, "")
ENLARGED = Change("update", "web", WEB, LARGER, "")


class Incus:
    """A client that gives what a host says; what it does not say, this user may not ask."""

    def __init__(self, driver: str = "btrfs", **config: str) -> None:
        root = {"root": {"type": "disk", "path": "/", "pool": "old"}}
        self.said: dict[tuple[str, ...], Any] = {
            ("resources",): {"memory": {"used": GIB, "total": 24 * GIB}},
            ("storage-pools", "tank", "resources"): SPACE,
            ("storage-pools", "tank"): {"driver": driver, "config": config},
            ("storage-pools", "old", "resources"): SPACE,
            ("storage-pools", "old"): {"driver": "dir", "config": {}},
            ("instances", "web"): {"expanded_devices": {"eth0": {"type": "nic"}, **root}},
        }

    def get(self, *path: str) -> Any:
        """Return what is there."""
        if path not in self.said:
            raise WireError(HTTPStatus.FORBIDDEN, "not authorized")
        return self.said[path]


def asked(client: Any, *changes: Change) -> Capacity:
    """Return what the host has for these changes."""
    return capacity(client, "tank", changes)


@pytest.mark.parametrize(
    ("driver", "config", "is_thin"),
    [
        ("btrfs", {}, True),
        ("zfs", {}, True),
        ("lvm", {}, True),
        ("lvm", {"lvm.use_thinpool": "false"}, False),
        ("lvmcluster", {}, False),
    ],
)
def test_a_new_disk_is_made_in_the_pool_of_the_profile(driver: str, config: dict[str, str], *, is_thin: bool) -> None:
    pool = Pool("tank", 30 * GIB, 20 * GIB, is_thin, (Disk("web", 8 * GIB, 8 * GIB),))
    assert asked(Incus(driver, **config), CREATED) == Capacity(24 * GIB, (pool,))


def test_a_disk_grows_in_the_pool_where_it_is() -> None:
    (pool,) = asked(Incus(), ENLARGED).pools
    assert (pool.name, pool.disks) == ("old", (Disk("web", 12 * GIB, 4 * GIB),))
    assert asked(Incus(), replace(ENLARGED, action="replace")).pools[0].name == "tank"
    assert asked(Incus(), replace(ENLARGED, before=LARGER)).pools == ()


def test_who_may_not_ask_is_told_nothing() -> None:
    client = Incus()
    client.said = {}
    has = asked(client, CREATED)
    assert (has.memory, has.require_room("box")) == (0, [])
