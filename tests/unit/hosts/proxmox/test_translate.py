"""Our values in Proxmox' words and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.hosts.proxmox import translate
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.create import with_all_settings
from provisioner.hosts.proxmox.guest import Guest, guest_of
from provisioner.hosts.proxmox.translate import (
    bytes_of,
    gibibytes,
    instance_of,
    options_for,
    property_parts,
    property_string,
)
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance, InstanceKind
from tests.unit.hosts.proxmox.box import GIB, MIB, mount, wanted

ACCESS = Access("https://pve:8006", "root@pam")
DEVICE = {"path": "/dev/dri/renderD128", "mode": "0660", "uid": 0, "gid": 104}
PLAIN_DEVICE = {"path": "/dev/fuse", "mode": "0666", "uid": 0, "gid": 0}
DISK = {"path": "/srv", "size": 3 * GIB, "backup": False}
NETWORK = {"bridge": "vmbr1", "ip": "10.0.0.5/24", "gateway": "10.0.0.1", "firewall": True, "vlan": 7}


def whole(**attributes: Any) -> Instance:
    """A container with all settings."""
    return with_all_settings(wanted(**attributes), ACCESS)


def written(wish: Instance, before: Guest | None = None, room: dict[str, int] | None = None) -> Guest:
    """The container after Proxmox has taken up the options that it was given."""
    before = before or Guest(105, {"hostname": wish.name, "unprivileged": "1", "rootfs": _root(wish)})
    layout = translate.mount_layout(before, wish, room or {}, "local-lvm")
    config = dict(before.config)
    description = None
    for name, value in options_for(wish, before, layout).items():
        if name == "description":
            description = value
        elif value is None:
            config.pop(name, None)
        else:
            config[name] = _taken_up(name, value)
    for slot, size in layout.sizes.items():
        config[slot] = config[slot].rpartition("size=")[0] + f"size={size // MIB}M"
    after = guest_of(105, {**config, "description": description or ""}, {"status": "stopped"}, wish.settings["pool"])
    return after if description is not None else replace(after, text=before.text, mark=before.mark)


def _root(wish: Instance) -> str:
    return f"local-lvm:vm-105-disk-0,size={-(-(wish.disk or 8 * GIB) // MIB)}M"


def _taken_up(name: str, value: str) -> str:
    given = property_parts(value, "volume")
    storage, _, size = given.get("volume", "").partition(":")
    if name.startswith("mp") and size.replace(".", "").isdecimal():
        full = {**given, "volume": f"{storage}:vm-105-{name}", "size": f"{round(float(size) * 1024)}M"}
        return property_string(full, "volume")
    return f"{value},hwaddr=BC:24:11:AA:BB:CC" if name == "net0" and "hwaddr" not in value else value


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"cpu": 2, "memory": GIB, "disk": 20 * GIB, "nesting": True, "kind": InstanceKind.BUILDER},
        {"memory": 700 * 10**6, "disk": 9 * 10**9},
        {"memory": 512 * MIB, "disk": 8 * GIB},
        {"settings": {"swap": 10**9, "onboot": False, "order": 3, "protection": True, "tags": ("a", "b")}},
        {"settings": {"network": NETWORK, "description": "two\n\nlines", "pool": "prod"}},
        {"settings": {"network": {"bridge": "b", "ip": "none", "firewall": False, "mac": "BC:24:11:00:00:01"}}},
        {"settings": {"network": {"bridge": "b", "ip": "dhcp", "ip6": "auto", "firewall": False}}},
        {"settings": {"network": {**NETWORK, "ip6": "fd00::5/64", "gateway6": "fd00::1"}}},
        {"settings": {"features": ("fuse", "keyctl", "nesting"), "devices": (DEVICE, PLAIN_DEVICE)}},
        {"settings": {"mounts": (DISK, {**DISK, "path": "/var/x", "storage": "fast", "backup": True})}},
        {"settings": {"mounts": ({**DISK, "size": 10**9},)}},
    ],
    ids=lambda one: ",".join([*one, *one.get("settings", {})]) or "bare",
)
def test_what_is_written_is_read_back_equal(attributes: dict[str, Any]) -> None:
    wish = whole(**attributes)
    found = instance_of(written(wish), "box")
    assert found == wish
    assert {name: found.settings[name] for name in wish.settings} == dict(wish.settings)
    assert (found.settings["vmid"], found.settings["storage"]) == (105, "local-lvm")


def test_an_equal_wish_writes_nothing() -> None:
    devices = (mount("v-1"),)
    wish = whole(memory=GIB, devices=devices, settings={"devices": (DEVICE,), "mounts": (DISK,), "network": NETWORK})
    there = written(wish, room={"v-1": GIB})
    layout = translate.mount_layout(there, wish, {"v-1": GIB}, "local-lvm")
    assert options_for(wish, there, layout) == {}
    assert (layout.options, layout.sizes) == ({}, {})


@pytest.mark.parametrize(
    ("option", "value", "attribute", "seen"),
    [
        ("memory", "1024", "memory", GIB),
        ("cores", "3", "cpu", 3),
        ("swap", "64", "settings.swap", 64 * MIB),
        ("onboot", "0", "settings.onboot", False),
        ("features", "nesting=1,mount=nfs;cifs", "settings.features", ("mount=nfs;cifs", "nesting")),
        ("tags", "provisioner;provisioner-home;mine", "settings.tags", ("mine",)),
        ("startup", "up=30", "settings.order", 0),
        (
            "mp7",
            "fast:vm-105-disk-9,mp=/x,size=1G",
            "settings.mounts",
            ({**DISK, "path": "/x", "size": GIB, "storage": "fast"},),
        ),
    ],
)
def test_what_somebody_changed_by_hand_is_seen(option: str, value: str, attribute: str, seen: object) -> None:
    there = written(whole())
    found = instance_of(replace(there, config={**there.config, option: value}), "box")
    settings, _, name = attribute.rpartition(".")
    assert (found.settings[name] if settings else getattr(found, name)) == seen


def test_what_has_no_word_in_the_file_stays() -> None:
    there = written(whole(settings={"devices": (DEVICE,)}))
    by_hand = {
        "net0": there.config["net0"] + ",rate=10,mtu=1400",
        "startup": "order=5,up=30",
        "dev0": there.config["dev0"] + ",deny-write=1",
        "mp3": "/tank/media,mp=/media",
        "net1": "name=eth1,bridge=vmbr9",
    }
    there = replace(there, config={**there.config, **by_hand})
    changed = whole(settings={"network": NETWORK, "order": 2, "devices": ({**DEVICE, "gid": 44},)})
    after = written(changed, there).config
    assert "rate=10,mtu=1400" in after["net0"]
    assert property_parts(after["startup"], "order") == {"order": "2", "up": "30"}
    assert "deny-write=1" in after["dev0"]
    assert (after["mp3"], after["net1"]) == (by_hand["mp3"], by_hand["net1"])


def test_a_card_keeps_its_address_unless_the_file_decides_it() -> None:
    current = "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,ip=dhcp,type=veth"
    kept = property_parts(translate.network_option(NETWORK, current))
    assert (kept["hwaddr"], kept["bridge"], kept["tag"]) == ("BC:24:11:00:00:01", "vmbr1", "7")
    assert property_parts(translate.network_option({**NETWORK, "mac": "BC:24:11:00:00:02"}, current))[
        "hwaddr"
    ].endswith("02")
    assert "ip6" not in kept
    gone = property_parts(
        translate.network_option({"bridge": "b", "ip": "dhcp", "firewall": False}, translate.network_option(NETWORK))
    )
    assert gone.keys() & {"gw", "tag", "firewall"} == set()


def test_settings_that_are_not_decided_stay() -> None:
    there = written(whole(settings={"order": 4, "tags": ("a",), "network": NETWORK, "mounts": (DISK,)}))
    bare = wanted(memory=GIB)
    options = options_for(bare, there, translate.mount_layout(there, bare, {}, "local-lvm"))
    assert options.keys() == {"memory", "description"}


def test_device_files_keep_their_numbers() -> None:
    there = written(whole(settings={"devices": (DEVICE, PLAIN_DEVICE)}))
    assert (there.config["dev0"], there.config["dev1"]) == ("/dev/dri/renderD128,gid=104", "/dev/fuse,mode=0666")
    other = {**DEVICE, "path": "/dev/kfd"}
    after = written(whole(settings={"devices": (other, PLAIN_DEVICE)}), there).config
    assert (after["dev1"], after["dev2"]) == ("/dev/fuse,mode=0666", "/dev/kfd,gid=104")
    assert "dev0" not in after


def test_an_artifact_is_a_disk_of_its_own_and_a_builders_is_a_folder() -> None:
    wish = whole(devices=(mount("v-1"), mount("v-2", readonly=False, path="/build", name="out")))
    there = written(wish, room={"v-1": 3 * GIB + 1})
    assert property_parts(there.config["mp0"], "volume") == {
        "volume": "local-lvm:vm-105-mp0",
        "mp": "/srv/data",
        "backup": "0",
        "size": "3073M",
    }
    assert "mp1" not in there.config
    found = instance_of(there, "box")
    assert found.devices == wish.devices
    assert found.settings["mounts"] == ()


def test_an_exchanged_artifact_keeps_its_disk_which_grows_when_it_must() -> None:
    there = written(whole(devices=(mount("v-1"),)), room={"v-1": GIB})
    for size, sizes in ((GIB // 2, {}), (2 * GIB, {"mp0": 2 * GIB})):
        layout = translate.mount_layout(there, whole(devices=(mount("v-2"),)), {"v-2": size}, "local-lvm")
        assert (layout.options, layout.sizes, layout.discard) == ({}, sizes, [])
        assert [(one.volume, one.slot) for one in layout.mounts] == [("v-2", "mp0")]


def test_an_artifact_that_goes_is_detached_and_may_be_discarded_a_users_disk_may_not() -> None:
    wish = whole(devices=(mount("v-1"),), settings={"mounts": (DISK,)})
    there = written(wish, room={"v-1": GIB})
    layout = translate.mount_layout(there, whole(), {}, "local-lvm")
    assert layout.options == {"mp0": None, "mp1": None}
    assert layout.discard == ["local-lvm:vm-105-mp0"]


def test_an_artifact_whose_disk_somebody_removed_is_not_there() -> None:
    there = written(whole(devices=(mount("v-1"),)), room={"v-1": GIB})
    config = {name: value for name, value in there.config.items() if name != "mp0"}
    assert instance_of(replace(there, config=config), "box").devices == ()


def test_a_slot_that_is_taken_until_the_next_start_is_not_given_away() -> None:
    layout = translate.mount_layout(Guest(105, {}), whole(settings={"mounts": (DISK,)}), {}, "local-lvm", busy={"mp0"})
    assert list(layout.options) == ["mp1"]


@pytest.mark.parametrize(
    ("change", "words"),
    [({"size": 2 * GIB}, "cannot become smaller"), ({"storage": "fast"}, "is on storage local-lvm")],
)
def test_a_disk_neither_shrinks_nor_moves(change: dict[str, Any], words: str) -> None:
    there = written(whole(settings={"mounts": (DISK,)}))
    with pytest.raises(ProviderError, match=words) as caught:
        written(whole(settings={"mounts": ({**DISK, **change},)}), there)
    assert caught.value.resolution


@pytest.mark.parametrize(
    ("size", "text"), [(8 * GIB, "8"), (GIB // 2, "0.5"), (300 * MIB, "0.29296875"), (1, "0.0009765625")]
)
def test_a_new_disk_is_exact_to_a_mebibyte(size: int, text: str) -> None:
    assert gibibytes(size) == text
    assert int(float(text) * 1024) * MIB >= size, "as PVE::LXC::create_disks reckons"


@pytest.mark.parametrize(
    ("text", "size"), [("8G", 8 * GIB), ("512M", 512 * MIB), ("0.5T", 512 * GIB), ("100", 100), ("", 0), ("x", 0)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert bytes_of(text) == size


def test_a_container_that_is_nobodys_is_read_without_what_only_a_mark_says() -> None:
    config = {"hostname": "old", "memory": 512, "rootfs": "local:105/x.raw,size=4G", "features": "nesting=1"}
    found = instance_of(guest_of(105, config, {"status": "running"}), "box")
    assert (found.lab, found.image, found.memory, found.disk, found.nesting) == ("", "", 512 * MIB, 4 * GIB, False)
    assert found.settings["network"] == {}
    assert found.settings["unprivileged"] is False
