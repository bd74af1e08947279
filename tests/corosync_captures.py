"""Captured logs and tool outputs of real corosync nodes, as ``look.sh`` would have sent them.

A capture is of n1 (one of the good nodes) and n3 (the one that was made stale), three nodes in all. What it lacks is
added: pmxcfs's files, n2 (which sees what n1 sees), and the corosync.conf of a node whose corosync has ended.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "corosync"
KINDS = ("healthy", "version", "moved", "readdr", "idreuse", "removed", "key")
NODES = ("n1", "n2", "n3")
_DEAD = {"quorum": "Cannot initialize CMAP service", "links": "Could not initialize corosync configuration API error 2"}


def look_answer(kind: str, node: str) -> str:
    """What ``look.sh`` would have written on that node."""
    text = (FOLDER / f"{kind}.txt").read_text(encoding="utf-8")
    taken = "n1" if node == "n2" else node
    part = re.split(r"^##### .*\n", text, flags=re.MULTILINE)[1 if taken == "n1" else 2]
    log, *outputs = re.split(r"^--- ", part, flags=re.MULTILINE)
    tools = {head: body for head, _, body in (one.partition("\n") for one in outputs)}
    if node == "n2":
        tools = {head: _seen_by_n2(body) for head, body in tools.items()}
    return look_text(_sections(kind, node, log, {head.split(": ")[-1]: body for head, body in tools.items()}))


def looks(story: str) -> dict[str, str]:
    """What ``look.sh`` itself wrote on the nodes that answered in that story, by node; two sections are newer."""
    since = "@ qdevice 0\n@ guest-references 0\n@ end 0"
    files = sorted((FOLDER / story).glob("*.txt"))
    return {file.stem: file.read_text(encoding="utf-8").replace("@ end 0", since) for file in files}


def look_text(sections: Mapping[str, tuple[int, str]]) -> str:
    """Sections (exit code, output) in the script's form."""
    return "".join(
        f"@ {name} {code}\n" + "".join(f" {line}\n" for line in text.splitlines())
        for name, (code, text) in {**sections, "end": (0, "")}.items()
    )


def _sections(kind: str, node: str, log: str, tools: Mapping[str, str]) -> dict[str, tuple[int, str]]:
    cmap = _body(tools["corosync-cmapctl (members,nodelist)"])
    is_dead = "(corosync not running)" in next(body for head, body in tools.items() if "pgrep" in head)
    nodelist = cmap[1] if not is_dead else _nodelist_before(node)
    version = re.search(r"config_version \(u64\) = (\d+)", tools["corosync-cmapctl totem.config_version"])
    conf = _conf(nodelist, int(version[1]) if version else 1)
    quorum = _body(tools["corosync-quorumtool -s"])
    key = hashlib.sha256(f"{kind} {node}".encode() if kind == "key" and node == "n3" else b"cluster").hexdigest()
    address = re.findall(r"local addr: (\S+),", log)[-1].removesuffix("1" if node == "n2" else "") + "2" * (
        node == "n2"
    )
    members = {
        "nodename": node,
        "version": 4,
        "cluster": {"name": "labcluster", "version": 1, "nodes": 3, "quorate": int(quorum[0] == 0)},
        "nodelist": {name: {"id": int(nodeid), "online": 1, "ip": ip} for name, nodeid, ip in _members(nodelist)},
    }
    unit = "failed" if is_dead else "active"
    return {
        "hostname": (0, node),
        "proxmox": (0, "/usr/bin/pvecm"),
        "version": (0, "pve-manager/9.2.1/0123456789abcdef"),
        "addresses": (0, f"1: lo    inet 127.0.0.1/8 scope host lo\n2: eth0    inet {address}/24 scope global eth0"),
        "units": (0, f"{_unit('corosync', unit)}\n\n{_unit('pve-cluster', 'active')}"),
        "database": (0, "120|1763700000"),
        "members": (0, json.dumps(members)),
        "pve-conf": (0, conf),
        "local-conf": (0, conf),
        "digests": (0, f"{key}  /etc/corosync/authkey\n{'1' * 64}  /etc/corosync/corosync.conf"),
        "pve-digest": (0, f"{'1' * 64}  /etc/pve/corosync.conf"),
        "quorum": quorum,
        "links": _body(tools["corosync-cfgtool -s"]),
        "qdevice": (0, ""),
        "cmap": (1, "Failed to initialize the cmap API. Error CS_ERR_LIBRARY") if is_dead else cmap,
        "vmlist": (0, '{"version": 1, "ids": {}}'),
        "mode": (0, "755" if quorum[0] == 0 else "555"),
        "folders": (0, "n1\nn2\nn3"),
        "guests": (0, ""),
        "storage": (0, "dir: local"),
        "ha": (0, "quorum OK" if quorum[0] == 0 else "quorum No quorum on node!"),
        "ha-config": (0, ""),
        "replication": (0, ""),
        "guest-references": (0, ""),
        "keys": (0, "root@n1\nroot@n2\nroot@n3"),
        "known-hosts": (0, "n1\nn2\nn3"),
        "way-in": (0, ""),
        "journal": (0, log),
        "now": (0, "2026-11-20T08:40:00+0000"),
    }


def _body(text: str) -> tuple[int, str]:
    found = re.search(r"^rc=(\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0, re.sub(r"^rc=\d+\n?", "", text, flags=re.MULTILINE)


def _seen_by_n2(text: str) -> str:
    text = text.replace("Node ID:          1", "Node ID:          2").replace("Local node ID 1", "Local node ID 2")
    return text.replace("1:\tlocalhost", "1:\tconnected").replace("2:\tconnected", "2:\tlocalhost")


def _nodelist_before(node: str) -> str:
    healthy = (FOLDER / "healthy.txt").read_text(encoding="utf-8")
    return healthy[healthy.index(f"--- {node}: corosync-cmapctl (members,nodelist)") :]


def _members(nodelist: str) -> list[tuple[str, str, str]]:
    values = dict(re.findall(r"^nodelist\.node\.(\S+) \(\w+\) = (.*)$", nodelist, re.MULTILINE))
    return [
        (values[f"{number}.name"], values[f"{number}.nodeid"], values[f"{number}.ring0_addr"])
        for number in range(len(values) // 4)
    ]


def _conf(nodelist: str, version: int) -> str:
    nodes = "".join(
        f"  node {{\n    name: {name}\n    nodeid: {nodeid}\n    quorum_votes: 1\n    ring0_addr: {address}\n  }}\n"
        for name, nodeid, address in _members(nodelist)
    )
    quorum = "quorum {\n  provider: corosync_votequorum\n}\n"
    link = "  interface {\n    linknumber: 0\n  }\n"
    totem = f"totem {{\n  cluster_name: labcluster\n  config_version: {version}\n{link}}}\n"
    return f"logging {{\n  debug: off\n}}\n\nnodelist {{\n{nodes}}}\n\n{quorum}\n{totem}"


def _unit(name: str, state: str) -> str:
    return f"Id={name}.service\nLoadState=loaded\nActiveState={state}"
