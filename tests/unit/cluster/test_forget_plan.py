"""Forgetting a node over data cases: a file in ``tests/cases/cluster/forget`` is a cluster, and what the user said.

The cluster has the members pve1 (the lead, asked), pve2 and pve3; a case changes what it names: ``silent`` (members
that do not answer), ``directories`` (more of them in ``/etc/pve/nodes``), ``guests`` (by node), ``lists`` (members by
list), ``lead`` (facts of the lead), ``signs``, ``leftovers``, ``wish``, ``strangers`` (no
members, and they answer); then ``kind``, ``runbooks``, ``objections``,
``fates`` or ``refused`` are what follows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.cluster.facts import (
    ClusterFacts,
    CorosyncConf,
    Guest,
    GuestReference,
    HaState,
    Member,
    NodeFacts,
    Peer,
    Pmxcfs,
    Quorum,
    Sign,
    Silent,
    Storage,
)
from provisioner.cluster.forget_plan import (
    ForgetOptions,
    ForgetPlan,
    Kind,
    Leftovers,
    StorageChange,
    Target,
    addresses_to_try,
    leftovers_from,
    make_forget_plan,
    storage_changes,
    target_of,
)
from provisioner.values import paths
from provisioner.values.errors import InputError, PreflightError
from tests.case_files import read_cases
from tests.cluster_facts import cluster, members

CASES = sorted((Path(__file__).parents[2] / "cases/cluster/forget").glob("*.yml"))


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
    quorum = replace(lead.quorum, **changes.get("quorum", {}))
    lead = replace(lead, quorum=replace(quorum, is_quorate=changes.get("quorate", True)))
    if "writable" in changes:
        lead = replace(lead, is_writable=changes["writable"])
    if "ha" in changes:
        lead = replace(lead, ha=None if changes["ha"] == "unknown" else HaState(**changes["ha"]))
    if "guest_references" in changes:
        rows = changes["guest_references"]
        found = tuple(GuestReference(file, kind, name, tuple(entries)) for file, kind, name, entries in rows)
        lead = replace(lead, guest_references=found)
    if "joined" in changes:
        lead = replace(lead, joined=dict(changes["joined"]))
    if changes.get("unclustered"):
        lead = replace(lead, pve_conf=None, local_conf=None, quorum=None, pmxcfs=Pmxcfs("pve1"), joined={})
    return lead


def _leftovers(case: dict[str, Any]) -> Leftovers:
    answer = "\n".join("\t".join(row) for row in case.get("leftovers", []))
    return leftovers_from(answer, case["node"])


def _outcome(case: dict[str, Any]) -> ForgetPlan:
    facts, leftovers = _facts(case), _leftovers(case)
    target = target_of(facts, case["node"], leftovers, case.get("forgotten", ()))
    quiet = [{"address": one, "how": "ssh", "is_alive": False} for one in target.addresses]
    signs = [Sign(**one) for one in case.get("signs", quiet)]
    return make_forget_plan(facts, target, ForgetOptions(case["node"], **case.get("wish", {})), leftovers, signs)


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
    commands = [one.command for one in outcome.guest_references]
    assert commands == case.get("commands", [])
    assert [[one.storage, *one.nodes] for one in outcome.storages] == case.get("storages", [])


def test_there_are_cases() -> None:
    assert len(CASES) > 20


LEFTOVERS = read_cases("cluster/leftovers")


ANSWER: str = LEFTOVERS["answer"]


def test_only_the_node_s_own_keys_are_its_own() -> None:
    found = leftovers_from(ANSWER, "pve3")
    assert found.keys == ("SHA256:ccc", "SHA256:ddd")
    assert found.host_names == ("pve3", "10.0.0.3")
    assert found.owners == {"pve1", "pve3", "pve33"}
    assert not found.is_clean
    assert not found.has_qdevice
    assert leftovers_from("qdevice\n", "pve3") == Leftovers(has_qdevice=True)


def test_references_alone_are_for_a_person() -> None:
    found = leftovers_from("line\tstorage.cfg\tnfs: big\tnodes pve3\n", "pve3")
    assert found.is_clean
    assert [one.command for one in found.references] == ["pvesm remove big"]


@pytest.mark.parametrize(("file", "section", "line", "command"), LEFTOVERS["each line comes with what to type"])
def test_each_line_comes_with_what_to_type(file: str, section: str, line: str, command: str) -> None:
    (reference,) = leftovers_from(f"line\t{file}\t{section}\t  {line}\n", "pve3").references
    assert (reference.file, reference.line, reference.command) == (file, line, command)


def test_a_replication_job_is_one_of_its_own_kind() -> None:
    found = leftovers_from(ANSWER, "pve3")
    assert [(one.name, one.line) for one in found.replication] == [("100-0", "target pve3")]


def test_a_storage_s_list_gets_shorter_and_never_empty() -> None:
    storages = [
        Storage("everywhere", "dir", is_shared=False),
        Storage("two", "nfs", is_shared=True, nodes=("pve1", "pve3")),
        Storage("only", "zfspool", is_shared=False, nodes=("pve3",)),
        Storage("others", "nfs", is_shared=True, nodes=("pve1", "pve33")),
    ]
    assert storage_changes(storages, "pve3") == (StorageChange("two", ("pve1",)),)


TIMEOUT_S = 60


GHOST = Target("pve9", Kind.GHOST)


FACTS = cluster()


def knowing() -> ClusterFacts:
    """One node has an older list of its own, and packets came from where the ghost was."""
    old = CorosyncConf("homelab", 5, (*members(3), Member("pve9", 9, 1, ("10.0.0.9", "10.0.0.2"))))
    first = replace(FACTS.nodes[0], local_conf=old)
    return replace(FACTS, nodes=(first, *FACTS.nodes[1:]), silent=(Silent("pve9", "10.8.0.9", "timed out"),))


def test_a_ghost_is_looked_for_at_every_address_that_anybody_knows() -> None:
    assert addresses_to_try(knowing(), GHOST, ("192.168.7.9", "10.0.0.9")) == ("10.8.0.9", "10.0.0.9", "192.168.7.9")


def test_the_addresses_of_others_and_the_machine_itself_are_no_sign_of_it() -> None:
    assert addresses_to_try(FACTS, GHOST, ("10.0.0.2", "127.0.0.1", "::1")) == ()


def test_a_members_own_addresses_come_first() -> None:
    target = Target("pve3", Kind.MEMBER, ("10.0.0.3",), 3)
    assert addresses_to_try(cluster(off=("pve3",)), target, ("192.168.7.3",)) == ("10.0.0.3", "192.168.7.3")


@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl")
def test_the_script_reads_the_name_and_the_certificate(tmp_path: Path) -> None:
    folder = tmp_path / "localhost"
    folder.mkdir()
    names = "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost,IP:192.0.2.9,IP:2001:db8::9,DNS:pve9"
    call = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=pve9", "-addext", names]
    call += ["-keyout", os.devnull, "-out", str(folder / "pve-ssl.pem")]
    subprocess.run(call, check=True, capture_output=True, timeout=TIMEOUT_S)
    script = (paths.data() / "cluster" / "addresses.sh").read_text(encoding="utf-8")
    script = script.replace("/etc/pve/nodes", str(tmp_path))
    said = subprocess.run(
        ["sh", "-c", script, "sh", "localhost"], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout
    assert {"127.0.0.1", "192.0.2.9", "2001:DB8:0:0:0:0:0:9"} <= set(said.split())
    nobody = subprocess.run(
        ["sh", "-c", script, "sh", "no-such-node.invalid"], capture_output=True, check=True, timeout=TIMEOUT_S
    )
    assert nobody.stdout == b""
