"""What was seen of a host becomes a line, and a finding where it is not as it should be."""

from __future__ import annotations

from typing import Literal, get_args

import pytest

from provisioner.doctor import diagnoses
from provisioner.report.doctor import diagnoses_text
from provisioner.values.host_facts import (
    ApiRights,
    BridgeState,
    CertificateAge,
    ClockSkew,
    ClusterMembers,
    HostAnswers,
    HostFact,
    HostVersion,
    ImageState,
    NodeState,
    SshState,
    StorageRoom,
    TagRules,
)

GIB = 2**30


def room(
    free: float, total: float = 100, use: Literal["disks", "templates"] = "disks", problem: str = ""
) -> StorageRoom:
    return StorageRoom("pve", "tank", use, int(free * GIB), int(total * GIB), problem)


GOOD: dict[str, tuple[str, HostFact, str]] = {
    "answers": ("answers", HostAnswers("pve"), "it answers"),
    "a version": ("version", HostVersion("pve", "Proxmox VE", "9.2.11"), "Proxmox VE 9.2.11"),
    "the oldest version": ("version", HostVersion("pve", "Proxmox VE", "8.2.2"), "Proxmox VE 8.2.2"),
    "a version of another program": ("version", HostVersion("pve", "Incus", "6.0.4"), "Incus 6.0.4"),
    "a node": ("node", NodeState("pve", "pve1"), "pve1 is up and can be written to"),
    "a node that is off": (
        "members",
        ClusterMembers("pve", ("pve3",), is_quorate=True, command="provision cluster check pve"),
        "its cluster is quorate without pve3; before you power that on: provision cluster check pve",
    ),
    "room": ("storage", room(90), "tank for disks: 90.0 of 100.0 GiB free"),
    "room for templates": ("storage", room(2, 10, "templates"), "tank for templates: 2.0 of 10.0 GiB free"),
    "an image": ("image", ImageState("pve", "debian/12", "there"), "debian/12 is there"),
    "an image to be had": (
        "image",
        ImageState("pve", "debian/13", "downloadable"),
        "debian/13 is downloaded by the first container that needs it",
    ),
    "a bridge": ("bridge", BridgeState("pve", "vmbr0"), "vmbr0 is there"),
    "rights": ("rights", ApiRights("pve", "token a@pve!b"), "token a@pve!b has all that is needed"),
    "tags": ("tags", TagRules("pve"), "our tags may be set"),
    "ssh": ("ssh", SshState("pve", "root@pve1"), "root@pve1 lets us in, and pct is there"),
    "no ssh where none is needed": ("ssh", SshState("pve", ""), "not given, and not needed"),
    "a clock": ("clock", ClockSkew("pve", 4.9), "agrees with ours"),
    "a slow clock": ("clock", ClockSkew("pve", -4.9), "agrees with ours"),
    "a certificate": ("certificate", CertificateAge("pve", "pve-ssl.pem", 30.2), "pve-ssl.pem is good for 30 days"),
}
BAD: dict[str, tuple[str, HostFact, str]] = {
    "no answer": ("answers", HostAnswers("pve", "Unable to reach it: refused", "Start it."), "Unable to reach it"),
    "an old version": ("version", HostVersion("pve", "Proxmox VE", "8.1.10"), "is older than 8.2"),
    "a very old version": ("version", HostVersion("pve", "Proxmox VE", "7.4-19"), "is older than 8.2"),
    "no quorum": ("node", NodeState("pve", "pve1", "the cluster has no quorum", "pvecm"), "no quorum"),
    "nodes that are missed": (
        "members",
        ClusterMembers("pve", ("pve2", "pve3"), is_quorate=False, command="provision cluster check pve"),
        "not quorate without pve2, pve3",
    ),
    "little room": ("storage", room(9.9), "that is little"),
    "little room on a small storage": ("storage", room(7, 20), "that is little"),
    "little room for templates": ("storage", room(0.9, 5, "templates"), "that is little"),
    "no storage": ("storage", room(0, 0, problem="no storage takes containers"), "no storage takes containers"),
    "no image": ("image", ImageState("pve", "plan9/4", "missing", "There: none"), "there is no image plan9/4"),
    "no bridge": ("bridge", BridgeState("pve", "vmbr9", "no bridge vmbr9", "vmbr0"), "no bridge vmbr9"),
    "a right too few": (
        "rights",
        ApiRights("pve", "token a@pve!b", ("VM.Allocate on /vms", "SDN.Use on /sdn"), "pveum"),
        "token a@pve!b lacks VM.Allocate on /vms; SDN.Use on /sdn",
    ),
    "tags that may not be set": ("tags", TagRules("pve", "the datacenter lets nobody", "pvesh set"), "lets nobody"),
    "ssh that is refused": ("ssh", SshState("pve", "root@pve1", "Unable to reach", "key"), "Unable to reach"),
    "a clock ahead": ("clock", ClockSkew("pve", 61.2), "its clock is 61 s ahead of ours"),
    "a clock behind": ("clock", ClockSkew("pve", -61.2), "its clock is 61 s behind ours"),
    "a certificate at its end": ("certificate", CertificateAge("pve", "pve-ssl.pem", 2.04), "expires in 2.0 days"),
    "a dead certificate": ("certificate", CertificateAge("pve", "pve-ssl.pem", -1), "has expired"),
}


def test_every_kind_of_fact_is_judged_here() -> None:
    assert {type(fact) for _, fact, _ in GOOD.values()} == set(get_args(HostFact))
    assert {type(fact) for _, fact, _ in BAD.values()} == set(get_args(HostFact))


@pytest.mark.parametrize(("name", "fact", "seen"), GOOD.values(), ids=GOOD)
def test_what_is_well_is_said(name: str, fact: HostFact, seen: str) -> None:
    (found,) = diagnoses([fact])
    assert found.finding is None
    assert (found.check.target, found.check.name, found.check.ok, found.check.message) == ("pve", name, True, seen)
    assert diagnoses_text([found]).splitlines()[0] == f"ok   pve: {name}: {seen}"
    assert "Healthy" in diagnoses_text([found])


@pytest.mark.parametrize(("name", "fact", "problem"), BAD.values(), ids=BAD)
def test_what_is_not_is_a_finding_with_what_to_do(name: str, fact: HostFact, problem: str) -> None:
    (found,) = diagnoses([fact])
    assert not found.check.ok
    assert found.finding is not None
    assert problem in found.check.message
    assert problem in found.finding.message
    text = diagnoses_text([found])
    assert text.startswith(f"FAIL pve: {name}: ")
    assert text.endswith("1 finding.")
    assert "What to do:" in text or name == "storage"
    assert "Healthy" not in text
