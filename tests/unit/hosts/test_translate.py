"""What is asked of Incus is read back as the same value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.hosts.incus.translate import (
    address_in,
    bytes_of,
    instance_of,
    ports_of_others,
    publications_of,
    request_for,
    updated,
)
from provisioner.values.state import Device, Instance, InstanceKind, Snapshot, Status

ROOT = {"type": "disk", "path": "/", "pool": "fast"}
GIB = 2**30


def echo(request: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What Incus shows of a container that it made from ``request``."""
    return {"status": "Stopped", "state": None, **request, **more}


@pytest.mark.parametrize(
    "wanted",
    [
        Instance("plain", "box", "lab", "debian/12"),
        Instance("full", "box", "lab", "debian/13", cpu=3, memory=5 * GIB, disk=10 * GIB, nesting=True),
        Instance("odd", "box", "lab", "debian/12", memory=1_234_567_890, kind=InstanceKind.BUILDER),
        Instance(
            "devices",
            "box",
            "lab",
            "debian/12",
            disk=GIB,
            devices=(
                Device("data", "volume", {"volume": "v", "path": "/srv", "readonly": "false"}),
                Device("model", "volume", {"volume": "m", "path": "/srv/m", "readonly": "true"}),
                Device("web", "publish", {"listen": "0.0.0.0:80", "connect": "127.0.0.1:8080"}),
                Device("web-udp", "publish", {"listen": "0.0.0.0:80", "connect": "127.0.0.1:80", "protocol": "udp"}),
            ),
        ),
    ],
    ids=lambda one: one.name,
)
def test_a_container_is_read_back_as_it_was_asked_for(wanted: Instance) -> None:
    assert instance_of(echo(request_for(wanted, ROOT, "slow")), "box") == wanted


def test_containers_are_unprivileged_and_volumes_come_from_their_pool() -> None:
    volume = Device("data", "volume", {"volume": "v", "path": "/srv", "readonly": "true"})
    request = request_for(Instance("one", "box", "lab", "debian/12", disk=GIB, devices=(volume,)), ROOT, "slow")
    assert request["config"]["security.privileged"] == "false"
    assert request["devices"]["root"] == {**ROOT, "size": str(GIB)}
    assert request["devices"]["data"]["pool"] == "slow"


def test_devices_of_others_are_no_drift() -> None:
    found = echo(request_for(Instance("one", "box", "lab", "debian/12"), ROOT, "p"))
    found["devices"]["fuse"] = {"type": "unix-char", "path": "/dev/fuse"}
    assert instance_of(found, "box").devices == ()


@pytest.mark.parametrize(
    ("key", "value", "attribute", "seen"),
    [
        ("limits.cpu", "0-2,7", "cpu", 4),
        ("limits.memory", "2GB", "memory", 2 * 10**9),
        ("limits.memory", "50%", "memory", 0),
        ("security.nesting", "true", "nesting", True),
    ],
)
def test_what_somebody_changed_by_hand_is_seen(key: str, value: str, attribute: str, seen: object) -> None:
    found = echo(request_for(Instance("one", "box", "lab", "debian/12", memory=GIB), ROOT, "p"))
    found["config"][key] = value
    assert getattr(instance_of(found, "box"), attribute) == seen


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MiB", 512 * 2**20), ("1GB", 10**9), ("7", 7), ("7B", 7), ("10 GiB", 10 * GIB), ("", None), (None, None)],
)
def test_sizes_of_incus(text: str | None, size: int | None) -> None:
    assert bytes_of(text) == size


def test_status_and_address() -> None:
    cards = {
        "lo": {"addresses": [{"family": "inet", "scope": "local", "address": "127.0.0.1"}]},
        "eth0": {
            "addresses": [
                {"family": "inet6", "scope": "link", "address": "fe80::1"},
                {"family": "inet", "scope": "global", "address": "10.0.0.7"},
            ]
        },
    }
    request = request_for(Instance("one", "box", "lab", "debian/12"), ROOT, "p")
    found = instance_of(echo(request, status="Running", state={"network": cards}), "box")
    assert (found.status, found.address) == (Status.RUNNING, "10.0.0.7")
    assert instance_of(echo(request, status="Error"), "box").status is Status.ERROR
    assert address_in({"network": None}) is None
    assert address_in({"network": {"eth0": {"addresses": []}}}) is None


