"""Containers made, started, stopped and deleted; whatever fails leaves nothing half-done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.hosts.proxmox import ProxmoxProvider, containers, create, marks, rights
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.failures import PveError
from provisioner.hosts.proxmox.marks import Mark
from provisioner.report.messages import error_text
from provisioner.values.errors import ProviderError
from provisioner.values.state import Device, Instance, Status
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.guests import Template
from tests.doubles.proxmox.storage import Storage
from tests.doubles.proxmox.world import TEMPLATE, Pool
from tests.unit.hosts.proxmox.box import (
    BY_PASSWORD,
    GIB,
    LAB,
    Artifacts,
    disks,
    driver,
    guest,
    memory,
    mount,
    running,
    wanted,
)
from tests.unit.hosts.proxmox.plans import down
from tests.waiting import PATIENCE_S, wait_until

DEVICE = {"path": "/dev/null", "mode": "0666", "uid": 0, "gid": 0}
NETWORK = {"bridge": "vmbr0", "ip": "dhcp", "firewall": False}


def kinds(pve: Double) -> list[str]:
    """The tasks that ran, in their order."""
    return [task.kind for task in pve.world.tasks.all.values()]


def test_a_container_is_made_as_asked_for(pve: Double, provider: ProxmoxProvider) -> None:
    pve.world.pools["prod"] = Pool()
    settings = {
        "vmid": 321,
        "storage": "local-zfs",
        "swap": GIB,
        "network": {**NETWORK, "ip": "10.0.0.5/24", "gateway": "10.0.0.1", "vlan": 7, "firewall": True},
        "mounts": ({"path": "/srv", "size": 2 * GIB, "storage": "local-lvm", "backup": True},),
        "onboot": True,
        "order": 3,
        "pool": "prod",
        "tags": ("web",),
        "description": "of a user",
        "protection": True,
    }
    one = wanted(cpu=2, memory=GIB, disk=3 * GIB, settings=settings)
    made = provider.create(one)
    assert made == one
    assert made.status is Status.STOPPED
    assert {name: made.settings[name] for name in settings} == settings
    config = pve.world.guests[321].config
    assert {name: config[name] for name in ("features", "unprivileged", "startup", "onboot", "protection")} == {
        "features": "nesting=1",
        "unprivileged": "1",
        "startup": "order=3",
        "onboot": "1",
        "protection": "1",
    }
    assert config["tags"] == "provisioner;provisioner-home;web"
    assert config["mp0"] == "local-lvm:vm-321-disk-0,mp=/srv,backup=1,size=2G"
    assert config["rootfs"] == "local-zfs:subvol-321-disk-0,size=3G"
    assert pve.world.pools["prod"].vms == {321}


def test_what_is_left_out_is_as_the_hosts_page_says(pve: Double, access: Access) -> None:
    pve.world.pools["lab"] = Pool()
    pve.world.nodes["pve1"].bridges["vmbr9"] = "10.9.0.1/24"
    made = driver(access, storage="local-zfs", bridge="vmbr9", pool="lab").create(wanted())
    assert (made.settings["storage"], made.settings["pool"]) == ("local-zfs", "lab")
    assert made.settings["network"] == {"bridge": "vmbr9", "ip": "dhcp", "firewall": False}
    assert made.settings["onboot"] is True


def test_without_a_storage_one_is_chosen_that_can_remember_disks(pve: Double, provider: ProxmoxProvider) -> None:
    pve.world.add_storage(Storage("a-dir", "dir", ("rootdir",)))
    assert provider.create(wanted()).settings["storage"] == "local-lvm"


def test_somebody_who_takes_the_same_free_number_is_got_out_of_the_way(
    pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number is told before it is taken."""
    ask = provider.client.get

    def get(*path: object, **query: object) -> Any:
        found = ask(*path, **query)
        if path == ("cluster", "nextid") and len(pve.world.guests) < 3:
            pve.world.add_guest(int(found), "pve2", hostname=f"racer{found}")
        return found

    monkeypatch.setattr(provider.client, "get", get)
    assert provider.create(wanted()).settings["vmid"] == 103


