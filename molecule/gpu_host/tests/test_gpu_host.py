"""Device files are there before containers start, also after a start of the machine; what lacks is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from provisioner.hosts import provider_for
from provisioner.values.state import Instance

SCENARIO = Path(__file__).resolve().parents[1]
LAB = "molecule-gpu_host"
UNIT = "provision-gpu.service"
NODES = {"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
LIES = "/opt/card/lies"
UNCHANGED = r"changed=0 .*failed=0"


@pytest.fixture
def nvidia(host: Host) -> Host:
    """The machine with NVIDIA's card."""
    if not host.backend._container.endswith("nvidia"):
        pytest.skip("the other machine")
    return host


@pytest.fixture
def amd(host: Host) -> Host:
    """The machine with AMD's card."""
    if not host.backend._container.endswith("amd"):
        pytest.skip("the other machine")
    return host


@pytest.fixture
def lying(nvidia: Host) -> Iterator[Host]:
    """A machine whose driver makes nothing and says that all is well."""
    nvidia.check_output(f"touch {LIES}")
    yield nvidia
    nvidia.check_output(f"rm {LIES} && systemctl reset-failed {UNIT} && systemctl restart {UNIT}")


def role(host: Host, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the role on one of the machines, with other options than the scenario's."""
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(SCENARIO / "part.yml")]
    command += ["--limit", host.backend._container, "--extra-vars", json.dumps(options), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def assert_refused(answer: subprocess.CompletedProcess[str], words: str) -> None:
    """The run failed, for the reason that ``words`` name."""
    shown = answer.stdout + answer.stderr
    assert answer.returncode != 0, shown
    assert re.search(words, shown), shown


def reboot(host: Host) -> None:
    """Stop and start the container: its device files and mounts go, its units come up again."""
    name = host.backend._container
    provider = provider_for("localhost", "incus")
    machine = Instance(name, "localhost", LAB, "debian/12")
    provider.stop(machine)
    provider.start(machine)
    provider.wait_until_ready(machine)
    host.check_output("systemctl start incus.service")  # returns when it has run


def devices(host: Host) -> set[str]:
    """NVIDIA's device files that are there."""
    return {path for path in NODES if host.run(f"test -c /dev/{path}").rc == 0}


def test_all_device_files_are_there(nvidia: Host) -> None:
    assert devices(nvidia) == NODES
    assert nvidia.service(UNIT).is_enabled
    assert nvidia.file("/etc/modules-load.d/provision-gpu.conf").content_string.split()[-2:] == ["nvidia", "nvidia_uvm"]
    assert nvidia.check_output(f"systemd-analyze verify {UNIT} 2>&1") == ""


def test_after_a_start_of_the_machine_they_are_there_before_containers_start(nvidia: Host) -> None:
    reboot(nvidia)
    assert set(nvidia.check_output("cat /run/found-by-incus").split()) >= NODES
    assert nvidia.service(UNIT).is_running


def test_without_the_unit_containers_start_without_them(nvidia: Host) -> None:
    nvidia.check_output(f"systemctl disable --now {UNIT}")
    reboot(nvidia)
    assert set(nvidia.check_output("cat /run/found-by-incus").split()) & NODES == set()
    assert devices(nvidia) == set()
    answer = role(nvidia)
    assert answer.returncode == 0, answer.stdout
    assert devices(nvidia) == NODES


def test_what_went_since_is_made_again(nvidia: Host) -> None:
    nvidia.check_output("umount /dev/nvidia-uvm && rm /dev/nvidia-uvm")
    assert role(nvidia).returncode == 0
    assert devices(nvidia) == NODES
    assert re.search(UNCHANGED, role(nvidia).stdout)


def test_check_mode_changes_nothing(host: Host) -> None:
    answer = role(host, "--check")
    assert re.search(UNCHANGED, answer.stdout), answer.stdout


def test_a_tool_that_only_says_that_all_is_well_fails_the_unit(lying: Host) -> None:
    reboot(lying)
    assert lying.run(f"systemctl is-failed {UNIT}").stdout.strip() == "failed"
    assert "missing: /dev/nvidiactl" in lying.check_output(f"journalctl --boot --unit {UNIT} --no-pager")
    assert_refused(role(lying), "nvidia-modprobe|provision-gpu.service")


def test_a_card_for_virtual_machines_is_refused(nvidia: Host) -> None:
    link = "/run/card/pci/0000:01:00.0/driver"
    nvidia.check_output(f"mkdir -p /run/card/drivers/vfio-pci && ln -sfn /run/card/drivers/vfio-pci {link}")
    try:
        assert_refused(role(nvidia), r"reserved for virtual machines[\s\S]*never by provision")
    finally:
        nvidia.check_output(f"ln -sfn /run/card/drivers/nvidia {link}")


def test_a_machine_without_a_card_is_refused(nvidia: Host) -> None:
    nvidia.check_output("mkdir -p /run/none && mount --bind /run/none /sys/bus/pci/devices")
    try:
        assert_refused(role(nvidia), "it has none of NVIDIA, AMD or Intel")
    finally:
        nvidia.check_output("umount /sys/bus/pci/devices")


def test_what_lends_containers_the_driver_has_the_hash_that_is_pinned_or_is_refused(nvidia: Host) -> None:
    """An Incus, and a server of packages: one with another content, then one with the content that is meant."""
    nvidia.check_output(
        "ln -sf /bin/true /usr/bin/incus; mkdir -p /srv/tools/DEBIAN /srv/tools/usr/bin; cd /srv; "
        "printf 'Package: stand-in\\nVersion: 1\\nArchitecture: all\\nMaintainer: none <a@b.c>\\nDescription: none\\n' "
        "> tools/DEBIAN/control; ln -sf /bin/true tools/usr/bin/nvidia-container-cli; "
        "dpkg-deb --build tools tools.deb; "
        "systemd-run --quiet --unit=packages --working-directory=/srv python3 -m http.server --bind 127.0.0.1 8017; "
        'timeout 20 sh -c \'until python3 -c "import socket; socket.create_connection((\\"127.0.0.1\\", 8017))" '
        "2>/dev/null; do :; done'"
    )
    package = {"name": "stand-in", "file": "tools.deb"}
    server = {"gpu_host_container_tools_url": "http://127.0.0.1:8017"}
    try:
        wrong = role(nvidia, __gpu_host_tools=[{**package, "sha256": "0" * 64}], **server)
        assert_refused(wrong, "sha256")
        assert nvidia.run("command -v nvidia-container-cli").rc != 0
        sha256 = nvidia.check_output("sha256sum /srv/tools.deb").split()[0]
        right = role(nvidia, __gpu_host_tools=[{**package, "sha256": sha256}], **server)
        assert right.returncode == 0, right.stdout
        assert nvidia.run("command -v nvidia-container-cli").rc == 0
        assert re.search(UNCHANGED, role(nvidia, **server).stdout)
    finally:
        nvidia.run("systemctl stop packages; rm /usr/bin/incus; dpkg --purge stand-in")


def test_amd_s_driver_is_loaded_at_every_start_and_nothing_else_is_needed(amd: Host) -> None:
    assert amd.file("/etc/modules-load.d/provision-gpu.conf").content_string.split()[-1] == "amdgpu"
    assert not amd.file(f"/etc/systemd/system/{UNIT}").exists


def test_amd_s_firmware_is_looked_for(amd: Host) -> None:
    amd.check_output("mv /lib/firmware/amdgpu /lib/firmware/away")
    try:
        assert_refused(role(amd), "apt install firmware-amd-graphics")
    finally:
        amd.check_output("mv /lib/firmware/away /lib/firmware/amdgpu")
