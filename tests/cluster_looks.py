"""Whole answers of ``look.sh`` from made-up clusters: what the nodes of a state would have written, for tests.

The words are those of corosync 3.1 and Proxmox VE 9.2. All is well unless a state says otherwise:

``nodes``: their number, pve1 at 10.0.0.1 and so on. ``votes``: of each. ``links``: 2 gives each node 10.1.0.N, too.
``members``: name → settings of its entry that differ. ``quorum``, ``totem``: further settings of those sections.
``device``: the votes that a QDevice casts (of 1), or ``absent`` where its daemon does not run; ``device_of``: the
device's most. ``away``: members that are switched off. ``unheard``: members that are joined and do not answer ssh.
``whys``: name → what comes of asking one that is silent, and what to do about its host key.
``parts``: the names in each partition. ``down``: [link, name, name]. ``expected``: the votes that the running corosync
expects. ``waits``: it has not seen all members since it started. ``counted``: votes that corosync counts, by name.
``guests``: name → [VMID, …]. ``nodes_say``: name → sections that are other ones, and ``hostname``, ``totem``, ``dead``,
``addresses``, ``fresh`` (installed anew). ``all_say``: sections of all nodes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from provisioner.cluster.facts import ClusterFacts, Silent
from provisioner.cluster.read_node import read_node
from tests.corosync_captures import look_text

VERSION = 7
State = Mapping[str, Any]
Section = tuple[int, str]
GONE = "No such file or directory"
FRESH: dict[str, Section] = {
    "pve-conf": (2, f"sed: can't read /etc/pve/corosync.conf: {GONE}"),
    "local-conf": (2, f"sed: can't read /etc/corosync/corosync.conf: {GONE}"),
    "digests": (1, f"sha256sum: /etc/corosync/authkey: {GONE}"),
    "pve-digest": (1, f"sha256sum: /etc/pve/corosync.conf: {GONE}"),
}
DEAD: dict[str, Section] = {
    "quorum": (1, "Cannot initialize CMAP service"),
    "links": (1, "Could not initialize corosync configuration API error 2"),
    "cmap": (1, "Failed to initialize the cmap API. Error CS_ERR_LIBRARY"),
    "mode": (0, "555"),
}


def facts_of(state: State, asked: str = "pve1") -> ClusterFacts:
    """What is read of the answers in that state; ``asked`` is one that answers."""
    members = members_of(state)
    silent = {*state.get("away", ()), *state.get("unheard", ())}
    nodes = tuple(
        read_node(look(state, name), addresses[0]) for name, addresses in members.items() if name not in silent
    )
    whys = state.get("whys", {})
    absent = (Silent(name, members[name][0], *whys.get(name, ["ssh: connect timed out"])) for name in sorted(silent))
    return ClusterFacts(asked if asked not in silent else nodes[0].name, nodes, tuple(absent))


def members_of(state: State) -> dict[str, list[str]]:
    """The members with their addresses on each link."""
    members = dict[str, list[str]]()
    for number in range(1, state["nodes"] + 1):
        given = state.get("members", {}).get(f"pve{number}", {})
        usual = [f"10.{link}.0.{number}" for link in range(state.get("links", 1))]
        members[f"pve{number}"] = given.get("addresses", usual)
    return members


def look(state: State, name: str) -> str:
    """What ``look.sh`` writes on the node of that name."""
    told = state.get("nodes_say", {}).get(name, {})
    number = int(name[3:])
    hostname = told.get("hostname", name)
    joined = [] if told.get("dead") or told.get("fresh") else part_of(state, name)
    quorum = quorum_section(state, number, joined)
    conf = told.get("conf", corosync_conf(state))
    local = told.get("local_conf", corosync_conf(state, told.get("totem", {}), told.get("version", VERSION)))
    guests = state.get("guests", {})
    ids = {str(vmid): {"node": owner, "type": "lxc"} for owner, vmids in guests.items() for vmid in vmids}
    folders = [*members_of(state), *filter(lambda owner: owner not in members_of(state), guests)]
    sections: dict[str, Section] = {
        "hostname": (0, hostname),
        "proxmox": (0, "/usr/bin/pvecm"),
        "version": (0, "pve-manager/9.2.11/0123456789abcdef"),
        "addresses": (0, interfaces(told.get("addresses", members_of(state)[name]))),
        "units": (0, f"{_unit('corosync', 'active' if joined else 'inactive')}\n\n{_unit('pve-cluster', 'active')}"),
        "database": (0, "200|1796000000"),
        "members": (0, json.dumps(_members(state, hostname, joined, is_quorate=quorum[0] == 0))),
        "pve-conf": (0, conf),
        "local-conf": (0, local),
        "digests": (0, f"{_sum('key')}  /etc/corosync/authkey\n{_sum(local)}  /etc/corosync/corosync.conf"),
        "pve-digest": (0, f"{_sum(conf)}  /etc/pve/corosync.conf"),
        "quorum": quorum,
        "links": links_section(state, name, joined),
        "qdevice": (0, ""),
        "cmap": (0, _cmap(state, joined, told.get("version", VERSION))),
        "vmlist": (0, json.dumps({"version": 1, "ids": ids})),
        "mode": (0, "755" if quorum[0] == 0 else "555"),
        "folders": (0, "\n".join(folders)),
        "guests": (0, "\n".join(_guest(owner, vmid) for owner, vmids in guests.items() for vmid in vmids)),
        "storage": (0, "dir: local"),
        "ha": (0, "quorum OK" if quorum[0] == 0 else "quorum No quorum on node!"),
        "ha-config": (0, ""),
        "replication": (0, ""),
        "guest-references": (0, ""),
        "keys": (0, "\n".join(f"root@{one}" for one in members_of(state))),
        "known-hosts": (0, "\n".join(members_of(state))),
        "way-in": (0, ""),
        "journal": (0, _journal(hostname)),
        "now": (0, "2026-11-29T10:00:00+0000"),
    }
    if not joined:
        sections |= DEAD
    if told.get("fresh"):
        sections |= FRESH
        sections["members"] = (0, json.dumps({"nodename": hostname, "version": 0}))
        sections["mode"] = (0, "755")
    for section, answer in {**state.get("all_say", {}), **told.get("sections", {})}.items():
        sections[section] = tuple(answer) if isinstance(answer, list) else (0, answer)
    return look_text(sections)


def corosync_conf(state: State, totem: Mapping[str, Any] | None = None, version: int = VERSION) -> str:
    """The ``corosync.conf`` of all members; ``totem``: settings that differ on one node."""
    entries = list[str]()
    votes = state.get("votes", [1] * state["nodes"])
    for number, (name, addresses) in enumerate(members_of(state).items(), start=1):
        given = state.get("members", {}).get(name, {})
        lines = {
            "name": given.get("name", name),
            "nodeid": given.get("nodeid", number),
            "quorum_votes": votes[number - 1],
        }
        lines |= {f"ring{link}_addr": address for link, address in enumerate(addresses)}
        entries.append(_section("node", lines, indent="  "))
    quorum = {"provider": "corosync_votequorum", **state.get("quorum", {})}
    device = ""
    if "device" in state:
        net = _section("net", {"algorithm": "ffsplit", "host": "10.0.0.99", "tls": "on"}, indent="    ")
        device = _section("device", {"model": "net", "votes": state.get("device_of", 1)}, net, indent="  ")
    settings = {
        "cluster_name": "homelab",
        "config_version": version,
        "link_mode": "passive",
        "secauth": "on",
        "version": 2,
    }
    settings |= {**state.get("totem", {}), **(totem or {})}
    links = "".join(
        _section("interface", {"linknumber": link}, indent="  ")
        for link in range(len(next(iter(members_of(state).values()))))
    )
    return "\n".join(
        [
            _section("logging", {"debug": "off"}),
            _section("nodelist", {}, "".join(entries)),
            _section("quorum", quorum, device),
            _section("totem", settings, links),
        ]
    )


def part_of(state: State, name: str) -> list[str]:
    """The members that the node is joined with, itself included."""
    for part in state.get("parts", ()):
        if name in part:
            return list(part)
    dead = {one for one, told in state.get("nodes_say", {}).items() if told.get("dead") or told.get("fresh")}
    away = dead.union(state.get("away", ()), *state.get("parts", ()))
    return [one for one in members_of(state) if one not in away]


def quorum_section(state: State, number: int, joined: Sequence[str]) -> Section:
    """``corosync-quorumtool -s`` by corosync's own sums (votequorum.c, ``calculate_quorum``)."""
    votes = state.get("votes", [1] * state["nodes"])
    counted = {int(name[3:]): state.get("counted", {}).get(name, votes[int(name[3:]) - 1]) for name in joined}
    device = state.get("device")
    most = state.get("device_of", 1) if device is not None else 0
    told = {**state.get("quorum", {})}
    expected = state.get("expected", told.get("expected_votes", sum(votes) + most))
    cast = device if isinstance(device, int) else 0
    total = sum(counted.values()) + cast
    needed = max(expected, total) // 2 + 1
    has_two = str(told.get("two_node", 0)) == "1"
    if has_two and len(counted) + bool(cast) <= 2:
        needed = 1
    is_quorate = total >= needed and not state.get("waits")
    flags = {"2Node": has_two, "Quorate": is_quorate, "WaitForAll": has_two or "wait_for_all" in told}
    flags["Qdevice"] = isinstance(device, int)
    rows = _rows(state, number, counted)
    return (0 if is_quorate else 2), (
        "Quorum information\n------------------\n"
        f"Date:             Sun Nov 29 10:00:00 2026\nQuorum provider:  corosync_votequorum\n"
        f"Nodes:            {len(joined)}\n"
        f"Node ID:          {number}\nRing ID:          1.2f\nQuorate:          {'Yes' if is_quorate else 'No'}\n\n"
        "Votequorum information\n----------------------\n"
        f"Expected votes:   {expected}\nHighest expected: {expected}\nTotal votes:      {total}\n"
        f"Quorum:           {needed} {'' if is_quorate else 'Activity blocked'}\n"
        f"Flags:            {' '.join(flag for flag, is_set in flags.items() if is_set)}\n\n"
        f"Membership information\n----------------------\n{rows}"
    )


