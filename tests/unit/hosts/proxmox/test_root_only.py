"""What only root@pam itself may write is known before, and written by a way that there is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from provisioner.hosts.proxmox import rights
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.failures import PveError
from provisioner.values.errors import ProviderError
from provisioner.values.state import Execution, Secret
from tests.case_files import read_cases
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.world import PASSWORD
from tests.unit.hosts.proxmox.plans import there, wanted

CASES = read_cases("hosts/proxmox/root_only")

DEVICE = {"path": "/dev/null"}

ROOT_ONLY = CASES["root only"]
ANYBODYS = {
    "nesting": ("features", "nesting=1", None),
    "no nesting any more": ("features", "nesting=0", "nesting=1"),
    "the same features again": ("features", "keyctl=1,nesting=1", "nesting=1,keyctl=1"),
    "no features where there was only nesting": ("features", None, "nesting=1"),
    "a disk on a storage": ("mp0", "local-lvm:8,mp=/data", None),
    "no folder of the host any more": ("mp0", None, "/srv/models,mp=/srv/models"),
    "memory": ("memory", "1024", "512"),
}


@pytest.mark.parametrize("case", ROOT_ONLY.values(), ids=ROOT_ONLY)
def test_what_only_root_may_write(case: tuple[str, str | None, str | None]) -> None:
    assert rights.needs_root(*case)


@pytest.mark.parametrize("case", ANYBODYS.values(), ids=ANYBODYS)
def test_what_a_token_may_write(case: tuple[str, str | None, str | None]) -> None:
    assert not rights.needs_root(*case)


def put(pve: Double, client: Client, case: tuple[str, str | None, str | None]) -> None:
    """What a case says, asked of Proxmox."""
    option, value, before = case
    pve.world.nodes["pve1"].devices |= {"/dev/dri/renderD128": (226, 128), "/dev/sdb": (8, 16)}
    pve.world.add_guest(200, "pve1", **({} if before is None else {option: before}))
    form: dict[str, Any] = {"delete": option} if value is None else {option: value}
    client.put("nodes", "pve1", "lxc", 200, "config", **form)


@pytest.mark.parametrize("case", ROOT_ONLY.values(), ids=ROOT_ONLY)
def test_proxmox_refuses_it_to_a_token_of_root(
    pve: Double, client: Client, case: tuple[str, str | None, str | None]
) -> None:
    """Facts §5: dev[n] to set and to delete, features beyond nesting, bind mounts, hook scripts: 403."""
    with pytest.raises(PveError, match=r"only allowed for root@pam") as caught:
        put(pve, client, case)
    assert caught.value.status == 403


@pytest.mark.parametrize("case", ANYBODYS.values(), ids=ANYBODYS)
def test_proxmox_takes_it_from_a_token(pve: Double, client: Client, case: tuple[str, str | None, str | None]) -> None:
    put(pve, client, case)


def test_every_feature_of_a_privileged_container_is_roots() -> None:
    assert rights.needs_root("features", "nesting=1", None, unprivileged=False)
    privileged = wanted(proxmox={"unprivileged": False})
    assert rights.root_only_settings(None, privileged) == ("features",)
    assert rights.root_only_settings(there(privileged), privileged) == ()


def test_a_new_container_gets_nesting_at_once_and_the_rest_by_root() -> None:
    ordinary, rooted = rights.split_root_only({"features": "keyctl=1,nesting=1", "memory": "512"}, (), {})
    assert ordinary.options == {"features": "nesting=1", "memory": "512"}
    assert rooted.options == {"features": "keyctl=1,nesting=1"}
    ordinary, rooted = rights.split_root_only({"features": "nesting=1"}, (), {}, unprivileged=False)
    assert not ordinary
    assert rooted.options == {"features": "nesting=1"}


def test_a_change_is_divided_too() -> None:
    current = {"dev0": "/dev/null", "features": "nesting=1", "memory": "512", "swap": "0"}
    ordinary, rooted = rights.split_root_only({"memory": "1024"}, ["dev0", "swap"], current)
    assert (ordinary.options, ordinary.delete) == ({"memory": "1024"}, ("swap",))
    assert (rooted.options, rooted.delete) == ({}, ("dev0",))


def test_subjects_of_a_plan_are_in_the_words_of_the_file() -> None:
    plain = wanted()
    assert rights.root_only_settings(None, plain) == ()
    special = wanted(proxmox={"devices": [DEVICE], "features": ["keyctl"]})
    assert rights.root_only_settings(None, special) == ("devices", "features")
    assert rights.root_only_settings(there(special), special) == ()
    assert rights.root_only_settings(there(special), plain) == ("devices", "features")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"ssh": "root@pve1"}, "ssh"),
        ({"password": Secret("p", PASSWORD)}, "ticket"),
        ({"password": Secret("p", PASSWORD), "ssh": "root@pve1"}, "ticket"),
        ({"user": "penny@pve", "password": Secret("p", PASSWORD)}, ""),
    ],
)
def test_the_way_follows_from_the_hosts_page(access: Access, changes: dict[str, Any], expected: str) -> None:
    assert rights.root_way(dataclasses.replace(access, **changes)) == expected


def test_by_the_ticket(pve: Double, client_of: Callable[..., Client]) -> None:
    guest = pve.world.add_guest(105, "pve1", dev1="/dev/null")
    client = client_of(password=Secret("root", PASSWORD))
    rights.write_as_root(client, None, 105, {"dev0": "/dev/fuse,mode=0666", "features": "keyctl=1,nesting=1"}, ["dev1"])
    assert guest.config["dev0"] == "/dev/fuse,mode=0666"
    assert guest.config["features"] == "keyctl=1,nesting=1"
    assert "dev1" not in guest.config


class Node:
    """A shell on a node that answers in one way, and remembers what it was asked."""

    def __init__(self, returncode: int = 0, said: str = "") -> None:
        self.calls: list[list[str]] = []
        self._answer = Execution(returncode, b"", said.encode())

    def run(self, argv: Sequence[str], **_: object) -> Execution:
        """The answer."""
        self.calls.append(list(argv))
        return self._answer


def test_over_ssh(client_of: Callable[..., Client]) -> None:
    node = Node()
    client = client_of(ssh="root@pve1")
    rights.write_as_root(client, node, 105, {"dev0": "/dev/fuse"}, ["dev1", "dev2"])  # type: ignore[arg-type]
    assert node.calls == [["pct", "set", "105", "--dev0", "/dev/fuse", "--delete", "dev1,dev2"]]
    rights.write_as_root(client, node, 105, {})  # type: ignore[arg-type]
    assert len(node.calls) == 1


def test_what_pct_says_is_told(client_of: Callable[..., Client]) -> None:
    node = Node(255, "Configuration file 'nodes/pve2/lxc/105.conf' does not exist")
    with pytest.raises(ProviderError, match="Unable to set dev0 of CT 105 over ssh") as caught:
        rights.write_as_root(client_of(ssh="root@pve2"), node, 105, {"dev0": "/dev/fuse"})  # type: ignore[arg-type]
    assert "nodes/pve2/lxc/105.conf" in caught.value.details
    assert "the node itself" in caught.value.resolution


def test_a_pct_that_knows_no_devices_is_told_by_its_age(client_of: Callable[..., Client]) -> None:
    """What the program of 8.1 says."""
    node = Node(255, "Unknown option: dev0\n400 unable to parse option\npct set <vmid> [OPTIONS]")
    with pytest.raises(ProviderError, match="Unable to set dev0 of CT 105 over ssh") as caught:
        rights.write_as_root(client_of(ssh="root@pve1"), node, 105, {"dev0": "/dev/fuse"})  # type: ignore[arg-type]
    assert "older than Proxmox VE 8.2" in caught.value.resolution


def test_by_no_way(client: Client) -> None:
    with pytest.raises(ProviderError, match="only root@pam itself may") as caught:
        rights.write_as_root(client, None, 105, {"dev0": "/dev/fuse"})
    assert "ssh: root@NODE" in caught.value.resolution
