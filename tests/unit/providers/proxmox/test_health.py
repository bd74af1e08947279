"""Facts about a node, and what ``doctor`` makes of them: trouble is found, and only where there is some."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import pytest

from provisioner.doctor import Diagnosis, diagnoses
from provisioner.providers.proxmox import ProxmoxProvider
from provisioner.providers.proxmox.access import Access
from provisioner.providers.proxmox.client import Client
from provisioner.providers.proxmox.health import examine
from provisioner.values.errors import UnavailableError
from provisioner.values.state import Execution, Secret
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.storage import GIB, Storage
from tests.doubles.proxmox.world import PASSWORD
from tests.unit.providers.proxmox.plans import ROLE, limited

CHECKS = [
    "answers",
    "version",
    "node",
    "storage",
    "storage",
    "image",
    "bridge",
    "rights",
    "tags",
    "clock",
    "certificate",
    "ssh",
]


class Node:
    """A shell on a machine: its user, its pct, and what it says it is."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines or ("0", "/usr/sbin/pct", "nodes/pve1")

    def run(self, argv: Sequence[str], **_: object) -> Execution:
        """What it says."""
        assert argv[:2] == ["sh", "-c"]
        return Execution(0, "".join(f"{line}\n" for line in self.lines).encode(), b"")


class Silent:
    """A shell that leads nowhere."""

    def run(self, _argv: Sequence[str], **_: object) -> Execution:
        """The refusal."""
        raise UnavailableError(
            "Unable to reach root@pve1 by ssh", details="Permission denied", resolution="ssh-copy-id"
        )


def looked(access: Access, shell: Any = None, images: Sequence[str] = ("debian/12",), **page: Any) -> list[Diagnosis]:
    """What is found."""
    chosen = dataclasses.replace(access, ssh="root@pve1", **page)
    given: Any = shell or Node()
    return list(diagnoses(examine("pve", Client(chosen), chosen, given, images)))


def wrong(found: Sequence[Diagnosis]) -> dict[str, str]:
    """What is wrong, by the names of the checks."""
    return {one.check.name: one.check.message for one in found if not one.check.ok}


def hint(found: Sequence[Diagnosis], name: str) -> str:
    """What to do about it."""
    return next(one.finding.resolution for one in found if one.check.name == name and one.finding)


def test_a_healthy_node(access: Access) -> None:
    found = looked(access)
    assert wrong(found) == {}
    assert [one.check.name for one in found] == CHECKS
    said = {one.check.message for one in found}
    assert {"Proxmox VE 9.2.11", "pve1 is up and can be written to", "debian/12 is there", "vmbr0 is there"} <= said
    assert "local-lvm for disks: 100.0 of 100.0 GiB free" in said
    assert "token root@pam!ci has all that is needed" in said


def test_it_is_a_verb_of_the_provider(access: Access) -> None:
    facts = ProxmoxProvider("pve", access=access).examine(())
    assert [fact.check_name for fact in facts] == [name for name in CHECKS if name != "image"]
    assert not wrong(diagnoses(facts))


def test_root_itself_has_all_rights(access: Access) -> None:
    page: dict[str, Any] = {"token_id": None, "token_secret": None, "password": Secret("root", PASSWORD)}
    assert wrong(looked(access, **page)) == {}


def test_what_the_page_tells_to_grant_is_enough(pve: Double, access: Access) -> None:
    chosen = dataclasses.replace(limited(pve, access), ssh="root@pve1")
    assert wrong(diagnoses(examine("pve", Client(chosen), chosen, Node(), ["debian/12"]))) == {}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(ROLE))
def test_each_missing_right_is_named_with_its_path(pve: Double, access: Access, name: str) -> None:
    page = {"node": "pve1"} if name == "Sys.Audit" else {}
    found = looked(limited(pve, access, without=frozenset({name})), **page)
    message = wrong(found)["rights"]
    assert message.startswith("token penny@pve!lab lacks ")
    assert name in message
    assert " on /" in message
    assert "pveum acl modify /" in hint(found, "rights")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ({"token_secret": Secret("t", "00000000-0000-0000-0000-000000000000")}, "API token root@pam!ci was refused"),
        ({"token_id": "nosuch"}, "API token root@pam!nosuch was refused"),
        ({"token_id": None, "token_secret": None, "password": Secret("p", "wrong")}, "The login of root@pam"),
        ({"url": "https://127.0.0.1:1"}, "127.0.0.1:1"),
        ({"ca": None}, "certificate"),
    ],
)
def test_a_node_that_does_not_answer_is_one_finding(access: Access, page: dict[str, Any], words: str) -> None:
    found = looked(access, **page)
    assert [one.check.name for one in found] == ["answers"]
    message = wrong(found)["answers"]
    assert message.startswith("Unable to use Proxmox VE at https://")
    (finding,) = [one.finding for one in found if one.finding]
    assert words in finding.details
    assert finding.resolution


