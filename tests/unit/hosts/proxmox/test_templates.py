"""Images by the names of their templates: the newest that is there, or one that is downloaded first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from provisioner.hosts.proxmox import templates
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.failures import PveError
from provisioner.values.errors import ProviderError
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.guests import Template
from tests.doubles.proxmox.storage import Storage
from tests.doubles.proxmox.world import NEWER_TEMPLATE, TEMPLATE
from tests.unit.hosts.proxmox.box import driver

OFFERED = (
    "debian-12-standard_12.7-1_amd64.tar.zst",
    "debian-12-standard_12.12-1_amd64.tar.zst",
    "debian-12-standard_12.13-1_arm64.tar.zst",
    "debian-12-turnkey-core_18.0-1_amd64.tar.gz",
    "ubuntu-24.04-standard_24.04-2_amd64.tar.zst",
    "alpine-3.20-default_20240908_amd64.tar.xz",
    "centos-9-stream-default_20240828_amd64.tar.xz",
    "archlinux-base_20240911-1_amd64.tar.zst",
    "proxmox-mail-gateway-8.1-standard_8.1-1_amd64.tar.zst",
    "notes.txt",
)


def said(_name: str, _message: str) -> None:
    """Nobody listens."""


def downloads(pve: Double) -> int:
    return sum(task.kind == "download" for task in pve.world.tasks.all.values())


def test_the_newest_template_of_each_image_is_found() -> None:
    assert templates.newest(OFFERED, "x86_64") == {
        "debian/12": "debian-12-standard_12.12-1_amd64.tar.zst",
        "ubuntu/24.04": "ubuntu-24.04-standard_24.04-2_amd64.tar.zst",
        "alpine/3.20": "alpine-3.20-default_20240908_amd64.tar.xz",
        "centos/9": "centos-9-stream-default_20240828_amd64.tar.xz",
    }
    assert templates.newest(OFFERED, "aarch64") == {"debian/12": "debian-12-standard_12.13-1_arm64.tar.zst"}


def test_one_that_is_there_is_taken_though_a_newer_one_could_be_downloaded(pve: Double, client: Client) -> None:
    pve.world.appliances["debian-12-standard_12.12-1_amd64.tar.zst"] = Template()
    assert templates.provided(client, "debian/12", "one", "x86_64", said) == f"local:vztmpl/{TEMPLATE}"
    assert downloads(pve) == 0


def test_one_that_is_offered_is_downloaded_and_told_about(pve: Double, client: Client) -> None:
    told: list[str] = []
    found = templates.provided(client, "debian/13", "one", "x86_64", lambda name, text: told.append(f"{name}: {text}"))
    assert found == f"local:vztmpl/{NEWER_TEMPLATE}"
    assert found in pve.world.storages["local"].on("pve1")
    assert told[0] == f"one: download template {NEWER_TEMPLATE} to storage local"


def test_ten_at_once_download_it_once(pve: Double, access: Access) -> None:
    pve.world.faults.slow_tasks("download", 0.2)
    clients = [Client(access) for _ in range(10)]
    with ThreadPoolExecutor(10) as pool:
        found = set(pool.map(lambda one: templates.provided(one, "debian/13", "one", "x86_64", said), clients))
    assert found == {f"local:vztmpl/{NEWER_TEMPLATE}"}
    assert downloads(pve) == 1


def test_the_files_storage_is_the_only_one(pve: Double, access: Access) -> None:
    pve.world.add_storage(Storage("iso", "dir", ("vztmpl",)))
    client = driver(access, templates="iso").client
    assert templates.provided(client, "debian/12", "one", "x86_64", said) == f"iso:vztmpl/{TEMPLATE}"
    assert templates.storages_of(driver(access).client) == ["local", "iso"]


def test_an_unknown_one_lists_those_there_and_those_offered(client: Client) -> None:
    with pytest.raises(ProviderError, match="image debian/99 not found") as caught:
        templates.provided(client, "debian/99", "one", "x86_64", said)
    assert caught.value.details == "Templates there: debian/12; offered for download: debian/13"
    assert "pveam update" in caught.value.resolution


def test_a_node_without_a_place_for_templates_says_so(pve: Double, client: Client) -> None:
    pve.world.storages["local"].content = ("iso",)
    with pytest.raises(ProviderError) as caught:
        templates.provided(client, "debian/12", "one", "x86_64", said)
    assert "pvesm set" in caught.value.resolution


def test_an_unknown_storage_is_told_in_proxmox_own_words(access: Access) -> None:
    with pytest.raises(PveError, match="storage 'nostore' does not exist"):
        templates.provided(driver(access, templates="nostore").client, "debian/12", "one", "x86_64", said)