def _rows(state: State, number: int, counted: Mapping[int, int]) -> str:
    """The rows of the nodes, and that of the device where its daemon runs."""
    device, addresses = state.get("device"), [one[0] for one in members_of(state).values()]
    if device is None:
        head, word = "    Nodeid      Votes Name\n", ""
    else:
        head = "    Nodeid      Votes    Qdevice Name\n"
        word = "NR " if device == "absent" else "A,V,NMW " if device else "NA,NV,NMW "
    rows = head
    for nodeid, votes in counted.items():
        local = " (local)" if nodeid == number else ""
        rows += f"{nodeid:>10} {votes:>10} {word:>10}{addresses[nodeid - 1]}{local}\n"
    if isinstance(device, int):
        most = "" if device else f" (votes {state.get('device_of', 1)})"
        rows += f"{0:>10} {device:>10}            Qdevice{most}\n"
    return rows


def links_section(state: State, name: str, joined: Sequence[str]) -> Section:
    """``corosync-cfgtool -s``."""
    text = f"Local node ID {name[3:]}, transport knet\n"
    down = [{str(word) for word in one} for one in state.get("down", ())]
    for link, address in enumerate(members_of(state)[name]):
        text += f"LINK ID {link} udp\n\taddr\t= {address}\n\tstatus:\n"
        for other in members_of(state):
            word = "connected" if other in joined and {str(link), name, other} not in down else "disconnected"
            text += f"\t\tnodeid:          {other[3:]}:\t{'localhost' if other == name else word}\n"
    return 0, text


