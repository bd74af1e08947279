"""What was seen of a host becomes a line, and a finding where it is not as it should be."""

from __future__ import annotations

from typing import Literal, get_args

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.doctor.examine import diagnoses_text
from provisioner.doctor.hosts import diagnoses
from provisioner.hosts.proxmox.health import UPGRADE
from provisioner.hosts.proxmox.rights import OLDEST_WITH_DEVICES
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
    MachineState,
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


COMMAND = "provision cluster check pve"
GOOD: tuple[HostFact, ...] = (
    HostAnswers("pve"),
    HostVersion("pve", "Proxmox VE", "9.2.11", OLDEST_WITH_DEVICES, UPGRADE),
    HostVersion("pve", "Proxmox VE", "8.2.2", OLDEST_WITH_DEVICES, UPGRADE),
    HostVersion("pve", "Incus", "6.0.4"),
    NodeState("pve", "pve1"),
    ClusterMembers("pve", ("pve3",), is_quorate=True, command=COMMAND),
    room(90),
    room(2, 10, "templates"),
    ImageState("pve", "debian/12", "there"),
    ImageState("pve", "debian/13", "downloadable"),
    BridgeState("pve", "vmbr0"),
    ApiRights("pve", "token a@pve!b"),
    TagRules("pve"),
    SshState("pve", "root@pve1"),
    SshState("pve", ""),
    ClockSkew("pve", 4.9),
    ClockSkew("pve", -4.9),
    CertificateAge("pve", "pve-ssl.pem", 30.2),
    MachineState("box", "ids", "root has some"),
    MachineState("box", "proxy", "no proxy in containers", warning="Write one."),
)
BAD: tuple[HostFact, ...] = (
    HostAnswers("pve", "Unable to reach it: refused", "Start it."),
    HostVersion("pve", "Proxmox VE", "8.1.10", OLDEST_WITH_DEVICES, UPGRADE),
    HostVersion("pve", "Proxmox VE", "7.4-19", OLDEST_WITH_DEVICES, UPGRADE),
    NodeState("pve", "pve1", "the cluster has no quorum", "pvecm"),
    ClusterMembers("pve", ("pve2", "pve3"), is_quorate=False, command=COMMAND),
    room(9.9),
    room(7, 20),
    room(0.9, 5, "templates"),
    room(0, 0, problem="no storage takes containers"),
    ImageState("pve", "plan9/4", "missing", "There: none"),
    BridgeState("pve", "vmbr9", "no bridge vmbr9", "vmbr0"),
    ApiRights("pve", "token a@pve!b", ("VM.Allocate on /vms", "SDN.Use on /sdn"), "pveum"),
    TagRules("pve", "the datacenter lets nobody", "pvesh set"),
    SshState("pve", "root@pve1", "Unable to reach", "key"),
    ClockSkew("pve", 61.2),
    ClockSkew("pve", -61.2),
    CertificateAge("pve", "pve-ssl.pem", 2.04),
    CertificateAge("pve", "pve-ssl.pem", -1),
    MachineState("box", "names", "it answers", "no DNS", "Start it again.", "refused"),
)


@pytest.mark.parametrize(("facts", "is_well"), [(GOOD, True), (BAD, False)], ids=["well", "not well"])
def test_every_kind_of_fact_is_a_line_and_a_finding_where_it_is_not_well(
    facts: tuple[HostFact, ...], *, is_well: bool, snapshot: SnapshotAssertion
) -> None:
    assert {type(fact) for fact in facts} == set(get_args(HostFact))
    for fact in facts:
        (found,) = diagnoses([fact])
        assert found.check.ok == is_well
        assert (found.finding is None) == is_well
    assert diagnoses_text(diagnoses(facts)) == snapshot