PLAIN = Instance("one", "box", "lab", "debian/12")
VOLUME = Device("data", "volume", {"volume": "v", "path": "/srv", "readonly": "true"})
FULL = replace(PLAIN, cpu=2, memory=GIB, disk=GIB, nesting=True, devices=(VOLUME,))


@pytest.mark.parametrize("before", [PLAIN, FULL], ids=["plain", "full"])
@pytest.mark.parametrize(
    "after", [PLAIN, FULL, replace(FULL, disk=2 * GIB), replace(FULL, devices=())], ids=["plain", "full", "disk", "no"]
)
def test_an_updated_container_is_what_was_asked_for(before: Instance, after: Instance) -> None:
    body = echo(request_for(before, ROOT, "slow"))
    changed = updated(body, after, ROOT, "slow")
    assert instance_of(changed, "box") == after
    assert (changed == body) is (before == after)
    assert ("root" in changed["devices"]) is (after.disk is not None)


def test_what_others_have_added_outlives_an_update() -> None:
    body = echo(request_for(FULL, ROOT, "slow"))
    body["config"]["user.theirs"] = "kept"
    body["devices"]["card"] = {"type": "gpu"}
    body["devices"]["data"]["io.bus"] = "theirs"
    body["devices"]["root"]["limits.read"] = "30MB"
    changed = updated(body, replace(FULL, memory=2 * GIB), ROOT, "slow")
    assert changed["devices"] == body["devices"]
    assert changed["config"] == body["config"] | {"limits.memory": str(2 * GIB)}
    smaller = updated(body, PLAIN, ROOT, "slow")["devices"]
    assert smaller == {"card": {"type": "gpu"}, "root": {**ROOT, "limits.read": "30MB"}}


def test_a_profile_s_root_disk_of_a_size_comes_back() -> None:
    root = {**ROOT, "size": "5GiB"}
    body = echo(request_for(FULL, root, "slow"))
    assert updated(body, PLAIN, root, "slow")["devices"] == {}


def test_snapshots_are_in_the_order_of_their_times() -> None:
    times = {"c": "2026-11-20T13:56:29.9Z", "a": "2026-11-20T13:56:29.95Z", "b": "2026-11-20T13:56:30Z"}
    disk = {"type": "disk", "pool": "p", "source": "model", "path": "/srv"}
    devices = {"root": ROOT, "model": disk, "folder": {"type": "disk", "source": "/srv", "path": "/x"}}
    kept = [{"name": f"one/{name}", "created_at": times[name], "devices": devices} for name in "abc"]
    found = instance_of(echo(request_for(PLAIN, ROOT, "p"), snapshots=kept), "box")
    assert found.snapshots == tuple(Snapshot(name, times[name], ("model",)) for name in "cab")


CARD = Device("gpu", "gpu", {"pci": "0000:01:00.0", "mode": "0666", "runtime": "compute,utility"})
AMD = (
    Device("gpu", "gpu", {"pci": "0000:04:00.0", "mode": "0660", "group": "render"}),
    Device("gpu-kfd", "node", {"path": "/dev/kfd", "mode": "0660", "group": "render"}),
)


def test_a_card_of_nvidia_is_lent_with_the_host_s_user_space() -> None:
    required = replace(CARD, properties={**CARD.properties, "require_cuda": "cuda>=12.4"})
    wanted = replace(PLAIN, devices=(required,))
    request = request_for(wanted, ROOT, "slow")
    assert request["devices"]["gpu"] == {"type": "gpu", "gputype": "physical", "pci": "0000:01:00.0", "mode": "0666"}
    assert request["config"]["nvidia.runtime"] == "true"
    assert request["config"]["nvidia.driver.capabilities"] == "compute,utility"
    assert request["config"]["nvidia.require.cuda"] == "cuda>=12.4"
    assert instance_of(echo(request), "box") == wanted