def interfaces(addresses: Iterable[str]) -> str:
    """``ip -o addr show``."""
    rows = ["1: lo    inet 127.0.0.1/8 scope host lo"]
    for number, address in enumerate(addresses, start=2):
        family, length = ("inet6", 64) if ":" in address else ("inet", 24)
        rows.append(f"{number}: vmbr{number - 2}    {family} {address}/{length} scope global vmbr{number - 2}")
    return "\n".join(rows)


def _cmap(state: State, joined: Sequence[str], version: int) -> str:
    rows = [f"totem.cluster_name (str) = homelab\ntotem.config_version (u64) = {version}"]
    votes = state.get("votes", [1] * state["nodes"])
    for place, (name, addresses) in enumerate(members_of(state).items()):
        given, key = state.get("members", {}).get(name, {}), f"nodelist.node.{place}"
        nodeid = given.get("nodeid", place + 1)
        rows.append(f"{key}.name (str) = {given.get('name', name)}\n{key}.nodeid (u32) = {nodeid}")
        rows.append(f"{key}.quorum_votes (u32) = {votes[place]}")
        rows += [f"{key}.ring{link}_addr (str) = {address}" for link, address in enumerate(addresses)]
        status, key = "joined" if name in joined else "left", f"runtime.members.{place + 1}"
        rows.append(f"{key}.config_version (u64) = {version}\n{key}.ip (str) = r(0) ip({addresses[0]}) ")
        rows.append(f"{key}.status (str) = {status}")
    return "\n".join(rows)


def _members(state: State, hostname: str, joined: Sequence[str], *, is_quorate: bool) -> dict[str, Any]:
    nodelist = {
        name: {"id": number, "online": int(name in joined), "ip": addresses[0]}
        for number, (name, addresses) in enumerate(members_of(state).items(), start=1)
    }
    cluster = {"name": "homelab", "version": VERSION, "nodes": state["nodes"], "quorate": int(is_quorate)}
    return {"nodename": hostname, "version": 4, "cluster": cluster, "nodelist": nodelist}


def _guest(owner: str, vmid: int) -> str:
    head = f"= /etc/pve/nodes/{owner}/lxc/{vmid}.conf {'a' * 64}"
    return f"{head}\nhostname: ct{vmid}\nrootfs: local-lvm:vm-{vmid}-disk-0,size=8G"


def _journal(name: str) -> str:
    head = f"2026-11-29T09:00:00+0000 {name} corosync[901]:"
    formed = "[TOTEM ] A new membership (1.2f) was formed. Members joined: 1 2"
    return f"{head}   [MAIN  ] Corosync Cluster Engine  starting up\n{head}   {formed}"


def _section(name: str, settings: Mapping[str, Any], inner: str = "", indent: str = "") -> str:
    lines = "".join(f"{indent}  {key}: {value}\n" for key, value in settings.items())
    return f"{indent}{name} {{\n{inner}{lines}{indent}}}\n"


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _unit(name: str, state: str) -> str:
    return f"Id={name}.service\nLoadState=loaded\nActiveState={state}"
