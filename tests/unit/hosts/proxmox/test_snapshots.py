"""States that are kept and gone back to, and copies."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider, marks
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.guest import TEMPORARY, snapshot_id, snapshots_of
from provisioner.hosts.proxmox.marks import Mark
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance, Status
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.storage import Storage
from tests.unit.hosts.proxmox.box import GIB, LAB, Artifacts, driver, guest, mac, memory, mount, running, wanted

DISK = {"path": "/srv", "size": 2 * GIB, "backup": False}
STATIC = {"bridge": "vmbr0", "ip": "10.0.0.5/24", "gateway": "10.0.0.1", "ip6": "fd00::5/64", "firewall": False}


def take(provider: ProxmoxProvider, vmid: int, name: str, text: str) -> None:
    """A snapshot as somebody else takes it."""
    path = provider.path(vmid, "snapshot")
    provider.task(lambda: provider.client.post(*path, snapname=name, description=text), "")


def names(provider: ProxmoxProvider) -> list[str]:
    seen = provider.observe(LAB).instance("one")
    return [kept.name for kept in seen.snapshots] if seen else []


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("provision-1-unproved", "provision-1-unproved"),
        ("20261120-173000", "s-20261120-173000"),
        ("a", "s-a"),
        ("current", "s-current"),
        ("vzdump", "s-vzdump"),
        ("with.dot and ümläut", "s-d37a79c6c8ff2b9e8dc1c5c4"),
        ("x" * 60, "s-"),
    ],
)
def test_every_name_has_one_that_proxmox_takes(
    pve: Double, provider: ProxmoxProvider, one: Instance, name: str, kept: str
) -> None:
    """PVE's pve-configid: a letter first, then letters, digits, dashes, underscores; two at least, 40 at most."""
    assert provider.snapshots.take(one, name).name == name
    (there,) = guest(pve).snapshots
    assert there == snapshot_id(name)
    assert there.startswith(kept[:2]) if len(kept) > 20 or kept == "s-" else there == kept
    assert names(provider) == [name]
    assert provider.snapshots.rollback(one, name) == one
    provider.snapshots.delete(one, name)
    assert names(provider) == []


def test_snapshots_are_listed_by_age_and_those_of_one_second_by_descent() -> None:
    def entry(name: str, parent: str, when: int) -> dict[str, Any]:
        return {"name": name, "parent": parent, "snaptime": when, "description": ""}

    listed = [
        entry("a", "b", 5),
        entry("b", "", 5),
        entry("z", "", 4),
        entry("c", "a", 6),
        {"name": "current", "parent": "c", "description": "You are here!"},
        entry(f"{TEMPORARY}1", "c", 7),
    ]
    found = snapshots_of(listed, 105)
    assert [one.name for one in found] == ["z", "b", "a", "c"]
    assert found[0].created == "1970-01-01T00:00:04+00:00"


def test_a_rollback_brings_back_the_mark_that_description_and_config_are_told_apart_by(
    pve: Double, provider: ProxmoxProvider, one: Instance
) -> None:
    """Facts: the description survives a rollback; of all options it alone does."""
    first = replace(one, settings={**one.settings, "description": "first", "tags": ("a",)})
    provider.update(first)
    provider.snapshots.take(first, "kept")
    second = replace(one, memory=None, nesting=True, settings={**one.settings, "description": "second", "tags": ("b",)})
    provider.update(second)
    back = provider.snapshots.rollback(second, "kept")
    assert back == first
    assert (back.settings["description"], back.settings["tags"]) == ("first", ("a",))
    assert marks.read_mark(guest(pve).config["description"], guest(pve).vmid)[1] is not None


def test_what_was_not_running_stays_so_and_what_was_runs_again(
    pve: Double, provider: ProxmoxProvider, one: Instance
) -> None:
    provider.snapshots.take(one, "kept")
    assert provider.snapshots.rollback(one, "kept").status is Status.STOPPED
    provider.start(one)
    assert provider.snapshots.rollback(one, "kept").status is Status.RUNNING
    assert running(pve)


def test_zfs_goes_back_to_the_newest_only_and_says_which_those_are(pve: Double, provider: ProxmoxProvider) -> None:
    one = provider.create(wanted(settings={"storage": "local-zfs"}))
    provider.start(one)
    for name in ("first", "second", "third"):
        provider.snapshots.take(one, name)
    with pytest.raises(ProviderError, match="back to snapshot first") as caught:
        provider.snapshots.rollback(one, "first")
    assert "newer: second, third" in caught.value.details
    assert running(pve), "it was not stopped for nothing"
    assert provider.snapshots.rollback(one, "third") == one
    for name in ("third", "second"):
        provider.snapshots.delete(one, name)
    assert provider.snapshots.rollback(one, "first") == one