def test_ten_at_once_get_ten_numbers(pve: Double, provider: ProxmoxProvider) -> None:
    with ThreadPoolExecutor(10) as pool:
        made = list(pool.map(provider.create, [wanted(f"c{number}") for number in range(10)]))
    assert len({one.settings["vmid"] for one in made}) == len(pve.world.guests) == 10


def without_storages(pve: Double) -> None:
    for name in ("local-lvm", "local-zfs"):
        pve.world.storages[name].enabled = False


def with_damaged_template(pve: Double) -> None:
    pve.world.storages["local"].add_template("pve1", TEMPLATE, Template(corrupt=True))


def a_mount(size: int, **more: str) -> Instance:
    return wanted(settings={"mounts": ({"path": "/x", "size": size, "backup": False, **more},)})


REFUSED: dict[str, tuple[Callable[[Double], object], Instance, bool]] = {
    "no storage": (without_storages, wanted(), False),
    "a number of a stranger": (
        lambda pve: pve.world.add_guest(105, "pve2", hostname="theirs"), wanted(settings={"vmid": 105}), False,
    ),
    "no such storage": (down(), wanted(settings={"storage": "nostore"}), True),
    "a storage without disks": (down(), wanted(settings={"storage": "local"}), True),
    "no such pool": (down(), wanted(settings={"pool": "nosuch"}), True),
    "no such storage of a mount": (down(), a_mount(GIB, storage="no"), True),
    "full": (down(), a_mount(999 * GIB), True),
    "no such device": (down(), wanted(settings={"devices": ({**DEVICE, "path": "/dev/nvidia0"},)}), True),
    "a damaged template": (with_damaged_template, wanted(), False),
    "no such image": (down(), wanted(image="debian/0"), False),
    "a device without root": (down(), wanted(settings={"devices": (DEVICE,)}), False),
}  # fmt: skip


@pytest.mark.parametrize(("prepare", "asked", "as_root"), REFUSED.values(), ids=REFUSED)
def test_what_the_node_refuses_is_told_and_leaves_nothing(
    pve: Double,
    access: Access,
    prepare: Callable[[Double], object],
    asked: Instance,
    snapshot: SnapshotAssertion,
    *,
    as_root: bool,
) -> None:
    prepare(pve)
    before = {*pve.world.guests}
    tokens = {"token_id": access.token_id, "token_secret": access.token_secret}
    provider = driver(access, **({**BY_PASSWORD, **tokens} if as_root else {}))
    with pytest.raises(ProviderError) as caught:
        provider.create(asked)
    assert error_text(caught.value) == snapshot
    assert ({*pve.world.guests}, disks(pve)) == (before, [])


def test_what_only_root_may_write_is_written_after_the_creation(pve: Double, access: Access) -> None:
    """A token of root@pam may neither give device files nor features beyond nesting."""
    provider = driver(access, password=BY_PASSWORD["password"])
    settings = {"devices": (DEVICE,), "features": ("keyctl", "nesting")}
    made = provider.create(wanted(settings=settings))
    assert {name: made.settings[name] for name in settings} == settings
    assert guest(pve).config["dev0"] == "/dev/null,mode=0666"


def test_a_privileged_container_gets_its_features_from_root(pve: Double, access: Access) -> None:
    made = driver(access, password=BY_PASSWORD["password"]).create(wanted(settings={"unprivileged": False}))
    assert (made.settings["unprivileged"], made.settings["features"]) == (False, ("nesting",))
    assert "unprivileged" not in guest(pve).config


