"""Disks that are not ours stay, whatever is done to containers, and no number is taken under which some lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider, rights
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.failures import PveError
from provisioner.hosts.proxmox.preflight import review_plan
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.plan import Change
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.storage import Storage
from tests.unit.hosts.proxmox import plans
from tests.unit.hosts.proxmox.box import GIB, Artifacts, disks, driver, guest, mount, wanted
from tests.unit.hosts.proxmox.plans import creation, limited

MIB = 2**20


def allocated(pve: Double, vmid: int, storage: str = "local-lvm") -> str:
    """A disk that somebody makes by hand: ``pvesm alloc``."""
    return pve.world.storages[storage].allocate("pve1", vmid, 64 * MIB).volid


def destroyed(pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch) -> str:
    del monkeypatch
    provider.create(wanted())
    foreign = allocated(pve, guest(pve).vmid)
    provider.delete(wanted())
    return foreign


def replaced(pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch) -> str:
    foreign = destroyed(pve, provider, monkeypatch)
    provider.create(wanted(cpu=2))
    provider.delete(wanted())
    return foreign


def failed(pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch) -> str:
    """A creation that fails after Proxmox has made the container, beside which somebody has made a disk."""
    made: list[str] = []

    def write(_client: object, _shell: object, vmid: int, *_: object) -> None:
        made.append(allocated(pve, vmid))
        raise ProviderError("no")

    with monkeypatch.context() as patched:
        patched.setattr(rights, "write_as_root", write)
        with pytest.raises(ProviderError):
            provider.create(wanted())
    return made[0]


def failed_copy(pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy that fails when it gets an address of its own."""
    fixed = {"bridge": "vmbr0", "ip": "10.0.0.5/24", "gateway": "10.0.0.1", "firewall": False}
    provider.create(wanted(settings={"network": fixed}))
    made: list[str] = []
    before = provider.client.put

    def put(*path: Any, **form: Any) -> object:
        if "net0" in form:
            made.append(allocated(pve, int(path[3])))
            raise ProviderError("no")
        return before(*path, **form)

    with monkeypatch.context() as patched:
        patched.setattr(provider.client, "put", put)
        with pytest.raises(ProviderError):
            provider.clone(wanted(), "two")
    provider.delete(wanted())
    return made[0]


@pytest.mark.parametrize("life", [destroyed, replaced, failed, failed_copy])
def test_a_disk_that_is_not_ours_survives(
    pve: Double,
    provider: ProxmoxProvider,
    monkeypatch: pytest.MonkeyPatch,
    life: Callable[[Double, ProxmoxProvider, pytest.MonkeyPatch], str],
) -> None:
    foreign = life(pve, provider, monkeypatch)
    assert (pve.world.guests, disks(pve)) == ({}, [foreign])