def test_an_old_version(pve: Double, access: Access) -> None:
    pve.world.nodes["pve1"].version["version"] = "8.1.4"
    assert "older than 8.2" in wrong(looked(access))["version"]


def test_a_cluster_without_quorum(pve: Double, access: Access) -> None:
    pve.take_down("pve2")
    pve.take_down("pve3")
    found = looked(access)
    assert wrong(found) == {
        "members": "its cluster is not quorate without pve2, pve3",
        "node": "the cluster has no quorum: its configuration cannot be written",
    }
    assert "pve2, pve3" in hint(found, "node")
    assert hint(found, "members") == "What is wrong there: provision cluster check pve"


def test_a_node_of_the_cluster_that_is_off_is_named_and_in_no_way(pve: Double, access: Access) -> None:
    pve.take_down("pve3")
    found = looked(access)
    assert wrong(found) == {}
    (seen,) = [one.check.message for one in found if one.check.name == "members"]
    assert "quorate without pve3" in seen
    assert seen.endswith("provision cluster check pve")


def test_a_node_that_is_not_there_or_down(pve: Double, access: Access) -> None:
    found = looked(access, node="pve9")
    assert wrong(found)["node"] == "there is no node pve9 in the cluster"
    assert hint(found, "node") == "Nodes there: pve1, pve2, pve3"
    pve.take_down("pve3")
    assert wrong(looked(access, node="pve3"))["node"] == "node pve3 is down"


def test_little_room(pve: Double, access: Access) -> None:
    pve.world.storages["local-lvm"].total = 60 * GIB
    pve.world.storages["local-lvm"].allocate("pve1", 105, 55 * GIB)
    assert wrong(looked(access)) == {"storage": "local-lvm for disks: 5.0 of 60.0 GiB free: that is little"}


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ({"storage": "nosuch"}, "there is no storage nosuch"),
        ({"storage": "local"}, "takes no containers"),
        ({"storage": "off"}, "is disabled"),
        ({"templates": "local-lvm"}, "storage local-lvm takes no templates"),
    ],
)
def test_a_storage_that_will_not_do(pve: Double, access: Access, page: dict[str, str], words: str) -> None:
    pve.world.add_storage(Storage("off", "lvmthin", ("rootdir",), enabled=False))
    found = looked(access, **page)
    assert words in wrong(found)["storage"]
    assert "pvesm set" in hint(found, "storage")


def test_images(pve: Double, access: Access) -> None:
    found = looked(access, images=["debian/12", "debian/13", "plan9/4"])
    assert wrong(found) == {"image": "there is no image plan9/4"}
    assert "There: debian/12." in hint(found, "image")
    assert "debian/13 is downloaded by the first container that needs it" in [one.check.message for one in found]
    del pve.world.storages["local"]
    assert wrong(looked(access)) == {"storage": "no storage takes templates"}


def test_a_bridge_that_is_not_there(access: Access) -> None:
    found = looked(access, bridge="vmbr9")
    assert "no bridge vmbr9" in wrong(found)["bridge"]
    assert hint(found, "bridge") == "Bridges of node pve1: vmbr0"


@pytest.mark.parametrize(("ahead_s", "words"), [(60, "ahead of"), (-60, "behind")])
def test_a_wrong_clock(pve: Double, access: Access, ahead_s: float, words: str) -> None:
    pve.world.nodes["pve1"].clock_ahead_s = ahead_s
    message = wrong(looked(access))["clock"]
    assert words in message
    assert 58 <= int(message.split(" is ")[1].split()[0]) <= 61


def test_a_slow_answer_is_no_wrong_clock(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the call took is allowed for: a node that answers late is not behind."""
    now = time.time
    ticks = iter([0.0, 30.0])
    monkeypatch.setattr("provisioner.providers.proxmox.health.time.time", lambda: now() + next(ticks, 30.0))
    assert "clock" not in wrong(looked(access))


def test_a_certificate_that_ends_soon(pve: Double, access: Access) -> None:
    pve.world.nodes["pve1"].certificate_days = 3
    found = looked(access)
    assert wrong(found) == {"certificate": "certificate pve-ssl.pem expires in 3.0 days"}
    assert "pvecm updatecerts" in hint(found, "certificate")


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        (Silent(), "Unable to reach root@pve1 by ssh"),
        (Node("1000", "/usr/sbin/pct", "nodes/pve1"), "its user is not root"),
        (Node("0", "", ""), "there is no pct"),
        (Node("0", "/usr/sbin/pct", "nodes/pve2"), "it leads to node pve2, not to pve1"),
    ],
)
def test_ssh_that_does_not_help(access: Access, shell: Any, words: str) -> None:
    found = looked(access, shell)
    assert words in wrong(found)["ssh"]
    assert hint(found, "ssh")


def test_no_ssh_is_a_finding_where_containers_are_to_live(access: Access) -> None:
    found = diagnoses(examine("pve", Client(access), access, None, ["debian/12"]))
    assert "needs ssh" in wrong(found)["ssh"]
    assert wrong(diagnoses(examine("pve", Client(access), access, None, []))) == {}