def test_a_device_of_a_group_waits_until_the_group_s_number_is_known() -> None:
    wanted = replace(PLAIN, devices=AMD)
    request = request_for(wanted, ROOT, "slow")
    assert request["devices"] == {}
    body = updated(echo(request), wanted, ROOT, "slow", {"render": 104})
    assert body["devices"]["gpu"]["gid"] == "104"
    assert body["devices"]["gpu-kfd"] == {"type": "unix-char", "path": "/dev/kfd", "mode": "0660", "gid": "104"}
    assert instance_of(body, "box") == wanted
    assert updated(body, wanted, ROOT, "slow", {"render": 104}) == body


def test_a_device_whose_group_was_changed_by_hand_is_seen() -> None:
    wanted = replace(PLAIN, devices=AMD)
    body = updated(echo(request_for(wanted, ROOT, "slow")), wanted, ROOT, "slow", {"render": 104})
    body["devices"]["gpu-kfd"]["gid"] = "0"
    assert instance_of(body, "box") != wanted
    assert instance_of(updated(body, wanted, ROOT, "slow", {"render": 104}), "box") == wanted


def test_what_a_card_needed_goes_with_it_and_what_somebody_set_stays() -> None:
    body = echo(request_for(replace(PLAIN, devices=(CARD,)), ROOT, "slow"))
    gone = updated(body, PLAIN, ROOT, "slow")
    assert not [key for key in gone["config"] if key.startswith("nvidia")]
    by_hand = {**body, "devices": {"mine": body["devices"]["gpu"]}}
    assert instance_of(by_hand, "box").devices == ()
    kept = updated(by_hand, PLAIN, ROOT, "slow")
    assert kept["devices"] == by_hand["devices"]
    assert kept["config"]["nvidia.runtime"] == "true"


def test_proxy_devices_of_profiles_are_told_and_which_way_they_lead() -> None:
    inherited = {"type": "proxy", "listen": "udp:0.0.0.0:53", "connect": "udp:127.0.0.1:5353"}
    outwards = {"type": "proxy", "bind": "instance", "listen": "tcp:127.0.0.1:1", "connect": "unix:/run/incus.socket"}
    found = {"config": {}, "devices": {}, "expanded_devices": {"a": inherited, "b": outwards, "eth0": {"type": "nic"}}}
    assert publications_of(found) == (
        Device("a", "publish", {"listen": "0.0.0.0:53", "connect": "127.0.0.1:5353", "protocol": "udp"}),
        Device("b", "publish", {"listen": "127.0.0.1:1", "connect": "unix:/run/incus.socket", "bind": "instance"}),
    )


def publishing(name: str, lab: str = "", status: str = "Running", **devices: dict[str, str]) -> dict[str, Any]:
    """Return a container with these proxy devices, as Incus shows it."""
    config = {"user.provisioner.lab": lab} if lab else {}
    proxies = {name: {"type": "proxy", **device} for name, device in devices.items()}
    shown = {"name": name, "type": "container", "status": status, "config": config}
    return {**shown, "expanded_devices": {"eth0": {"type": "nic"}, **proxies}}


def test_ports_that_others_publish_are_told_with_whose_they_are() -> None:
    found = [
        publishing("ours", "home", web={"listen": "tcp:0.0.0.0:1"}),
        publishing("down", "other", status="Stopped", web={"listen": "tcp:0.0.0.0:2"}),
        publishing("web", "other", web={"listen": "tcp:0.0.0.0:80"}, names={"listen": "udp:[::]:53", "nat": "true"}),
        publishing("many", web={"listen": "tcp:127.0.0.1:8000-8002,9000", "bind": "host"}),
        publishing("beside", web={"listen": "tcp:[::1]:3"}, file={"listen": "unix:/run/a:4"}),
        publishing("inward", web={"listen": "tcp:127.0.0.1:5", "bind": "instance"}),
        {**publishing("starting"), "config": None, "expanded_devices": None},
    ]
    web, many = "container web of lab other", "container many"
    ports = {8000: many, 8001: many, 8002: many, 9000: many}
    told = {("tcp", 80): web, ("udp", 53): web, **{("tcp", port): owner for port, owner in ports.items()}}
    assert ports_of_others(found, "home") == told