def test_an_interruption_while_it_is_made_leaves_nothing(
    pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    pve.world.faults.slow_tasks("allocate", 30)
    wait = provider.client.task
    waits: list[str] = []

    def interrupted(upid: str, **options: Any) -> str:
        waits.append(upid)
        if len(waits) == 1:
            raise KeyboardInterrupt
        return wait(upid, **options)

    monkeypatch.setattr(provider.client, "task", interrupted)
    with pytest.raises(KeyboardInterrupt):
        provider.create(wanted())
    assert (pve.world.guests, disks(pve)) == ({}, [])


def test_an_interruption_while_root_writes_leaves_nothing(
    pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rights, "write_as_root", interrupted)
    with pytest.raises(KeyboardInterrupt):
        provider.create(wanted())
    assert (pve.world.guests, disks(pve)) == ({}, [])


@pytest.mark.parametrize("done", [True, False], ids=["it was done", "it was not"])
def test_an_answer_that_is_lost_is_looked_for(pve: Double, provider: ProxmoxProvider, done: bool) -> None:
    pve.world.faults.slow_tasks("vzcreate", 0.3)
    pve.world.faults.drop("POST", "/nodes/pve1/lxc", done=done)
    if done:
        assert provider.create(wanted()) == wanted()
        assert len(pve.world.guests) == 1
        return
    with pytest.raises(ProviderError, match="Unable to create container one"):
        provider.create(wanted())
    assert pve.world.guests == {}


def test_what_a_killed_run_has_begun_is_waited_for_and_taken(pve: Double, access: Access) -> None:
    """While it is made it has no name, so that it would be made twice."""
    pve.world.faults.slow_tasks("vzcreate", 0.5)
    killed = driver(access)
    killed.client.task = lambda *_a, **_k: (_ for _ in ()).throw(SystemExit)  # type: ignore[method-assign]
    killed.client.delete = lambda *_a, **_k: None  # type: ignore[method-assign]
    killed.settle = lambda *_a: None  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        killed.create(wanted(memory=GIB))
    assert len(pve.world.guests) == 1
    told: list[str] = []
    again = driver(access)
    again.on_progress = lambda name, text: told.append(f"{name}: {text}")
    assert again.create(wanted(memory=2 * GIB)) == wanted(memory=2 * GIB)
    assert len(pve.world.guests) == 1
    assert any("which an earlier run has begun" in line for line in told)


def test_what_others_create_meanwhile_is_not_waited_for(provider: ProxmoxProvider) -> None:
    other = {"node": "pve1", "type": "vzcreate", "user": "root@pam", "tokenid": "other", "upid": "UPID:x", "id": "1"}
    assert not provider.is_orphaned(other)
    assert provider.is_orphaned({**other, "tokenid": "ci"})
    assert provider.is_orphaned({**other, "tokenid": None, "user": "root@pam!ci"})
    assert not provider.is_orphaned({**other, "tokenid": "ci", "endtime": 5})


def test_one_of_a_storage_is_made_at_a_time(pve: Double, access: Access) -> None:
    """Two providers of one process wait for each other; storages do not."""
    active: list[int] = []

    def watch() -> None:
        while not done.wait(0.02):
            tasks = [one for one in pve.world.tasks.all.values() if one.kind == "vzcreate" and not one.done.is_set()]
            active.append(len(tasks))

    def make(name: str, storage: str) -> Instance:
        return driver(access, storage=storage).create(wanted(name))

    # two have to meet also on a busy machine
    for storages, most, slow_s in ((("local-lvm",) * 3, 1, 0.3), (("local-lvm", "local-zfs"), 2, 2.0)):
        pve.world.faults.slow_tasks("vzcreate", slow_s)
        done = threading.Event()
        active.clear()
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda pair: make(*pair), [(f"{most}-{n}", one) for n, one in enumerate(storages)]))
        done.set()
        watcher.join(PATIENCE_S)
        assert max(active) == most


def test_published_ports_are_refused(pve: Double, provider: ProxmoxProvider) -> None:
    port = Device("web", "publish", {"listen": "127.0.0.1:80", "connect": "127.0.0.1:80"})
    with pytest.raises(ProviderError, match="Unable to create container one") as caught:
        provider.create(wanted(devices=(port,)))
    assert "an address of its own" in caught.value.details
    assert pve.world.guests == {}


