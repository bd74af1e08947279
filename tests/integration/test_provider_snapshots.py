"""More of the suite over every driver: changes in place, snapshots, copies, and lock objects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from provisioner.values.errors import ProviderError
from provisioner.values.state import Device, Status
from tests.integration.test_provider_contract import IMAGE, Host, copied_driver, host, mount

__all__ = ["copied_driver", "host"]  # fixtures

GIB = 2**30
PUBLISHED = Device("web", "publish", {"listen": "127.0.0.1:18734", "connect": "127.0.0.1:80"})


def read(host: Host, name: str) -> bytes:
    """What stands in the file that ``write`` writes."""
    host.provider.pull(name, "/root/word", host.folder / "word")
    return (host.folder / "word").read_bytes()


def write(host: Host, name: str, word: bytes) -> None:
    host.provider.push(name, word, "/root/word")


@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_a_container_becomes_what_was_asked_for_and_back(host: Host, runs: bool) -> None:
    host.provider.volumes.create(f"{host.lab}-volume", "digest")
    bare = host.running("one") if runs else host.provider.create(host.instance("one"))
    devices = (mount(f"{host.lab}-volume", readonly=True), *host.published(PUBLISHED))
    full = replace(bare, cpu=1, memory=GIB // 2, disk=10 * GIB, nesting=True, devices=devices)
    for wanted in (full, replace(full, disk=12 * GIB, devices=devices[:1]), bare):
        made = host.provider.update(wanted)
        assert made == wanted
        assert (made.status, made.lab, made.image) == (bare.status, host.lab, IMAGE)
        seen = host.seen(wanted)
        assert seen is not None
        if not runs:  # whether its file system has grown is not read, on a host where that is not sure
            seen = replace(seen, disk=wanted.disk)
        assert seen == wanted


def test_a_change_to_what_is_there_changes_nothing(host: Host) -> None:
    one = host.instance("one", cpu=1, disk=GIB, devices=host.published(PUBLISHED))
    host.provider.create(one)
    assert host.provider.update(one) == one


def test_a_failed_change_changes_nothing(host: Host) -> None:
    one = host.running("one", memory=GIB // 2)
    wanted = replace(one, memory=GIB, devices=(mount("no-such-volume", readonly=True),))
    with pytest.raises(ProviderError, match="Unable to change container"):
        host.provider.update(wanted)
    assert host.seen(one) == one


@pytest.mark.guarantee("unmanaged")
def test_strangers_and_missing_ones_are_neither_changed_nor_kept(host: Host) -> None:
    theirs = replace(host.instance("theirs"), lab=f"{host.lab}-other")
    host.provider.create(theirs)
    host.provider.snapshots.take(theirs, "a")
    for one in (replace(theirs, lab=host.lab, memory=GIB), host.instance("missing")):
        for verb in (
            host.provider.update,
            lambda one: host.provider.snapshots.take(one, "b"),
            lambda one: host.provider.snapshots.rollback(one, "a"),
            lambda one: host.provider.clone(one, f"{host.lab}-copy"),
        ):
            with pytest.raises(ProviderError):
                verb(one)
    with pytest.raises(ProviderError):
        host.provider.snapshots.delete(replace(theirs, lab=host.lab), "a")
    host.provider.snapshots.delete(host.instance("missing"), "a")
    still = host.seen(theirs)
    assert still == theirs
    assert still is not None
    assert [one.name for one in still.snapshots] == ["a"]


@pytest.mark.guarantee("rollback")
@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_a_rollback_restores_files_and_settings_and_keeps_all_snapshots(host: Host, runs: bool) -> None:
    one = host.running("one", memory=GIB // 2)
    write(host, one.name, b"first")
    taken = host.provider.snapshots.take(one, "z-first")
    host.provider.update(replace(one, memory=GIB, cpu=1))
    write(host, one.name, b"second")
    host.provider.snapshots.take(one, "a-second")
    if not runs:
        host.provider.stop(one)
    back = host.provider.snapshots.rollback(one, "z-first")
    assert back == one
    assert back.status is (Status.RUNNING if runs else Status.STOPPED)
    assert [kept.name for kept in back.snapshots] == ["z-first", "a-second"], "the oldest first"
    assert back.snapshots[0] == taken
    seen = host.seen(one)
    assert seen == one, "our marks are there"
    assert seen is not None
    assert seen.snapshots == back.snapshots
    host.provider.start(one)  # not every host reads files of a stopped one
    assert read(host, one.name) == b"first"
    host.provider.snapshots.rollback(one, "a-second")
    assert read(host, one.name) == b"second"


def test_a_taken_or_missing_snapshot_is_an_error_and_deleting_a_missing_one_is_not(host: Host) -> None:
    one = host.running("one")
    host.provider.snapshots.take(one, "a")
    with pytest.raises(ProviderError, match="Unable to take snapshot a"):
        host.provider.snapshots.take(one, "a")
    with pytest.raises(ProviderError, match="back to snapshot b"):
        host.provider.snapshots.rollback(one, "b")
    seen = host.seen(one)
    assert seen is not None
    assert seen.status is Status.RUNNING
    host.provider.snapshots.delete(one, "a")
    host.provider.snapshots.delete(one, "a")
    seen = host.seen(one)
    assert seen is not None
    assert seen.snapshots == ()


def test_a_volume_that_a_snapshot_needs_is_left(host: Host) -> None:
    volume = f"{host.lab}-volume"
    host.provider.volumes.create(volume, "digest")
    host.provider.volumes.mark_ready(volume)
    one = host.instance("one", devices=(mount(volume, readonly=True),))
    host.provider.create(one)
    assert host.provider.snapshots.take(one, "a").volumes == (volume,)
    seen = host.seen(one)
    assert seen is not None
    assert [kept.volumes for kept in seen.snapshots] == [(volume,)]
    host.provider.update(replace(one, devices=()))
    host.provider.volumes.delete(volume)
    assert host.provider.snapshots.rollback(one, "a") == one
    host.provider.update(replace(one, devices=()))
    host.provider.snapshots.delete(one, "a")
    host.provider.volumes.delete(volume)
    assert volume not in host.provider.observe(host.lab).hosts["box"].volumes


def test_a_clone_is_a_stopped_container_of_its_own(host: Host) -> None:
    volume = f"{host.lab}-volume"
    host.provider.volumes.create(volume, "digest")
    data = mount(volume, readonly=True)
    one = host.running("one", memory=GIB // 2, disk=2 * GIB, devices=(data, *host.published(PUBLISHED)))
    host.provider.snapshots.take(one, "a")
    write(host, one.name, b"first")
    name = f"{host.lab}-two"
    copy = host.provider.clone(one, name)
    assert copy == replace(one, name=name, devices=(data,))
    assert (copy.status, copy.snapshots) == (Status.STOPPED, ())
    host.provider.start(copy)
    ready = host.provider.wait_until_ready(copy)
    assert ready.address != one.address
    write(host, one.name, b"second")
    assert read(host, name) == b"first"
    assert host.seen(one) == one
    with pytest.raises(ProviderError, match="Unable to clone container"):
        host.provider.clone(one, name)
    assert host.seen(copy) == copy


def test_a_plain_container_can_be_snapshotted_whole(host: Host) -> None:
    assert host.provider.snapshots.obstacle(host.provider.create(host.instance("one"))) == ""


@pytest.mark.guarantee("locks")
def test_a_lock_object_is_made_once_renewed_by_its_maker_and_deleted(host: Host) -> None:
    name = f"provisioner-lock-{host.lab}-1"
    mine = {"nonce": "a", "holder": "me@here", "heartbeat": "0"}
    try:
        assert host.provider.locks.read(name) == {}
        assert not host.provider.locks.renew(name, mine)
        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(lambda _: host.provider.locks.create(name, mine), range(16))) == 1
        assert host.provider.locks.renew(name, mine | {"heartbeat": "1"})
        assert host.provider.locks.read(f"provisioner-lock-{host.lab}-") == {name: mine | {"heartbeat": "1"}}
        assert not host.provider.locks.renew(name, {"nonce": "b", "heartbeat": "2"})
        assert host.provider.locks.read(name)[name]["heartbeat"] == "1"
    finally:
        host.provider.locks.delete(name)
    host.provider.locks.delete(name)
    assert host.provider.locks.read(name) == {}


@pytest.mark.parametrize("lab", ["x" * 63, "Home-1"])
def test_every_lab_can_be_locked(host: Host, lab: str) -> None:
    name = f"provisioner-lock-{lab}-{host.lab}"
    longest = f"provisioner-unfinished-{lab}_{'y' * 63}"
    for one in (name, longest):
        assert host.provider.locks.create(one, {"nonce": "a"})
        host.provider.locks.delete(one)
