"""Device files and cards in real unprivileged containers: who can open them, and what hosts say without a card.

The numbers stand in for a card: the nodes are made without any driver, have the right name, owner and mode, and cannot
be opened for want of one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.gpus.cards import VENDORS
from provisioner.hosts.base import Provider
from provisioner.hosts.incus import IncusProvider
from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.values.errors import ProviderError
from provisioner.values.state import Device, Instance
from tests.doubles.proxmox.fixture import PveHost

pytestmark = pytest.mark.incus

NULL = (1, 3)
"""Numbers of a device that everybody could open if the mode of its file let them: what decides is the mode."""
PATH = "/dev/provision-stand-in"
LOOK = f"stat -c '%F %a %U %G %t:%T' {PATH}"
NOBODY_OPENS = f"! setpriv --reuid=nobody --regid=nogroup --clear-groups sh -c ': <{PATH}' 2>/dev/null"
MEMBER_OPENS = f"setpriv --reuid=nobody --regid=nogroup --groups=render sh -c ': <{PATH}'"


def run(provider: Provider, name: str, script: str) -> tuple[int, str]:
    """The exit code and all output of a script in the container."""
    done = provider.execute(name, ["sh", "-c", script])
    return done.returncode, (done.stdout + done.stderr).decode()


@pytest.fixture
def node() -> Iterator[Path]:
    """A device file of this machine's, which is the host."""
    import os
    import stat

    path = Path(PATH)
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(*NULL))
    yield path
    path.unlink()


@pytest.fixture
def lab() -> str:
    return f"t{secrets.token_hex(4)}"


@pytest.mark.parametrize("image", ["debian/12", "debian/13"])
def test_a_device_file_belongs_to_the_container_s_own_render(
    provider: IncusProvider, lab: str, node: Path, image: str
) -> None:
    device = Device("gpu-kfd", "node", {"path": str(node), "mode": "0660", "group": "render"})
    wanted = Instance(f"{lab}-card", "box", lab, image, devices=(device,))
    made = provider.create(wanted)
    try:
        assert made == wanted
        provider.start(wanted)
        provider.wait_until_ready(wanted)
        assert run(provider, wanted.name, LOOK) == (0, "character special file 660 root render 1:3\n")
        assert run(provider, wanted.name, NOBODY_OPENS) == (0, "")
        assert run(provider, wanted.name, MEMBER_OPENS) == (0, "")
        assert provider.update(Instance(wanted.name, "box", lab, image)).devices == ()
        assert run(provider, wanted.name, f"test ! -e {PATH}")[0] == 0
        assert provider.update(wanted).devices == (device,)
        assert run(provider, wanted.name, MEMBER_OPENS) == (0, "")
    finally:
        provider.delete(wanted)


def test_an_image_without_the_group_leaves_nothing_behind(provider: IncusProvider, lab: str, node: Path) -> None:
    device = Device("gpu-kfd", "node", {"path": str(node), "mode": "0660", "group": "no-such-group"})
    wanted = Instance(f"{lab}-card", "box", lab, "debian/12", devices=(device,))
    with pytest.raises(ProviderError) as caught:
        provider.create(wanted)
    assert "no such group" in str(caught.value)
    assert provider.read(wanted.name) is None


def test_a_card_that_is_gone_is_named_when_the_container_starts(provider: IncusProvider, lab: str) -> None:
    gone = Device("gpu", "gpu", {"pci": "0000:99:00.0", "mode": "0666"})
    wanted = Instance(f"{lab}-card", "box", lab, "debian/12", devices=(gone,))
    provider.create(wanted)
    try:
        with pytest.raises(ProviderError) as caught:
            provider.start(wanted)
        assert "Invalid PCI address" in caught.value.details
        assert "The host has no such card any more" in caught.value.resolution
    finally:
        provider.delete(wanted)


def test_a_host_without_nvidia_s_tools_says_how_to_get_them(provider: IncusProvider, lab: str) -> None:
    lent = Device("gpu", "gpu", {"pci": "0000:99:00.0", "mode": "0666", "runtime": "compute,utility"})
    wanted = Instance(f"{lab}-card", "box", lab, "debian/12", devices=(lent,))
    try:
        with pytest.raises(ProviderError) as caught:
            provider.start(provider.create(wanted))
        assert "NVIDIA container tools couldn't be found" in caught.value.details
        assert "host prepare --gpu" in caught.value.resolution
    finally:
        provider.delete(wanted)


def test_the_cards_of_this_machine_are_those_that_its_kernel_lists(provider: IncusProvider) -> None:
    buses = Path("/sys/bus/pci/devices").iterdir()
    display = [one.name for one in buses if (one / "class").read_text().startswith("0x03")]
    known = [
        name for name in display if (Path("/sys/bus/pci/devices") / name / "vendor").read_text().strip() in VENDORS
    ]
    assert [card.pci for card in provider.cards.read()] == sorted(known)


@pytest.mark.proxmox
@pytest.mark.parametrize("image", ["debian/12", "debian/13"])
def test_proxmox_gives_a_device_file_to_the_number_that_the_container_s_render_has(
    pve_host: PveHost, lab: str, image: str
) -> None:
    provider = ProxmoxProvider("box", access=pve_host.access)
    pve_host.containers.files[PATH] = NULL  # type: ignore[index]  # the double's own dict
    file = {"path": PATH, "mode": "0660", "uid": 0, "gid": "render"}
    wanted = Instance(f"{lab}-card", "box", lab, image, settings={"devices": (file,)})
    made = provider.create(wanted)
    try:
        assert made.settings["devices"] == (file,)
        provider.start(wanted)
        provider.wait_until_ready(wanted)
        assert run(provider, wanted.name, LOOK) == (0, "character special file 660 root render 1:3\n")
        assert run(provider, wanted.name, NOBODY_OPENS) == (0, "")
        assert run(provider, wanted.name, MEMBER_OPENS) == (0, "")
        seen = provider.observe(lab).instance(wanted.name)
        assert seen is not None
        assert seen.settings["devices"] == (file,)
        changed = Instance(wanted.name, "box", lab, image, settings={"devices": ({**file, "mode": "0666", "gid": 0},)})
        assert provider.update(changed).settings["devices"] == changed.settings["devices"]
    finally:
        provider.delete(wanted)


@pytest.mark.proxmox
def test_a_node_s_cards_are_looked_at_over_ssh(pve_host: PveHost) -> None:
    assert ProxmoxProvider("box", access=pve_host.access).cards.read() == ()