def test_a_snapshot_that_somebody_else_took_is_not_gone_back_to(
    pve: Double, provider: ProxmoxProvider, one: Instance
) -> None:
    vmid = guest(pve).vmid
    for name, text in (("hand", "by hand"), ("other", marks.mark_text("", Mark("other", vmid, "x", snapshot="other")))):
        take(provider, vmid, name, text)
        with pytest.raises(ProviderError, match=f"back to snapshot {name}") as caught:
            provider.snapshots.rollback(one, name)
        assert "does not bear the mark" in caught.value.details
    with pytest.raises(ProviderError, match="back to snapshot nosuch") as caught:
        provider.snapshots.rollback(one, "nosuch")
    assert caught.value.resolution == "Snapshots there: hand, other"


def test_a_rollback_that_fails_leaves_it_running(pve: Double, provider: ProxmoxProvider, one: Instance) -> None:
    provider.start(one)
    provider.snapshots.take(one, "kept")
    guest(pve).config["lock"] = ""
    (kept,) = guest(pve).snapshots.values()
    kept["mp5"] = "local-lvm:vm-1-gone,mp=/x,size=1G"
    with pytest.raises(ProviderError, match="back to snapshot kept") as caught:
        provider.snapshots.rollback(one, "kept")
    assert "vm-1-gone" in caught.value.details
    assert running(pve)


@pytest.mark.parametrize("path", [".*/tasks/UPID.*vzrollback.*/status", ".*/lxc/[0-9]+/status/current"])
def test_a_rollback_goes_on_when_a_node_gives_up_a_question(
    pve: Double, provider: ProxmoxProvider, one: Instance, path: str
) -> None:
    provider.client.patience_s = 5
    provider.snapshots.take(one, "a")
    provider.update(replace(one, memory=2 * GIB))
    pve.world.faults.give_up("GET", path, 596)
    assert provider.snapshots.rollback(one, "a").memory == GIB


def test_the_lost_answer_of_a_snapshot_is_looked_for(pve: Double, provider: ProxmoxProvider, one: Instance) -> None:
    path = f"/nodes/pve1/lxc/{guest(pve).vmid}/snapshot"
    pve.world.faults.drop("POST", path, done=True)
    assert provider.snapshots.take(one, "kept").name == "kept"
    pve.world.faults.drop("DELETE", f"{path}/kept", done=True)
    provider.snapshots.delete(one, "kept")
    assert names(provider) == []


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"mp0": "/tank/media,mp=/media"}, "/tank/media of the host is mounted at /media"),
        ({"mp0": "/dev/sdb1,mp=/disk"}, "/dev/sdb1 of the host is mounted at /disk"),
    ],
)
def test_what_is_of_the_host_is_in_the_way_of_snapshots(
    pve: Double, provider: ProxmoxProvider, one: Instance, option: dict[str, str], words: str
) -> None:
    """Facts §8: an LXC with a bind or device mount point cannot be snapshotted through the API."""
    assert provider.snapshots.obstacle(one) == ""
    guest(pve).config.update(option)
    assert words in provider.snapshots.obstacle(one)
    with pytest.raises(ProviderError, match="Unable to take snapshot kept of container one"):
        provider.snapshots.take(one, "kept")


def test_a_storage_that_remembers_nothing_is_named(pve: Double, access: Access) -> None:
    pve.world.add_storage(Storage("tank", "dir", ("rootdir",)))
    provider = driver(access, storage="tank")
    one = provider.create(wanted())
    assert provider.snapshots.obstacle(one) == "its storage tank (dir) takes no snapshots of containers"


def test_one_that_is_nobodys_can_be_asked_about_too(pve: Double, provider: ProxmoxProvider) -> None:
    pve.world.add_guest(105, "pve1", hostname="old")
    assert provider.snapshots.obstacle(wanted("old")) == ""
    with pytest.raises(ProviderError, match="Unable to look at container missing"):
        provider.snapshots.obstacle(wanted("missing"))


@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_a_copy_is_a_container_of_its_own(pve: Double, provider: ProxmoxProvider, runs: bool) -> None:
    settings = {"network": STATIC, "mounts": (DISK,), "tags": ("web",), "description": "mine"}
    one = provider.create(wanted(cpu=2, nesting=True, settings=settings))
    provider.snapshots.take(one, "kept")
    if runs:
        provider.start(one)
    memory(pve).boxes[guest(pve).vmid].files["/etc/x"] = "word"
    copy = provider.clone(one, "two")
    assert copy == replace(one, name="two")
    assert (copy.status, copy.snapshots) == (Status.STOPPED, ())
    assert copy.settings["vmid"] != one.settings["vmid"]
    assert {name: copy.settings[name] for name in ("tags", "description")} == {"tags": ("web",), "description": "mine"}
    assert copy.settings["network"] == {"bridge": "vmbr0", "ip": "dhcp", "ip6": "auto", "firewall": False}
    assert mac(pve, "two") != mac(pve)
    assert memory(pve).boxes[guest(pve, "two").vmid].files["/etc/x"] == "word"
    assert provider.observe(LAB).instance("one") == one
    assert list(guest(pve).snapshots) == ["kept"], "the one that the copy was made from is gone"
    assert running(pve) is runs


