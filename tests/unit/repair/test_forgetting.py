"""Forgetting a node over data cases: a file in ``tests/cases/forgetting`` is a cluster, and what the user said.

The cluster has the members pve1 (the lead, asked), pve2 and pve3; a case changes what it names: ``silent`` (members
that do not answer), ``directories`` (more of them in ``/etc/pve/nodes``), ``guests`` (by node), ``lists`` (members by
list), ``lead`` (facts of the lead), ``signs``, ``leftovers``, ``wish``, ``strangers`` (no
members, and they answer); then ``kind``, ``runbooks``, ``objections``,
``fates`` or ``refused`` are what follows.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.repair.facts import (
    ClusterFacts,
    CorosyncConf,
    Guest,
    HaState,
    Member,
    NodeFacts,
    Peer,
    Pmxcfs,
    Quorum,
    Silent,
    Storage,
)
from provisioner.repair.forgetting import Forgetting, Sign, Wish, target_of
from provisioner.repair.leftovers import Leftovers, leftovers_from
from provisioner.repair.objections import make_forgetting
from provisioner.values.errors import InputError, PreflightError

CASES = sorted((Path(__file__).parents[2] / "cases" / "forgetting").glob("*.yml"))
MEMBERS = ("pve1", "pve2", "pve3")
STORAGES = (
    Storage("local-lvm", "lvmthin", is_shared=False),
    Storage("big", "nfs", is_shared=True, nodes=("pve1", "pve3")),
    Storage("own", "zfspool", is_shared=False, nodes=("pve3",)),
)


def _address(name: str) -> str:
    return f"10.0.0.{name.removeprefix('pve')}"


def _facts(case: dict[str, Any]) -> ClusterFacts:
    lists = {"conf": MEMBERS, "peers": MEMBERS, **case.get("lists", {})}
    silent = case.get("silent", [])
    ids = {name: number for number, name in enumerate(MEMBERS, 1)}
    running = [name for name in MEMBERS if name not in silent]
    guests = {
        name: tuple(
            Guest(**{"node": name, "kind": "lxc", **one, "volumes": tuple(one.get("volumes", ()))}) for one in listed
        )
        for name, listed in case.get("guests", {}).items()
    }
    directories = {name: guests.get(name, ()) for name in (*MEMBERS, *case.get("directories", []), *guests)}
    lead = NodeFacts(
        "pve1",
        "10.0.0.1",
        pve_conf=CorosyncConf("home", 4, tuple(Member(one, ids[one], 1, (_address(one),)) for one in lists["conf"])),
        running_version=4,
        quorum=Quorum(is_quorate=True, expected=3, total=2, needed=2, present={ids[one]: 1 for one in running}),
        joined={ids[one]: 4 for one in running},
        pmxcfs=Pmxcfs(
            "pve1", is_quorate=True, cluster="home",
            peers=tuple(Peer(one, ids[one], _address(one), is_online=one in running) for one in lists["peers"]),
        ),
        guests=directories,
        storages=STORAGES,
        ha=HaState(),
        is_writable=True,
    )  # fmt: skip
    others = [NodeFacts(one, _address(one), pve_conf=lead.pve_conf) for one in running if one != "pve1"]
    others += [NodeFacts(one, _address(one), local_conf=lead.pve_conf) for one in case.get("strangers", [])]
    changed = _changed(lead, case.get("lead", {}))
    return ClusterFacts("pve1", (changed, *others), tuple(Silent(one, _address(one), "timed out") for one in silent))


def _changed(lead: NodeFacts, changes: dict[str, Any]) -> NodeFacts:
    assert lead.quorum is not None
    if "quorate" in changes:
        lead = replace(lead, quorum=replace(lead.quorum, is_quorate=changes["quorate"]))
    if "writable" in changes:
        lead = replace(lead, is_writable=changes["writable"])
    if "ha" in changes:
        lead = replace(lead, ha=None if changes["ha"] == "unknown" else HaState(**changes["ha"]))
    if "joined" in changes:
        lead = replace(lead, joined=dict(changes["joined"]))
    if changes.get("unclustered"):
        lead = replace(lead, pve_conf=None, local_conf=None, quorum=None, pmxcfs=Pmxcfs("pve1"), joined={})
    return lead


def _leftovers(case: dict[str, Any]) -> Leftovers:
    answer = "\n".join("\t".join(row) for row in case.get("leftovers", []))
    return leftovers_from(answer, case["node"])


def _outcome(case: dict[str, Any]) -> Forgetting:
    facts, leftovers = _facts(case), _leftovers(case)
    target = target_of(facts, case["node"], leftovers, case.get("forgotten", ()))
    quiet = [{"address": one, "how": "ssh", "is_alive": False} for one in target.addresses]
    signs = [Sign(**one) for one in case.get("signs", quiet)]
    return make_forgetting(facts, target, Wish(case["node"], **case.get("wish", {})), leftovers, signs)


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_case(file: Path) -> None:
    case = yaml.safe_load(file.read_text(encoding="utf-8"))
    if "refused" in case:
        wanted = {"usage": InputError, "preflight": PreflightError}[case["refused"]["as"]]
        with pytest.raises(wanted) as caught:
            _outcome(case)
        assert case["refused"]["says"] in str(caught.value)
        return
    outcome = _outcome(case)
    objections = case.get("objections", [])
    assert outcome.target.kind.value == case["kind"]
    assert len(outcome.objections) == len(objections), outcome.objections
    for said, wanted_words in zip(outcome.objections, objections, strict=True):
        assert wanted_words in said
    if not objections:
        assert list(outcome.runbooks) == case["runbooks"]
    fates = [
        {
            "vmid": one.guest.vmid,
            "to": one.to,
            **({"archived": True} if one.is_archived else {}),
            "disks": {name: fate.name.lower() for name, fate in one.disks},
        }
        for one in outcome.guests
    ]
    assert fates == case.get("fates", fates)
    assert [[one.storage, *one.nodes] for one in outcome.storages] == case.get("storages", [])


def test_there_are_cases() -> None:
    assert len(CASES) > 20