def test_no_deletion_asks_for_disks_that_no_configuration_names(
    pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    before = provider.client.delete

    def delete(*path: Any, **query: Any) -> object:
        asked.append(query)
        return before(*path, **query)

    monkeypatch.setattr(provider.client, "delete", delete)
    failed(pve, provider, monkeypatch)
    destroyed(pve, provider, monkeypatch)
    assert len(asked) == 2
    assert not [name for query in asked for name in query if "unreferenced" in name]


def test_what_a_snapshot_alone_names_goes_with_its_container(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version before took such a disk out of the configuration while a snapshot needed it."""
    Artifacts(monkeypatch).sizes["v-1"] = GIB
    provider = driver(access, ssh="root@pve1")
    provider.create(wanted(devices=(mount("v-1"),)))
    provider.snapshots.take(wanted(), "kept")
    config = guest(pve).config
    config.pop("mp0")
    assert len(disks(pve)) == 2
    provider.delete(wanted())
    assert (pve.world.guests, disks(pve)) == ({}, [])


def test_a_copy_that_is_unmounted_stays_listed_while_a_snapshot_needs_it(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    Artifacts(monkeypatch).sizes["v-1"] = GIB
    provider = driver(access, ssh="root@pve1")
    provider.create(wanted(devices=(mount("v-1"),)))
    copy = guest(pve).config["mp0"].partition(",")[0]
    provider.snapshots.take(wanted(), "kept")
    provider.update(wanted())
    assert guest(pve).config["unused0"] == copy
    provider.snapshots.delete(wanted(), "kept")
    assert "unused0" not in guest(pve).config
    assert copy not in disks(pve)


def test_jobs_of_others_that_name_the_number_outlive_a_creation_that_failed(
    pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup job may name a number whose guest has been archived; only a deletion that was asked for changes it."""
    pve.world.backup_jobs["nightly"] = {100, 101}
    failed(pve, provider, monkeypatch)
    assert pve.world.backup_jobs["nightly"] == {100, 101}
    destroyed(pve, provider, monkeypatch)
    assert pve.world.backup_jobs["nightly"] == {100}


@pytest.mark.parametrize("storage", ["local-lvm", "local-zfs"])
def test_a_number_under_which_disks_lie_is_not_taken_and_said(
    pve: Double, provider: ProxmoxProvider, storage: str
) -> None:
    foreign = allocated(pve, 100, storage)
    pve.world.add_guest(101, "pve2")
    allocated(pve, 102, storage)
    told: list[str] = []
    provider.on_progress = lambda _name, text: told.append(text)
    assert provider.create(wanted()).settings["vmid"] == 103
    assert f"number 100 is not taken: {foreign} lies under it" in told


def test_a_number_of_the_file_under_which_disks_lie_is_refused(pve: Double, provider: ProxmoxProvider) -> None:
    foreign = allocated(pve, 105)
    with pytest.raises(ProviderError, match="Unable to create container one") as caught:
        provider.create(wanted(settings={"vmid": 105}))
    assert f"isks that are not its own lie under number 105: {foreign}" in caught.value.details
    assert f"pvesm free {foreign}" in caught.value.resolution
    assert (pve.world.guests, disks(pve)) == ({}, [foreign])


def told_of_plan(access: Access, *changes: Change) -> tuple[str, ...]:
    """The notes on a plan."""
    return review_plan(Client(access), access, None, changes)


def test_a_plan_is_refused_for_a_number_under_which_disks_lie(pve: Double, access: Access) -> None:
    foreign = allocated(pve, 105)
    allocated(pve, 106)
    with pytest.raises(PreflightError) as caught:
        told_of_plan(access, creation(plans.wanted(proxmox={"vmid": 105})))
    assert caught.value.details == f"web: disks that are not its own lie under number 105: {foreign}"
    assert told_of_plan(access, creation(plans.wanted(proxmox={"vmid": 107})), creation(plans.wanted("two"))) == ()


def test_a_replacement_is_refused_before_the_container_is_gone(pve: Double, access: Access) -> None:
    pve.world.add_guest(105, "pve1")
    own = plans.wanted(proxmox={"vmid": 105})
    again = Change("replace", "web", plans.there(own), own, "was asked for")
    assert told_of_plan(access, again) == ()
    foreign = allocated(pve, 105)
    with pytest.raises(PreflightError) as caught:
        told_of_plan(access, again)
    assert caught.value.details == f"web: disks that are not its own lie under number 105: {foreign}"


def test_who_may_not_list_disks_is_told_so(pve: Double, access: Access) -> None:
    chosen = limited(pve, access, without=frozenset({"Datastore.Audit"}))
    notes = told_of_plan(chosen, creation(plans.wanted()))
    assert len(notes) == 3
    for path in ("/storage", "/storage/local-lvm", "/storage/local-zfs"):
        lacks = f"token penny@pve!lab lacks Datastore.Audit or Datastore.Allocate on {path}."
        assert [one for one in notes if one.startswith(f"disks of others may be hidden: {lacks}")]
    assert told_of_plan(limited(pve, access), creation(plans.wanted())) == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"content": ("rootdir",)}, "tank (without images in its content Proxmox lists no disk that has no guest)"),
        ({"content": ("images",), "nodes": ("pve2",)}, ""),
        ({"content": ("iso",)}, ""),
    ],
)
def test_a_storage_whose_disks_are_not_listed_is_named(
    pve: Double, access: Access, changes: dict[str, Any], words: str
) -> None:
    given = {"name": "tank", "kind": "dir", **changes}
    pve.world.add_storage(Storage(**given))
    notes = told_of_plan(access, creation(plans.wanted()))
    expected = (f"whether disks of others lie under a number is not known of storage {words}",) if words else ()
    assert notes == expected


def test_a_storage_that_cannot_be_listed_stops_nothing_and_is_named(
    pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = provider.client.get

    def get(*path: object, **query: object) -> object:
        if path[2:] == ("storage", "local-zfs", "content"):
            raise PveError("got timeout", status=500)
        return before(*path, **query)

    monkeypatch.setattr(provider.client, "get", get)
    told: list[str] = []
    provider.on_progress = lambda _name, text: told.append(text)
    provider.create(wanted())
    assert list(pve.world.guests) == [100]
    assert "disks of others on storage local-zfs (got timeout) are not known" in told