def test_a_mac_address_that_the_file_decided_is_not_the_copys(pve: Double, provider: ProxmoxProvider) -> None:
    card = {"bridge": "vmbr0", "ip": "dhcp", "firewall": False, "mac": "BC:24:11:00:00:77"}
    one = provider.create(wanted(settings={"network": card}))
    copy = provider.clone(one, "two")
    assert "mac" not in copy.settings["network"]
    assert mac(pve, "two") != "BC:24:11:00:00:77"


def test_a_taken_name_is_no_name_for_a_copy(pve: Double, provider: ProxmoxProvider, one: Instance) -> None:
    pve.world.add_guest(300, "pve1", hostname="theirs")
    for name in ("one", "theirs"):
        with pytest.raises(ProviderError, match=f"Unable to clone container one as {name}"):
            provider.clone(one, name)
    assert len(pve.world.guests) == 2


def test_a_copy_that_fails_leaves_nothing(pve: Double, provider: ProxmoxProvider, one: Instance) -> None:
    provider.start(one)
    pve.world.storages["local-lvm"].total = 10 * GIB
    with pytest.raises(ProviderError, match="Unable to clone container one as two") as caught:
        provider.clone(one, "two")
    assert "insufficient free space" in caught.value.details
    assert (list(pve.world.guests), names(provider)) == ([guest(pve).vmid], [])
    assert guest(pve).snapshots == {}


def test_a_copy_whose_address_cannot_be_released_leaves_nothing(
    pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = provider.create(wanted(settings={"network": STATIC}))

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(provider.client, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        provider.clone(one, "two")
    assert list(pve.world.guests) == [guest(pve).vmid]


def test_what_a_killed_copy_has_left_goes_with_the_next(pve: Double, provider: ProxmoxProvider, one: Instance) -> None:
    provider.start(one)
    name = f"{TEMPORARY}dead"
    take(provider, guest(pve).vmid, name, "")
    assert names(provider) == [], "nobody has to know of it"
    provider.clone(one, "two")
    assert guest(pve).snapshots == {}


def test_the_lost_answer_of_a_copy_is_looked_for(pve: Double, provider: ProxmoxProvider, one: Instance) -> None:
    pve.world.faults.slow_tasks("copy", 0.3)
    pve.world.faults.drop("POST", f"/nodes/pve1/lxc/{guest(pve).vmid}/clone", done=True)
    assert provider.clone(one, "two") == replace(one, name="two")
    assert len(pve.world.guests) == 2


def test_copies_of_artifacts_are_kept_while_a_snapshot_needs_them(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = Artifacts(monkeypatch)
    artifacts.sizes["v-1"] = GIB
    provider = driver(access, ssh="root@pve1")
    one = provider.create(wanted(devices=(mount("v-1"),)))
    volid = guest(pve).config["mp0"].partition(",")[0]
    disks = pve.world.storages["local-lvm"].on("pve1")
    assert provider.snapshots.take(one, "kept").volumes == ("v-1",)
    provider.update(replace(one, devices=()))
    assert volid in disks
    provider.volumes.delete("v-1")
    assert artifacts.deleted == [], "a snapshot needs it"
    assert provider.snapshots.rollback(one, "kept") == one
    provider.update(replace(one, devices=()))
    provider.snapshots.delete(one, "kept")
    assert volid not in disks
    assert "unused0" not in guest(pve).config
    provider.volumes.delete("v-1")
    assert artifacts.deleted == ["v-1"]


def test_a_copy_of_an_artifact_that_is_younger_than_the_snapshot_goes_with_the_rollback(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    Artifacts(monkeypatch).sizes["v-1"] = GIB
    provider = driver(access, ssh="root@pve1")
    one = provider.create(wanted())
    provider.snapshots.take(one, "before")
    provider.update(replace(one, devices=(mount("v-1"),)))
    assert provider.snapshots.rollback(one, "before") == one
    assert guest(pve).config.keys() & {"mp0", "unused0"} == set()
    provider.snapshots.delete(one, "before")
    assert len(pve.world.storages["local-lvm"].on("pve1")) == 1


def test_a_snapshot_takes_its_time_and_is_waited_for(pve: Double, provider: ProxmoxProvider, one: Instance) -> None:
    pve.world.faults.slow_tasks("volume-snapshot", 0.4)
    began = time.monotonic()
    provider.snapshots.take(one, "kept")
    assert time.monotonic() - began >= 0.4
    with pytest.raises(ProviderError, match="Unable to take snapshot kept of container one") as caught:
        provider.snapshots.take(one, "kept")
    assert "already used" in caught.value.details


@pytest.mark.parametrize(("storage", "expected"), [("local-lvm", False), ("local-zfs", True)])
def test_zfs_goes_back_to_the_newest_only(access: Access, storage: str, expected: bool) -> None:
    provider = driver(access, storage=storage)
    made = provider.create(wanted())
    assert provider.snapshots.is_newest_only(made) is expected
