"""A node tells its memory, and the storages of new and larger disks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.hosts.proxmox.access import Access
from provisioner.values.errors import PreflightError
from provisioner.values.host_facts import Capacity, Disk, Pool
from provisioner.values.plan import Change
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.storage import Storage
from tests.unit.hosts.proxmox.plans import GIB, creation, limited, there, update, wanted

MOUNTS = {"mounts": [{"path": "/data", "size": "90TiB", "storage": "raw"}, {"path": "/more", "size": "2GiB"}]}


def asked(access: Access, *changes: Change) -> Capacity:
    """Return what the node has for these changes."""
    return ProxmoxProvider("pve", access=access).capacity(changes)


def test_disks_are_made_on_the_storages_of_the_file(pve: Double, access: Access) -> None:
    pve.world.storages["raw"] = Storage("raw", "lvm", ("rootdir",), total=50 * GIB)
    has = asked(access, creation(wanted(proxmox=MOUNTS)))
    own, mounted, large = Disk("web", 4 * GIB, 4 * GIB), Disk("web", 2 * GIB, 2 * GIB), 90 * 1024 * GIB
    assert has.memory == pve.world.nodes["pve1"].memory
    assert has.pools == (
        Pool("local-lvm", 100 * GIB, 100 * GIB, is_thin=True, disks=(own, mounted)),
        Pool("raw", 50 * GIB, 50 * GIB, is_thin=False, disks=(Disk("web", large, large),)),
    )
    with pytest.raises(PreflightError, match=r"web: its disk is to have 90TiB, storage raw has 50\.0 GiB in all"):
        has.require_room("pve")


def test_a_disk_grows_on_its_own_storage(pve: Double, access: Access) -> None:
    pve.world.storages["raw"] = Storage("raw", "lvm", ("rootdir",), total=50 * GIB)
    before = there(wanted(), storage="raw")
    (pool,) = asked(access, update(before, wanted(disk=6 * GIB))).pools
    assert (pool.name, pool.disks) == ("raw", (Disk("web", 6 * GIB, 2 * GIB),))
    assert asked(access, update(before, wanted(memory=2 * GIB))).pools == ()


def test_disks_that_together_take_more_than_is_free_are_told(access: Access) -> None:
    has = asked(access, creation(wanted(disk=80 * GIB)), creation(wanted("web2", disk=80 * GIB)))
    words = "web, web2: 160.0 GiB of disks are new, storage local-lvm has 100.0 of 100.0 GiB free"
    assert has.require_room("pve") == [words]


def test_a_storage_that_tells_no_size_is_not_judged(pve: Double, access: Access) -> None:
    pve.world.storages["raw"] = Storage("raw", "lvm", ("rootdir",), total=0)
    assert asked(access, creation(wanted(proxmox={"storage": "raw"}))).require_room("pve") == []


def test_who_may_not_see_the_memory_is_told_the_rest(pve: Double, access: Access) -> None:
    chosen = limited(pve, access, without=frozenset({"Sys.Audit"}))
    has = asked(replace(chosen, node="pve1"), creation(wanted()))
    assert (has.memory, [pool.name for pool in has.pools]) == (0, ["local-lvm"])
