"""The way back from what a host says to the file's words: what was written is what is read."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import resolve
from provisioner.lab.written import host_variables, written_container
from provisioner.labfile.hosts import IncusHost, ProxmoxContainer, ProxmoxHost
from provisioner.labfile.spec import Container, Spec
from provisioner.values.quantities import parse_size, written_size
from provisioner.values.state import Instance, Secret
from tests.case_files import read_cases

CASES = read_cases("lab/written")

PLAIN: dict[str, Any] = {"proxmox": "https://192.0.2.1:8006", "user": "root@pam", "password": Secret("p", "x")}
HOSTS = [
    ProxmoxHost.model_validate(PLAIN),
    ProxmoxHost.model_validate({**PLAIN, "storage": "local-lvm", "pool": "lab", "bridge": "vmbr9"}),
]
BLOCKS: list[dict[str, Any]] = CASES["blocks"]


@pytest.mark.parametrize("host", HOSTS, ids=["plain", "with its own storage, pool and bridge"])
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: ", ".join(block) or "nothing")
def test_settings_come_back_from_their_written_form(block: dict[str, Any], host: ProxmoxHost) -> None:
    settings = host.settings_of(ProxmoxContainer.model_validate(block))
    written = host.written_form(settings)
    assert host.settings_of(ProxmoxContainer.model_validate(written)) == settings
    assert set(written) <= set(block), "only what differs from the defaults"


def test_the_number_and_the_storage_of_one_that_is_there_are_written() -> None:
    seen = {**HOSTS[1].settings_of(None), "vmid": 101, "storage": "tank"}
    assert HOSTS[1].written_form(seen) == {"vmid": 101, "storage": "tank"}
    assert HOSTS[1].written_form({**seen, "storage": "local-lvm"}) == {"vmid": 101}


@pytest.mark.parametrize("size", [1024, 2**30, 1536 * 2**20, 10**9, 10**10, 1500 * 2**10, 2**40])
def test_a_size_is_read_as_it_was_written(size: int) -> None:
    assert parse_size(written_size(size)) == size


def test_a_size_without_an_exact_form_becomes_the_next_larger() -> None:
    assert parse_size(written_size(10**9 + 1)) - 10**9 in range(1, 1025)


def test_what_a_file_refuses_is_left_out_and_the_rest_is_valid() -> None:
    spec = Spec.model_validate({"name": "x", "hosts": {"pve": HOSTS[0]}, "containers": {}})
    settings = {
        "swap": 0,
        "network": {"bridge": "vmbr0", "ip": "dhcp", "firewall": False, "mtu": 9000, "vlan": 4},
        "mounts": ({"path": "/mnt/nas"}, {"path": "/srv", "size": 2**30}),
        "devices": ({"path": "/dev/kfd", "mode": "wrong", "uid": 0, "gid": 0},),
    }
    there = Instance("web", "pve", "", "bad image!", cpu=0, settings=settings)
    written = written_container(there, resolve(spec, load_catalog()), adopt=True)
    assert written == {
        "host": "pve",
        "proxmox": {"swap": 0, "network": {"vlan": 4}, "mounts": [{"path": "/srv", "size": "1GiB"}]},
        "adopt": True,
    }
    Container.model_validate(written)


def test_an_incus_container_has_no_block_of_proxmox() -> None:
    spec = Spec.model_validate({"name": "x", "hosts": {"box": IncusHost(incus="local")}, "containers": {}})
    assert written_container(Instance("web", "box", "", "debian/12"), resolve(spec, load_catalog()), adopt=False) == {
        "host": "box",
        "image": "debian/12",
    }


def test_only_an_incus_elsewhere_has_to_be_named_to_the_role() -> None:
    assert host_variables(IncusHost(incus="local")) == {}
    far = IncusHost.model_validate({"incus": "https://far:8443", "fingerprint": "AB" * 32})
    assert host_variables(far) == {"container_host": {"incus": "https://far:8443", "fingerprint": "ab" * 32}}


def test_how_ansible_goes_into_containers_is_nothing_that_makes_one() -> None:
    written = {"proxmox": "https://pve:8006", "user": "root@pam", "password": Secret("p", "x")}
    page = ProxmoxHost.model_validate({**written, "transport": "ssh", "ssh_key": "key"})
    assert host_variables(page) == {"container_host": written}
