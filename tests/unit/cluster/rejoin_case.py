"""A cluster of three nodes as a case file describes it: what differs from all being well; pve3 is the stale one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from provisioner.cluster.facts import (
    ClusterFacts,
    CorosyncConf,
    Device,
    Guest,
    HaState,
    Link,
    Member,
    NodeFacts,
    Peer,
    Pmxcfs,
    Quorum,
    Storage,
)
from provisioner.cluster.record import Record
from provisioner.cluster.rejoin_plan import rejoin_plan
from provisioner.cluster.rejoin_preconditions import Readiness, Situation

FOLDER = Path(__file__).parents[2] / "cases/cluster/rejoin"
CASES = sorted(one.stem for one in FOLDER.glob("*.yml"))
NODE = "pve3"
NEW, OLD = 8, 7
Told = dict[str, Any]


def read_case(name: str) -> Told:
    """The case of that name."""
    content: Told = yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
    return content


def situation(case: Told) -> Situation:
    """All that a rejoin is judged by, in that case."""
    conf, told = replace(_conf(NEW, case.get("list", {})), settings=case.get("settings", {})), case.get("node", {})
    present = ["pve1", "pve2", *([NODE] if told.get("joined") else [])]
    node = _node(conf, told)
    lead = _lead("pve1", conf, {"present": present, **case.get("lead", {})})
    other = _lead("pve2", conf, {"present": present, **case.get("other", {})})
    return Situation(
        facts=ClusterFacts("pve1", (lead, other, node)),
        node=node,
        lead=lead,
        conf=conf,
        plan=rejoin_plan(node, lead, conf, _left(case["left"]) if "left" in case else None),
        ready=Readiness(**{name: _plain(value) for name, value in case.get("ready", {}).items()}),
        saved=_guests(case.get("saved", ())),
        open_runs=tuple(Record("stale-corosync-rejoin", "lab", name, "pve1", "") for name in case.get("open_runs", ())),
        given_up=frozenset(case.get("given_up", ())),
    )


def _conf(version: int, changes: Told) -> CorosyncConf:
    members: dict[str, Told] = {f"pve{n}": {"id": n, "votes": 1, "addresses": [f"10.0.0.{n}"]} for n in (1, 2, 3)}
    for name, change in changes.items():
        members[name] = {"votes": 1, **members.get(name, {}), **change} if change else {}
    listed = (Member(name, one["id"], one["votes"], tuple(one["addresses"])) for name, one in members.items() if one)
    return CorosyncConf("lab", version, tuple(listed), f"{version:064}")


def _lead(name: str, conf: CorosyncConf, told: Told) -> NodeFacts:
    guests = {f"pve{n}": _guests(told.get("guests", {}).get(f"pve{n}", ())) for n in (1, 2, 3)}
    quorum = replace(_quorum(conf, told["present"]), **told.get("quorum", {}))
    if "device" in told:
        quorum = replace(quorum, device=Device(*told["device"]), total=quorum.total + told["device"][0])
    ha = told.get("ha", ())
    return NodeFacts(
        name=name,
        address=f"192.168.7.{name[-1]}",
        units={"corosync": "active", "pve-cluster": "active"},
        pve_conf=conf,
        local_conf=conf,
        running_version=told.get("running", conf.version),
        key_digest="key",
        database=(200, 5),
        quorum=quorum,
        joined=dict.fromkeys(quorum.present, conf.version),
        pmxcfs=_pmxcfs(name, conf),
        guests=guests,
        storages=(Storage("local-lvm", "lvmthin", is_shared=False), Storage("big", "nfs", is_shared=True)),
        vmlist={one.vmid: owner for owner, owned in guests.items() for one in owned},
        ha=None if ha == "unknown" else HaState(is_idle=not ha, lines=tuple(ha)),
        running=conf.members,
        is_writable=True,
        unread={"ha": "it did not answer in time"} if ha == "unknown" else told.get("unread", {}),
    )


def _node(conf: CorosyncConf, told: Told) -> NodeFacts:
    is_joined, has_list = told.get("joined", False), told.get("list") != "none"
    own = conf if is_joined else _conf(told.get("version", OLD), told.get("list", {}) if has_list else {})
    running = told.get("running", own.version if is_joined else None)
    return NodeFacts(
        name=NODE,
        address="192.168.7.3",
        addresses=tuple(told.get("addresses", ["127.0.0.1", "10.0.0.3", "192.168.7.3"])),
        networks=tuple(told.get("networks", ())),
        clock_offset_s=told.get("clock", 0.0),
        units={"corosync": "active" if running else "failed", "pve-cluster": told.get("pve-cluster", "active")},
        local_conf=_conf(told["file"], {}) if "file" in told else own if has_list else None,
        running_version=running,
        key_digest=told.get("key", "key"),
        quorum=_quorum(conf, [one.name for one in conf.members] if is_joined else [NODE]) if running else None,
        database=_database(told.get("database", [100, 9])),
        links=tuple(Link(n, 0, is_connected=told.get("hears", True)) for n in (1, 2)) if running else (),
        guests={NODE: _guests(told.get("guests", ()))},
        is_writable=bool(told.get("writable", is_joined)),
        unread=told.get("unread", {}),
    )


def _database(told: Any) -> tuple[int, int] | None:
    return None if told == "unknown" else (told[0], told[1])


def _quorum(conf: CorosyncConf, names: list[str]) -> Quorum:
    present = {one.nodeid: one.votes for one in conf.members if one.name in names}
    expected, total = sum(one.votes for one in conf.members), sum(present.values())
    return Quorum(total > expected // 2, expected, total, expected // 2 + 1, present)


def _pmxcfs(name: str, conf: CorosyncConf) -> Pmxcfs:
    peers = tuple(Peer(one.name, one.nodeid, one.addresses[0], is_online=True) for one in conf.members)
    return Pmxcfs(name, is_quorate=True, cluster=conf.cluster, peers=peers)


def _guests(told: Any) -> tuple[Guest, ...]:
    return tuple(_guest(one) for one in told)


def _guest(told: Told) -> Guest:
    volumes = tuple(told.get("volumes", [f"local-lvm:vm-{told['vmid']}-disk-0"]))
    return Guest(told["vmid"], "", told.get("kind", "lxc"), told.get("name", "web"), volumes, told.get("digest", "d"))


def _left(told: Told) -> Record:
    begun, plan = tuple(told["begun"]), told.get("plan", {})
    return Record(told["runbook"], "lab", NODE, "pve1", "earlier", begun=begun, plan=plan)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
