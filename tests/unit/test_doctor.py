"""What was seen of a host becomes a line, and a finding where it is not as it should be."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.doctor import diagnoses
from provisioner.report.doctor import diagnoses_text
from provisioner.state import Fact

GIB = 2**30


def room(free: float, total: float = 100, use: str = "disks", problem: str = "") -> dict[str, Any]:
    return {"name": "tank", "use": use, "free": int(free * GIB), "total": int(total * GIB), "problem": problem}


GOOD = {
    "answers": ("answers", {"problem": ""}, "it answers"),
    "a version": ("version", {"program": "Proxmox VE", "version": "9.2.11"}, "Proxmox VE 9.2.11"),
    "the oldest version": ("version", {"program": "Proxmox VE", "version": "8.2.2"}, "Proxmox VE 8.2.2"),
    "a version of another program": ("version", {"program": "Incus", "version": "6.0.4"}, "Incus 6.0.4"),
    "a node": ("node", {"name": "pve1", "problem": ""}, "pve1 is up and can be written to"),
    "a node that is off": (
        "members",
        {"off": ["pve3"], "is_quorate": True, "check": "provision cluster check pve"},
        "its cluster is quorate without pve3; before you power that on: provision cluster check pve",
    ),
    "room": ("storage", room(90), "tank for disks: 90.0 of 100.0 GiB free"),
    "room for templates": ("storage", room(2, 10, "templates"), "tank for templates: 2.0 of 10.0 GiB free"),
    "an image": ("image", {"name": "debian/12", "state": "there"}, "debian/12 is there"),
    "an image to be had": (
        "image",
        {"name": "debian/13", "state": "downloadable"},
        "debian/13 is downloaded by the first container that needs it",
    ),
    "a bridge": ("bridge", {"name": "vmbr0", "problem": ""}, "vmbr0 is there"),
    "rights": ("rights", {"holder": "token a@pve!b", "lacking": []}, "token a@pve!b has all that is needed"),
    "tags": ("tags", {"problem": ""}, "our tags may be set"),
    "ssh": ("ssh", {"to": "root@pve1", "problem": ""}, "root@pve1 lets us in, and pct is there"),
    "no ssh where none is needed": ("ssh", {"to": "", "problem": ""}, "not given, and not needed"),
    "a clock": ("clock", 4.9, "agrees with ours"),
    "a slow clock": ("clock", -4.9, "agrees with ours"),
    "a certificate": ("certificate", {"file": "pve-ssl.pem", "days": 30.2}, "pve-ssl.pem is good for 30 days"),
}
BAD = {
    "no answer": ("answers", {"problem": "Unable to reach it: refused", "hint": "Start it."}, "Unable to reach it"),
    "an old version": ("version", {"program": "Proxmox VE", "version": "8.1.10"}, "is older than 8.2"),
    "a very old version": ("version", {"program": "Proxmox VE", "version": "7.4-19"}, "is older than 8.2"),
    "no quorum": ("node", {"name": "pve1", "problem": "the cluster has no quorum", "hint": "pvecm"}, "no quorum"),
    "nodes that are missed": (
        "members",
        {"off": ["pve2", "pve3"], "is_quorate": False, "check": "provision cluster check pve"},
        "not quorate without pve2, pve3",
    ),
    "little room": ("storage", room(9.9), "that is little"),
    "little room on a small storage": ("storage", room(7, 20), "that is little"),
    "little room for templates": ("storage", room(0.9, 5, "templates"), "that is little"),
    "no storage": ("storage", room(0, 0, problem="no storage takes containers"), "no storage takes containers"),
    "no image": ("image", {"name": "plan9/4", "state": "missing", "hint": "There: none"}, "there is no image plan9/4"),
    "no bridge": ("bridge", {"name": "vmbr9", "problem": "no bridge vmbr9", "hint": "vmbr0"}, "no bridge vmbr9"),
    "a right too few": (
        "rights",
        {"holder": "token a@pve!b", "lacking": ["VM.Allocate on /vms", "SDN.Use on /sdn"], "hint": "pveum"},
        "token a@pve!b lacks VM.Allocate on /vms; SDN.Use on /sdn",
    ),
    "tags that may not be set": ("tags", {"problem": "the datacenter lets nobody", "hint": "pvesh set"}, "lets nobody"),
    "ssh that is refused": ("ssh", {"to": "root@pve1", "problem": "Unable to reach", "hint": "key"}, "Unable to reach"),
    "a clock ahead": ("clock", 61.2, "its clock is 61 s ahead of ours"),
    "a clock behind": ("clock", -61.2, "its clock is 61 s behind ours"),
    "a certificate at its end": ("certificate", {"file": "pve-ssl.pem", "days": 2.04}, "expires in 2.0 days"),
    "a dead certificate": ("certificate", {"file": "pve-ssl.pem", "days": -1}, "has expired"),
}


@pytest.mark.parametrize(("name", "value", "seen"), GOOD.values(), ids=GOOD)
def test_what_is_well_is_said(name: str, value: Any, seen: str) -> None:
    (found,) = diagnoses([Fact("pve", name, value)])
    assert found.finding is None
    assert (found.check.target, found.check.name, found.check.ok, found.check.message) == ("pve", name, True, seen)
    assert diagnoses_text([found]).splitlines()[0] == f"ok   pve: {name}: {seen}"
    assert "Healthy" in diagnoses_text([found])


@pytest.mark.parametrize(("name", "value", "problem"), BAD.values(), ids=BAD)
def test_what_is_not_is_a_finding_with_what_to_do(name: str, value: Any, problem: str) -> None:
    (found,) = diagnoses([Fact("pve", name, value)])
    assert not found.check.ok
    assert found.finding is not None
    assert problem in found.check.message
    assert problem in found.finding.message
    text = diagnoses_text([found])
    assert text.startswith(f"FAIL pve: {name}: ")
    assert text.endswith("1 finding.")
    assert "What to do:" in text or name == "storage"
    assert "Healthy" not in text
