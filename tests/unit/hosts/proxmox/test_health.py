"""Facts about a node, and what ``doctor`` makes of them: trouble is found, and only where there is some."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.doctor.diagnosis import Diagnosis
from provisioner.doctor.examine import diagnoses_text
from provisioner.doctor.hosts import diagnoses
from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.health import examine
from provisioner.values.errors import UnavailableError
from provisioner.values.state import Execution, Secret
from tests.case_files import read_cases
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.storage import GIB, Storage
from tests.doubles.proxmox.world import PASSWORD
from tests.unit.hosts.proxmox.plans import ROLE, down, limited

CASES = read_cases("hosts/proxmox/health")

CHECKS = CASES["checks"]


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
    return list(diagnoses(examine("pve", Client(chosen), given, images, "homelab")))


def wrong(found: Sequence[Diagnosis]) -> dict[str, str]:
    """What is wrong, by the names of the checks."""
    return {one.check.name: one.check.message for one in found if not one.check.ok}


def hint(found: Sequence[Diagnosis], name: str) -> str:
    """What to do about it."""
    return next(one.finding.resolution for one in found if one.check.name == name and one.finding)


def test_it_is_a_verb_of_the_provider(access: Access) -> None:
    facts = ProxmoxProvider("pve", access=access).examine((), "homelab")
    assert [fact.check_name for fact in facts] == [name for name in CHECKS if name != "image"]
    assert not wrong(diagnoses(facts))


def test_what_the_page_tells_to_grant_is_enough(pve: Double, access: Access) -> None:
    chosen = dataclasses.replace(limited(pve, access), ssh="root@pve1")
    assert wrong(diagnoses(examine("pve", Client(chosen), Node(), ["debian/12"], "homelab"))) == {}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(ROLE))
def test_each_missing_right_is_named_with_its_path(pve: Double, access: Access, name: str) -> None:
    page = {"node": "pve1"} if name == "Sys.Audit" else {}
    found = looked(limited(pve, access, without=frozenset({name})), **page)
    message = wrong(found)["rights"]
    assert message.startswith("token penny@pve!lab lacks ")
    assert name in message
    assert " on /" in message
    assert "pveum acl modify /" in hint(found, "rights")


def little_room(pve: Double) -> None:
    pve.world.storages["local-lvm"].total = 60 * GIB
    pve.world.storages["local-lvm"].allocate("pve1", 105, 55 * GIB)


def with_storage_off(pve: Double) -> None:
    pve.world.add_storage(Storage("off", "lvmthin", ("rootdir",), enabled=False))


WITHOUT_TOKEN = {"token_id": None, "token_secret": None}
PREPARED: dict[str, tuple[set[str], Callable[[Double], object], dict[str, Any]]] = {
    "healthy": (set(), down(), {"images": ["debian/12", "debian/13"]}),
    "root itself": (set(), down(), {**WITHOUT_TOKEN, "password": Secret("root", PASSWORD)}),
    "a wrong token": ({"answers"}, down(), {"token_secret": Secret("t", "00000000-0000-0000-0000-000000000000")}),
    "no such token": ({"answers"}, down(), {"token_id": "nosuch"}),
    "a wrong password": ({"answers"}, down(), {**WITHOUT_TOKEN, "password": Secret("p", "wrong")}),
    "an old version": (
        {"version"}, lambda pve: pve.world.nodes["pve1"].version.update(version="8.1.4"), {},
    ),
    "no quorum": ({"members", "node"}, down("pve2", "pve3"), {}),
    "one node is off": (set(), down("pve3"), {}),
    "no such node": ({"node", "ssh"}, down(), {"node": "pve9"}),
    "a node that is down": ({"node", "ssh"}, down("pve3"), {"node": "pve3"}),
    "little room": ({"storage"}, little_room, {}),
    "no such storage": ({"storage"}, down(), {"storage": "nosuch"}),
    "a storage without containers": ({"storage"}, down(), {"storage": "local"}),
    "a storage that is off": ({"storage"}, with_storage_off, {"storage": "off"}),
    "a storage without templates": ({"storage"}, down(), {"templates": "local-lvm"}),
    "no storage for templates": ({"storage"}, lambda pve: pve.world.storages.pop("local"), {}),
    "no such image": ({"image"}, down(), {"images": ["debian/12", "plan9/4"]}),
    "no such bridge": ({"bridge"}, down(), {"bridge": "vmbr9"}),
    "a certificate that ends soon": (
        {"certificate"}, lambda pve: setattr(pve.world.nodes["pve1"], "certificate_days", 3), {},
    ),
    "ssh leads nowhere": ({"ssh"}, down(), {"shell": Silent()}),
    "ssh of another user": ({"ssh"}, down(), {"shell": Node("1000", "/usr/sbin/pct", "nodes/pve1")}),
    "ssh without pct": ({"ssh"}, down(), {"shell": Node("0", "", "")}),
    "ssh to another node": ({"ssh"}, down(), {"shell": Node("0", "/usr/sbin/pct", "nodes/pve2")}),
}  # fmt: skip


@pytest.mark.parametrize("case", PREPARED.values(), ids=PREPARED)
def test_trouble_is_found_and_only_where_there_is_some(
    pve: Double,
    access: Access,
    case: tuple[set[str], Callable[[Double], object], dict[str, Any]],
    snapshot: SnapshotAssertion,
) -> None:
    names, prepare, page = case
    prepare(pve)
    found = looked(access, **page)
    assert {*wrong(found)} == names
    if not names & {"answers", "node"}:
        assert [one.check.name for one in found if one.check.name not in ("members", "image")] == [
            name for name in CHECKS if name != "image"
        ]
    assert diagnoses_text(found).replace(pve.url, "https://pve1:8006") == snapshot


@pytest.mark.parametrize("page", [{"url": "https://127.0.0.1:1"}, {"ca": None}])
def test_a_node_that_does_not_answer_is_one_finding(access: Access, page: dict[str, Any]) -> None:
    (found,) = looked(access, **page)
    assert found.check.message.startswith("Unable to use Proxmox VE at https://")
    assert found.finding is not None
    assert ("certificate" if "ca" in page else "127.0.0.1:1") in found.finding.details
    assert found.finding.resolution


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
    monkeypatch.setattr("provisioner.hosts.proxmox.health.time.time", lambda: now() + next(ticks, 30.0))
    assert "clock" not in wrong(looked(access))


def test_no_ssh_is_a_finding_where_containers_are_to_live(access: Access) -> None:
    found = diagnoses(examine("pve", Client(access), None, ["debian/12"], "homelab"))
    assert "needs ssh" in wrong(found)["ssh"]
    assert wrong(diagnoses(examine("pve", Client(access), None, [], "homelab"))) == {}
