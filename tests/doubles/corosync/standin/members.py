"""``pvecm addnode`` and ``delnode``: the cluster's list of its members."""

from __future__ import annotations

import subprocess
from typing import Any

from . import corosync_conf, files, node, trust


def add(name: str, options: dict[str, str]) -> None:
    """Enter a node; the list's version grows, whatever becomes of the node."""
    node.assert_quorate()
    conf = _read()
    nodes = corosync_conf.members(conf)
    address = options.get("link0") or options.get("new_node_ip")
    if not address:
        raise node.DieError("no links and no fallback ip (new_node_ip) given, cannot join cluster")
    address = address.removeprefix("address=")
    for other, entry in nodes.items():
        if other != name and entry.get("ring0_addr") == address:
            raise node.DieError(f"corosync: address '{address}' already used on link ring0_addr by node '{other}'")
    nodeid, votes = _place(name, options, nodes)
    files.make_folders(name)
    trust.merge_keys()
    entry = {"name": name, "nodeid": nodeid, "ring0_addr": address}
    nodes[name] = entry | ({"quorum_votes": votes} if votes != "0" else {})
    _write(conf)


def delete(name: str) -> None:
    """Strike a node off the list, and nothing else: all that it has in ``/etc/pve`` stays."""
    if name == node.name():
        raise node.DieError("Cannot delete myself from cluster!")
    node.assert_quorate()
    conf = _read()
    nodes = corosync_conf.members(conf)
    found = [one for one, entry in nodes.items() if name in {one, entry.get("ring0_addr"), entry.get("ring1_addr")}]
    if not found:
        raise node.DieError(f"Node/IP: {name} is not a known host of the cluster.")
    nodeid = nodes.pop(found[0])["nodeid"]
    # it may fail: a node that is off cannot be killed
    subprocess.run(["corosync-cfgtool", "-k", nodeid], check=False, timeout=60)
    _write(conf)


def _place(name: str, options: dict[str, str], nodes: dict[str, dict[str, str]]) -> tuple[str, str]:
    old = nodes.get(name)
    if old is None:
        taken = {entry["nodeid"] for entry in nodes.values()}
        free = next(str(n) for n in range(1, len(taken) + 2) if str(n) not in taken)
        return options.get("nodeid", free), options.get("votes", "1")
    nodeid, votes = options.get("nodeid", old["nodeid"]), options.get("votes", old["quorum_votes"])
    if (nodeid, votes) != (old["nodeid"], old["quorum_votes"]) or "force" not in options:
        raise node.DieError(f"can't add existing node '{name}'")
    node.say(f"forcing overwrite of configured node '{name}'")
    return nodeid, votes


def _read() -> dict[str, Any]:
    try:
        return corosync_conf.parse(node.CONF.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise node.DieError("unable to read corosync.conf: there is none") from None


def _write(conf: dict[str, Any]) -> None:
    conf["totem"]["config_version"] = str(int(conf["totem"]["config_version"]) + 1)
    fresh = node.CONF.with_name("corosync.conf.new")
    try:
        fresh.write_text(corosync_conf.dump(conf), encoding="utf-8")
    except OSError as error:
        raise node.DieError(f"unable to open file '{fresh}.tmp' - {error.strerror}") from None
    try:
        fresh.rename(node.CONF)
    except OSError as error:
        raise node.DieError(f"activating corosync.conf.new failed - {error.strerror}") from None