def test_artifacts_get_a_disk_when_it_is_made_and_their_content_at_each_start(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = Artifacts(monkeypatch)
    artifacts.sizes["v-1"] = 3 * GIB
    provider = driver(access, ssh="root@pve1")
    one = wanted(devices=(mount("v-1"), mount("v-2", readonly=False, path="/out", name="out")))
    assert provider.create(one) == one
    vmid = guest(pve).vmid
    assert guest(pve).config["mp0"] == f"local-lvm:vm-{vmid}-disk-1,mp=/srv/data,backup=0,size=3G"
    assert artifacts.filled == []
    provider.start(one)
    assert artifacts.filled == [(vmid, "v-1", "/srv/data")]
    assert artifacts.folders == [(vmid, "/out")]
    provider.start(one)
    assert len(artifacts.filled) == 1, "it runs already"
    provider.volumes.mark_ready("v-2")
    assert artifacts.packed == {"v-2": (vmid, "/out")}
    with pytest.raises(ProviderError, match="Unable to create container two") as caught:
        provider.create(wanted("two", devices=(mount("v-3"),)))
    assert "no such volume" in caught.value.details


def test_one_whose_start_fails_is_kept_and_told(pve: Double, provider: ProxmoxProvider) -> None:
    one = wanted(settings={"network": {**NETWORK, "bridge": "vmbr9"}})
    provider.create(one)
    with pytest.raises(ProviderError, match="Unable to start container one") as caught:
        provider.start(one)
    assert "startup for container" in caught.value.details
    assert "bridge 'vmbr9' does not exist" in caught.value.details
    assert not running(pve)
    pve.world.nodes["pve1"].bridges["vmbr9"] = "10.9.0.1/24"
    provider.start(one)
    assert running(pve)


def test_one_that_is_highly_available_is_waited_for(
    pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task only asks for it; it comes about a little later."""
    provider.create(wanted())
    asked = time.monotonic()
    status = provider.status
    monkeypatch.setattr(
        provider, "status", lambda vmid: Status.STOPPED if time.monotonic() < asked + 0.5 else status(vmid)
    )
    provider.start(wanted())
    assert time.monotonic() > asked + 0.5
    monkeypatch.setattr(provider, "status", lambda _vmid: Status.STOPPED)
    monkeypatch.setattr(containers, "SETTLE_S", 0.3)
    pve.world.containers.stop(guest(pve).vmid)
    with pytest.raises(ProviderError, match="Unable to start container one") as caught:
        provider.start(wanted())
    assert "is not running yet" in caught.value.details


def test_one_that_does_not_listen_is_killed(pve: Double, provider: ProxmoxProvider) -> None:
    provider.create(wanted())
    provider.start(wanted())
    memory(pve).boxes[guest(pve).vmid].deaf = True
    began = time.monotonic()
    provider.stop(wanted(), timeout_s=1)
    assert not running(pve)
    assert time.monotonic() - began < 10
    assert kinds(pve)[-2:] == ["vzshutdown", "vzstop"]


NO_WORKER = "got no worker upid - start worker failed"


@pytest.mark.parametrize("fault", ["fail", "cut", "cut after it began"])
def test_a_shutdown_that_the_node_did_not_begin_is_asked_for_again_and_never_forced(
    pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Facts: POST shutdown may answer 500 though nothing was begun."""
    provider.create(wanted())
    provider.start(wanted())
    monkeypatch.setattr(containers, "STOP_AGAIN_S", 0.05)
    path = f"/nodes/pve1/lxc/{guest(pve).vmid}/status/shutdown"
    if fault == "fail":
        pve.world.faults.fail("POST", path, NO_WORKER, times=2)
    else:
        pve.world.faults.drop("POST", path, times=1, done=fault != "cut")
    provider.stop(wanted(), timeout_s=1)
    assert not running(pve)
    assert kinds(pve).count("vzshutdown") == 1
    assert "vzstop" not in kinds(pve)


def test_a_shutdown_that_goes_on_behind_a_cut_connection_is_waited_for(
    pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.create(wanted())
    provider.start(wanted())
    monkeypatch.setattr(containers, "STOP_AGAIN_S", 0.05)
    pve.world.faults.slow_tasks("vzshutdown", 1.0)
    pve.world.faults.drop("POST", f"/nodes/pve1/lxc/{guest(pve).vmid}/status/shutdown", done=True)
    provider.stop(wanted(), timeout_s=20)
    assert not running(pve)
    assert [kind for kind in kinds(pve) if kind in ("vzshutdown", "vzstop")] == ["vzshutdown"]


def test_a_shutdown_that_the_node_never_begins_is_an_error_and_the_container_runs_on(
    pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.create(wanted())
    provider.start(wanted())
    monkeypatch.setattr(containers, "STOP_AGAIN_S", 0.05)
    pve.world.faults.fail("POST", ".*/status/shutdown", NO_WORKER, times=99)
    with pytest.raises(ProviderError, match="Unable to stop container one") as caught:
        provider.stop(wanted(), timeout_s=1)
    assert NO_WORKER in caught.value.details
    assert running(pve)
    assert not {"vzshutdown", "vzstop"} & set(kinds(pve))


def test_a_shutdown_task_that_fails_before_its_time_is_not_followed_by_force(
    pve: Double, provider: ProxmoxProvider
) -> None:
    provider.create(wanted())
    provider.start(wanted())
    guest(pve).config["lock"] = "snapshot"
    with pytest.raises(ProviderError, match="Unable to stop container one") as caught:
        provider.stop(wanted(), timeout_s=30)
    assert "CT is locked (snapshot)" in caught.value.details
    assert running(pve)
    assert "vzstop" not in kinds(pve)


@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_a_deletion_takes_all_disks(pve: Double, provider: ProxmoxProvider, runs: bool) -> None:
    one = wanted(settings={"mounts": ({"path": "/x", "size": GIB, "backup": False},)})
    provider.create(one)
    if runs:
        provider.start(one)
    pve.world.ha.add(guest(pve).vmid)
    provider.delete(one)
    assert (pve.world.guests, disks(pve), pve.world.ha) == ({}, [], set())
    provider.delete(one)


def test_one_that_is_protected_is_neither_stopped_nor_deleted(pve: Double, provider: ProxmoxProvider) -> None:
    one = wanted(settings={"protection": True})
    provider.create(one)
    provider.start(one)
    with pytest.raises(ProviderError, match="Unable to delete container one: it is protected") as caught:
        provider.delete(one)
    assert "protection: false" in caught.value.resolution
    assert running(pve)


def test_one_that_is_locked_is_told(pve: Double, provider: ProxmoxProvider) -> None:
    provider.create(wanted())
    guest(pve).config["lock"] = "backup"
    for verb in (provider.start, provider.delete):
        with pytest.raises(ProviderError, match=r"CT is locked \(backup\)|is locked"):
            verb(wanted())
    assert guest(pve)


def test_a_lost_answer_to_a_start_a_stop_and_a_deletion_is_looked_for(pve: Double, provider: ProxmoxProvider) -> None:
    provider.create(wanted())
    path = f"/nodes/pve1/lxc/{guest(pve).vmid}"
    pve.world.faults.drop("POST", f"{path}/status/start", done=True)
    provider.start(wanted())
    assert running(pve)
    pve.world.faults.drop("POST", f"{path}/status/shutdown", done=True)
    provider.stop(wanted())
    assert not running(pve)
    pve.world.faults.drop("DELETE", path, done=True)
    provider.delete(wanted())
    assert pve.world.guests == {}


def test_a_container_of_another_lab_under_that_number_is_never_removed(pve: Double, provider: ProxmoxProvider) -> None:
    """A creation that failed looks for what it left; by then the number may be somebody else's."""
    mark = marks.mark_text("", Mark("other", 105, "debian/12"))
    pve.world.add_guest(105, "pve1", hostname="one", description=mark)
    create.remove_failed(provider, 105, wanted())
    assert 105 in pve.world.guests
    pve.world.add_guest(106, "pve1", hostname="two", description=marks.mark_text("", Mark(LAB, 106, "debian/12")))
    create.remove_failed(provider, 106, wanted())
    assert 106 in pve.world.guests


def test_somebodys_lock_on_a_storage_is_waited_out(pve: Double, access: Access) -> None:
    provider = driver(access)
    provider.client.patience_s = 20
    with ThreadPoolExecutor(1) as pool:
        with pve.world.faults.hold_storage("pve1", "local-lvm"):
            making_it = pool.submit(provider.create, wanted())
            wait_until(lambda: kinds(pve).count("vzcreate") > 1)
        assert making_it.result(PATIENCE_S) == wanted()


def test_errors_that_are_no_race_are_not_repeated(provider: ProxmoxProvider) -> None:
    tried: list[int] = []

    def attempt(vmid: int) -> None:
        tried.append(vmid)
        raise PveError("something else")

    with pytest.raises(PveError):
        create.create_numbered(provider, replace(wanted(), settings={}), attempt)
    assert tried == [100]
