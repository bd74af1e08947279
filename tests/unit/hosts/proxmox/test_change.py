"""Containers changed in place: all that is asked for or nothing, and what has no word in the file stays."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider, containers, execute
from provisioner.hosts.proxmox.access import Access
from provisioner.values.errors import ProviderError
from provisioner.values.state import Execution, Instance, Status
from tests.doubles.proxmox import Double, disks
from tests.doubles.proxmox.df import df
from tests.doubles.proxmox.world import Pool
from tests.unit.hosts.proxmox.box import BY_PASSWORD, GIB, MIB, Artifacts, driver, guest, mac, mount, wanted

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
DISK = {"path": "/srv", "size": 2 * GIB, "backup": False}
DEVICE = {"path": "/dev/null", "mode": "0660", "uid": 0, "gid": 44}
NETWORK = {"bridge": "vmbr0", "ip": "10.0.0.5/24", "gateway": "10.0.0.1", "vlan": 7, "firewall": True}


@pytest.fixture
def provider(access: Access) -> ProxmoxProvider:
    """A token, and root's password beside it."""
    return driver(access, password=BY_PASSWORD["password"])


def changed(one: Instance, **settings: Any) -> Instance:
    """The container with other settings."""
    return replace(one, settings={**one.settings, **settings})


def puts(provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is written from now on."""
    found: list[dict[str, Any]] = []
    put = provider.client.put

    def noted(*path: object, as_root: bool = False, **form: object) -> Any:
        found.append(form)
        return put(*path, as_root=as_root, **form)

    monkeypatch.setattr(provider.client, "put", noted)
    return found


@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_everything_in_place_and_back(pve: Double, provider: ProxmoxProvider, one: Instance, runs: bool) -> None:
    pve.world.pools |= {"a": Pool(), "b": Pool()}
    if runs:
        provider.start(one)
    settings = {
        "swap": GIB,
        "network": NETWORK,
        "features": ("fuse", "keyctl", "nesting"),
        "devices": (DEVICE,),
        "mounts": (DISK, {**DISK, "path": "/var/x", "backup": True, "storage": "local-zfs"}),
        "onboot": False,
        "order": 3,
        "pool": "a",
        "tags": ("web",),
        "description": "of a user",
        "protection": False,
    }
    full = replace(changed(one, **settings), cpu=2, memory=2 * GIB, disk=10 * GIB, nesting=True)
    bare = replace(full, cpu=None, memory=None, settings={**full.settings, **one.settings, "pool": "b"})
    for wish in (full, bare):
        made = provider.update(wish)
        assert made == wish
        assert {name: made.settings[name] for name in wish.settings} == dict(wish.settings)
        assert made.status is (Status.RUNNING if runs else Status.STOPPED)
        assert provider.observe(one.lab).instance(one.name) == wish
    assert (pve.world.pools["a"].vms, pve.world.pools["b"].vms) == (set(), {guest(pve).vmid})


def test_an_equal_wish_writes_nothing(
    provider: ProxmoxProvider, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = puts(provider, monkeypatch)
    assert provider.update(one) == one
    assert written == []


def test_options_go_in_one_request_with_the_digest(
    pve: Double, provider: ProxmoxProvider, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = puts(provider, monkeypatch)
    digest = guest(pve).digest
    provider.update(replace(changed(one, order=2, network=NETWORK), cpu=2))
    (form,) = written
    assert form["digest"] == digest
    assert form.keys() == {"cores", "net0", "startup", "delete", "digest"}


def test_a_card_keeps_its_address_when_it_changes(pve: Double, provider: ProxmoxProvider, one: Instance) -> None:
    """Proxmox would give it another one, and its DHCP server another address."""
    before = mac(pve)
    guest(pve).config["net0"] += ",rate=10"
    provider.update(changed(one, network=NETWORK))
    assert (mac(pve), "rate=10" in guest(pve).config["net0"]) == (before, True)
    made = provider.update(changed(one, network={**NETWORK, "mac": "BC:24:11:00:00:77"}))
    assert made.settings["network"]["mac"] == mac(pve) == "BC:24:11:00:00:77"


def test_what_was_written_of_a_change_that_failed_is_told_and_put_back(
    pve: Double, provider: ProxmoxProvider, one: Instance
) -> None:
    """Facts: missing bridge on PUT: the other change WAS written."""
    before = dict(guest(pve).config)
    wish = replace(changed(one, network={**NETWORK, "bridge": "vmbr9"}, order=2), memory=2 * GIB, disk=20 * GIB)
    with pytest.raises(ProviderError, match="Unable to change container one") as caught:
        provider.update(wish)
    assert "bridge 'vmbr9' does not exist" in caught.value.details
    assert "Written: description and mark, memory, net0, startup; not written: disk." in caught.value.details
    assert "What was written was put back" in caught.value.details
    assert guest(pve).config == before
    assert provider.observe(one.lab).instance(one.name) == one


def test_what_cannot_be_put_back_is_told(
    pve: Double, provider: ProxmoxProvider, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = provider.client.put
    calls: list[object] = []

    def once(*path: object, as_root: bool = False, **form: object) -> Any:
        calls.append(path)
        if len(calls) == 2:
            guest(pve).config["lock"] = "backup"
        return put(*path, as_root=as_root, **form)

    monkeypatch.setattr(provider.client, "put", once)
    with pytest.raises(ProviderError) as caught:
        provider.update(replace(changed(one, network={**NETWORK, "bridge": "vmbr9"}), memory=2 * GIB))
    assert "could not be put back" in caught.value.details
    assert "CT is locked (backup)" in caught.value.details
    assert f"pct config {guest(pve).vmid}" in caught.value.details


def test_what_root_may_not_write_takes_the_rest_back(pve: Double, access: Access, one: Instance) -> None:
    before = dict(guest(pve).config)
    with pytest.raises(ProviderError) as caught:
        driver(access).update(replace(changed(one, devices=(DEVICE,), mounts=(DISK,)), memory=2 * GIB))
    assert "only root@pam itself may" in caught.value.details
    assert "not written: dev0" in caught.value.details
    after = guest(pve).config
    assert {name: one for name, one in after.items() if name != "description"} == {
        name: one for name, one in before.items() if name != "description"
    }
    assert "unused0" not in after, "the disk that was made for it is gone again"
    assert list(pve.world.storages["local-lvm"].on("pve1")) == [after["rootfs"].partition(",")[0]]


def test_a_full_storage_takes_back_all_but_disks_that_have_grown(
    pve: Double, provider: ProxmoxProvider, one: Instance
) -> None:
    pve.world.storages["local-lvm"].total = 20 * GIB
    provider.update(changed(one, mounts=(DISK,)))
    wish = replace(changed(one, mounts=({**DISK, "size": 5 * GIB},)), memory=2 * GIB, disk=30 * GIB)
    with pytest.raises(ProviderError) as caught:
        provider.update(wish)
    assert "insufficient free space" in caught.value.details
    assert "Written: description and mark, memory, mp0; not written: disk." in caught.value.details
    assert "A disk cannot be made smaller again: mp0." in caught.value.details
    seen = provider.observe(one.lab).instance(one.name)
    assert seen is not None
    assert (seen.memory, seen.disk) == (GIB, None)
    assert seen.settings["mounts"][0]["size"] == 5 * GIB


def let_look_in(pve: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer ``df`` in containers as the double knows it."""

    def answered(_shell: object, vmid: int, command: Sequence[str], **_options: object) -> Execution:
        assert command[:4] == ["df", "-P", "-T", "-k"]
        return Execution(0, df(pve.world, vmid, command[5:]).encode(), b"")

    monkeypatch.setattr(execute, "execute", answered)


@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
@pytest.mark.parametrize("slot", ["rootfs", "mp0"])
def test_a_disk_whose_file_system_did_not_grow_is_an_error(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch, runs: bool, slot: str
) -> None:
    """PVE ends such a task with OK, and says why in its log only."""
    provider = driver(access, ssh="root@pve1")
    let_look_in(pve, monkeypatch)
    one = provider.create(changed(wanted(), mounts=(DISK,)))
    if runs:
        provider.start(one)
    pve.world.faults.keeps_file_systems.add(guest(pve).vmid)
    larger = changed(one, mounts=({**DISK, "size": 5 * GIB},)) if slot == "mp0" else replace(one, disk=10 * GIB)
    with pytest.raises(ProviderError, match="Unable to change container one") as caught:
        provider.update(larger)
    path, size = ("/srv", "5GiB") if slot == "mp0" else ("/", "10GiB")
    assert f"Unable to grow the file system at {path} of container one" in caught.value.details
    assert f"Its disk has {size} now" in caught.value.details
    assert ("df in it shows" in caught.value.details) is runs
    assert "resize2fs: Permission denied to resize filesystem" in caught.value.details
    assert "A disk cannot be made smaller again" in caught.value.details
    volid = guest(pve).config[slot].partition(",")[0]
    assert f"&& resize2fs $(pvesm path {volid}) &&" in caught.value.resolution
    assert f"pct fsck {guest(pve).vmid} --device {slot} --force 1" in caught.value.resolution


def test_a_file_system_that_stays_small_without_a_word_is_seen_from_inside(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = driver(access, ssh="root@pve1")
    let_look_in(pve, monkeypatch)
    one = provider.create(wanted())
    provider.start(one)
    pve.world.faults.keeps_file_systems.add(guest(pve).vmid)
    monkeypatch.setattr("tests.doubles.proxmox.routes.config.NOT_GROWN", "")
    with pytest.raises(ProviderError) as caught:
        provider.update(replace(one, disk=10 * GIB))
    assert "df in it shows 8028 MiB" in caught.value.details


@pytest.mark.parametrize("storage", ["local-lvm", "local-zfs"])
def test_a_file_system_that_grew_is_no_error_and_says_nothing(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    provider = driver(access, ssh="root@pve1", storage=storage)
    let_look_in(pve, monkeypatch)
    one = provider.create(wanted())
    provider.start(one)
    said: list[str] = []
    provider.on_progress = lambda _name, message: said.append(message)
    assert provider.update(replace(one, disk=10 * GIB)).disk == 10 * GIB
    assert said == []


NODE_PROGRAMS = {
    "pct": """[ "$1" != fsck ] || { shift 2
  [ "$*" = "--device rootfs --force 1" ] || { echo "400 unable to parse option" >&2; exit 255; }
  e2fsck -f -y "$IMAGE"; }""",
    "pvesm": 'echo "$IMAGE"',
}
"""Proxmox' own programs, as far as the advice calls them: ``pct fsck --force 1`` is ``fsck -f -y`` of its device."""


@pytest.mark.skipif(shutil.which("e2fsck", path=SYSTEM_PATH) is None, reason="there is no e2fsck here")
def test_the_file_system_grows_when_the_advice_is_typed(tmp_path: Path) -> None:
    image = tmp_path / "disk.raw"
    image.write_bytes(b"")
    os.truncate(image, 16 * MIB)
    here = {"PATH": f"{tmp_path}:{SYSTEM_PATH}", "IMAGE": str(image)}
    subprocess.run(["mkfs.ext4", "-q", image], check=True, env=here, timeout=60)
    # It was mounted since it was made, as every file system of a container was: then resize2fs wants a check first.
    subprocess.run(["debugfs", "-w", "-R", "set_super_value mtime now", image], check=True, env=here, timeout=60)
    os.truncate(image, 32 * MIB)
    for name, script in NODE_PROGRAMS.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        program.chmod(0o755)
    advice = containers.repair_hint("pve1", 105, "rootfs", "local:105/disk.raw")
    command = advice.partition("On node pve1: ")[2]
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, env=here, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    seen = subprocess.run(["dumpe2fs", "-h", image], capture_output=True, text=True, check=True, env=here, timeout=60)
    blocks = dict(line.split(":", 1) for line in seen.stdout.splitlines() if ":" in line)
    assert int(blocks["Block count"]) * int(blocks["Block size"]) == 32 * MIB


@pytest.mark.parametrize("slot", ["rootfs", "mp0"])
def test_growth_that_nobody_has_read_is_drift_until_somebody_has(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch, slot: str
) -> None:
    provider = driver(access, ssh="root@pve1")
    let_look_in(pve, monkeypatch)
    one = provider.create(changed(wanted(disk=8 * GIB), mounts=(DISK,)))
    is_root = slot == "rootfs"
    larger = replace(one, disk=10 * GIB) if is_root else changed(one, mounts=({**DISK, "size": 5 * GIB},))

    def seen() -> int | None:
        there = provider.observe(one.lab, detailed=False).instance(one.name)
        assert there is not None
        return there.disk if is_root else there.settings["mounts"][0]["size"]

    pve.world.faults.keeps_file_systems.add(guest(pve).vmid)
    monkeypatch.setattr("tests.doubles.proxmox.routes.config.NOT_GROWN", "")
    before = seen()
    provider.update(larger)
    assert seen() == before, "the container does not run, so that nobody has looked"
    provider.start(one)
    for _ in range(2):
        with pytest.raises(ProviderError, match="Unable to change container one") as caught:
            provider.update(larger)
        assert "Unable to grow the file system" in caught.value.details
        assert seen() == before
    disks.volume_of(pve.world, "pve1", guest(pve).config[slot].partition(",")[0])[1].file_system = 0
    provider.update(larger)
    assert seen() == (10 if is_root else 5) * GIB
    assert "ungrown" not in guest(pve).config["description"]


@pytest.mark.parametrize(("ssh", "why"), [("root@pve1", "the container does not run"), (None, "without ssh:")])
def test_what_was_not_read_from_inside_is_said(pve: Double, access: Access, ssh: str | None, why: str) -> None:
    provider = driver(access, ssh=ssh)
    one = provider.create(wanted())
    if ssh is None:
        provider.start(one)
    said: list[str] = []
    provider.on_progress = lambda _name, message: said.append(message)
    assert provider.update(replace(one, disk=10 * GIB)).disk == 10 * GIB
    assert [message for message in said if "its file system was not read" in message and why in message]
    assert guest(pve).config["rootfs"].endswith("size=10G")


def test_somebody_who_writes_at_the_same_time_is_read_again_once(
    pve: Double, provider: ProxmoxProvider, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = provider.client.put
    digests: list[object] = []

    def late(*path: object, as_root: bool = False, **form: object) -> Any:
        digests.append(form.get("digest"))
        if len(digests) <= races:
            guest(pve).config["cpuunits"] = str(100 * races + len(digests))
        return put(*path, as_root=as_root, **form)

    monkeypatch.setattr(provider.client, "put", late)
    races = 1
    assert provider.update(replace(one, memory=2 * GIB)).memory == 2 * GIB
    assert len(set(digests)) == 2
    assert guest(pve).config["cpuunits"] == "101", "what the other one wrote is kept"
    digests.clear()
    races = 99
    with pytest.raises(ProviderError, match="Unable to change container one") as caught:
        provider.update(replace(one, memory=3 * GIB))
    assert "detected modified configuration" in caught.value.details
    assert len(digests) == 2


def test_a_disk_does_not_shrink(provider: ProxmoxProvider, one: Instance) -> None:
    with pytest.raises(ProviderError, match="its disk cannot become smaller") as caught:
        provider.update(replace(one, disk=4 * GIB))
    assert "disk: 8192MiB" in caught.value.resolution
    provider.update(changed(one, mounts=(DISK,)))
    with pytest.raises(ProviderError, match="the disk at /srv cannot become smaller"):
        provider.update(changed(one, mounts=({**DISK, "size": GIB},)))
    assert provider.observe(one.lab).instance(one.name) == one


@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_a_disk_that_the_file_no_longer_has_is_kept_as_unused(
    pve: Double, provider: ProxmoxProvider, one: Instance, runs: bool
) -> None:
    provider.update(changed(one, mounts=(DISK,)))
    volid = guest(pve).config["mp0"].partition(",")[0]
    if runs:
        provider.start(one)
    assert provider.update(changed(one, mounts=())).settings["mounts"] == ()
    if runs:
        assert "mp0" in guest(pve).config, "it is mounted until the next start"
        provider.stop(one)
        provider.start(one)
    assert guest(pve).config["unused0"] == volid
    assert volid in pve.world.storages["local-lvm"].on("pve1")


def test_a_mount_point_that_is_only_going_is_not_used_again(
    pve: Double, provider: ProxmoxProvider, one: Instance
) -> None:
    provider.update(changed(one, mounts=(DISK,)))
    provider.start(one)
    provider.update(changed(one, mounts=()))
    made = provider.update(changed(one, mounts=({**DISK, "path": "/other"},)))
    assert [mount["path"] for mount in made.settings["mounts"]] == ["/other"]
    assert {"mp0", "mp1"} <= guest(pve).config.keys()


def test_protection_forbids_to_change_disks_until_the_file_lifts_it(
    pve: Double, provider: ProxmoxProvider, one: Instance
) -> None:
    provider.update(changed(one, protection=True))
    wish = changed(one, protection=True, mounts=(DISK,))
    with pytest.raises(ProviderError, match="Unable to change container one: it is protected") as caught:
        provider.update(wish)
    assert "protection: false" in caught.value.resolution
    assert "mp0" not in guest(pve).config
    made = provider.update(changed(one, protection=False, mounts=(DISK,)))
    assert (made.settings["protection"], len(made.settings["mounts"])) == (False, 1)
    both = changed(one, protection=True, mounts=(DISK, {**DISK, "path": "/b"}))
    assert len(provider.update(both).settings["mounts"]) == 2, "protected with the same request"


def test_a_disk_of_a_protected_container_may_grow(provider: ProxmoxProvider, one: Instance) -> None:
    provider.update(changed(one, protection=True))
    wish = replace(changed(one, protection=True), disk=20 * GIB)
    assert provider.update(wish) == wish


def test_mounts_of_the_host_that_somebody_made_are_left(pve: Double, provider: ProxmoxProvider, one: Instance) -> None:
    guest(pve).config["mp0"] = "/tank/media,mp=/media"
    made = provider.update(changed(one, mounts=(DISK,)))
    assert [mount["path"] for mount in made.settings["mounts"]] == ["/srv"]
    assert guest(pve).config["mp0"] == "/tank/media,mp=/media"


def test_a_pool_is_left_and_entered_also_one_in_another(pve: Double, provider: ProxmoxProvider, one: Instance) -> None:
    pve.world.pools |= {"up": Pool(), "up/down": Pool()}
    for pool in ("up", "up/down", ""):
        assert provider.update(changed(one, pool=pool)).settings["pool"] == pool
    with pytest.raises(ProviderError, match="pool 'nosuch' does not exist"):
        provider.update(replace(changed(one, pool="nosuch"), memory=2 * GIB))
    seen = provider.observe(one.lab).instance(one.name)
    assert seen == one


def _running_with_artifacts(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch
) -> tuple[ProxmoxProvider, Instance, Artifacts]:
    """A running container, and two artifact volumes of its node."""
    artifacts = Artifacts(monkeypatch)
    artifacts.sizes |= {"v-1": GIB, "v-2": 3 * GIB}
    let_look_in(pve, monkeypatch)
    provider = driver(access, ssh="root@pve1")
    one = provider.create(wanted())
    provider.start(one)
    return provider, one, artifacts


def test_an_artifact_is_plugged_in_exchanged_and_taken_away(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, one, artifacts = _running_with_artifacts(pve, access, monkeypatch)
    vmid = guest(pve).vmid
    for volume in ("v-1", "v-2"):
        wish = replace(one, devices=(mount(volume),))
        assert provider.update(wish) == wish
        assert artifacts.filled[-1] == (vmid, volume, "/srv/data")
    volid, *rest = guest(pve).config["mp0"].split(",")
    assert "size=3G" in rest
    assert provider.update(one) == one
    assert volid in pve.world.storages["local-lvm"].on("pve1"), "it is mounted until the next start"
    provider.stop(one)
    provider.start(one)
    assert volid not in pve.world.storages["local-lvm"].on("pve1"), "a copy may go"
    assert "unused0" not in guest(pve).config
    assert provider.observe(one.lab).instance(one.name) == one


def test_what_comes_is_mounted_beside_what_goes_whose_disk_stays_until_the_next_start(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, one, artifacts = _running_with_artifacts(pve, access, monkeypatch)
    old, new = mount("v-1", path="/opt/tool/1", name="tool-1"), mount("v-2", path="/opt/tool/2", name="tool-2")
    provider.update(replace(one, devices=(old,)))
    both = replace(one, devices=(old, new))
    made = provider.update(both)
    assert made == both
    assert made.artifact_disks == {"v-1": GIB, "v-2": 3 * GIB}
    vmid = guest(pve).vmid
    assert [filled for filled in artifacts.filled if filled[0] == vmid][-1] == (vmid, "v-2", "/opt/tool/2")
    volume = guest(pve).config["mp0"].split(",")[0]
    wish = replace(one, devices=(new,))
    assert provider.update(wish) == wish
    assert provider.observe(one.lab).instance(one.name) == wish, "no plan looks at it again"
    assert volume in pve.world.storages["local-lvm"].on("pve1"), "it is mounted until the next start"
    provider.stop(one)
    provider.start(one)
    assert volume not in pve.world.storages["local-lvm"].on("pve1")


def test_a_lost_answer_to_a_change_is_looked_for(pve: Double, provider: ProxmoxProvider, one: Instance) -> None:
    path = f"/nodes/pve1/lxc/{guest(pve).vmid}"
    pve.world.faults.drop("PUT", f"{path}/resize", done=True)
    assert provider.update(replace(one, disk=10 * GIB)).disk == 10 * GIB
    pve.world.faults.drop("PUT", f"{path}/config", done=True)
    with pytest.raises(ProviderError) as caught:
        provider.update(replace(one, disk=10 * GIB, memory=2 * GIB))
    assert "Written: description and mark, memory; not written: nothing." in caught.value.details
    assert guest(pve).config["memory"] == "1024", "put back"
