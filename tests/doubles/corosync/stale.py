"""How a node becomes stale: it is away while the others' list of members, addresses or key change."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from tests.doubles.corosync.conf import Entry, cluster_of, conf_text, entries_of
from tests.doubles.corosync.machines import parallel
from tests.doubles.corosync.node import Node, free_addresses

if TYPE_CHECKING:
    from tests.doubles.corosync.cluster import Cluster

Mode = Literal["version", "added", "moved", "readdr", "idreuse", "removed", "key"]
MODES: tuple[Mode, ...] = ("version", "added", "moved", "readdr", "idreuse", "removed", "key")
NEEDS_RESTART = {"moved", "readdr", "idreuse", "key"}
"""Neither a peer's address nor the key changes by a reload."""


def make_stale(cluster: Cluster, node: Node, mode: Mode) -> None:
    """Do it, and wait for what this way of being stale looks like."""
    good = [one for one in cluster.nodes if one is not node and not one.is_off and one.is_quorate()]
    node.run("systemctl stop pve-cluster corosync")
    change(cluster, node, good, mode)
    if mode == "added":
        _forget(node, good[-1].name)
    node.run("systemctl start corosync pve-cluster")
    WAITS[mode](node, good)


def change(cluster: Cluster, node: Node, good: list[Node], mode: Mode) -> None:
    """What happens while it is away."""
    version, entries = entries_of(good[0].read("/etc/pve/corosync.conf"))
    with free_addresses(node.lab, {"moved": len(good), "readdr": 1, "idreuse": 1}.get(mode, 0)) as free:
        moved = dict(zip((one.name for one in good), free, strict=True)) if mode == "moved" else {}
        new = [changed for one in entries for changed in _changed(one, node, mode, moved, free)]
        _write(good, version + 1, new)
        if mode in NEEDS_RESTART:
            _restart(cluster, good, moved, os.urandom(256) if mode == "key" else b"")
    names = {one.name for one in good}
    votes = sum(one.votes for one in new if one.name in names)
    running = f"corosync-cmapctl totem.config_version | grep -q '= {version + 1}$'"
    for one in good:
        one.wait("quorate again", partial(one.is_quorate, votes))
        one.wait_for("told", running)
        one.wait_for("attached again", "touch /etc/pve/priv/known_hosts")


def _forget(node: Node, newcomer: str) -> None:
    """The files that it would have if that member had been added while it was away."""
    text = node.read("/etc/corosync/corosync.conf")
    version, entries = entries_of(text)
    old = conf_text(cluster_of(text), version, [one for one in entries if one.name != newcomer])
    node.write("/etc/corosync/corosync.conf", old)
    # not more often than once: what wrote more often would win over the cluster's
    plant = "PYTHONPATH=/usr/lib/pve-lab python3 -P -m standin.plant"
    node.run(f"{plant} --remove corosync.conf && {plant} corosync.conf", stdin=old.encode())


def _write(good: list[Node], version: int, entries: list[Entry]) -> None:
    name = cluster_of(good[0].read("/etc/pve/corosync.conf"))
    good[0].write("/etc/pve/corosync.conf.new", conf_text(name, version, entries), 0o640)
    good[0].run("mv /etc/pve/corosync.conf.new /etc/pve/corosync.conf")
    for one in good:
        one.wait_for("told", f"grep -q 'config_version: {version}$' /etc/corosync/corosync.conf")


def _changed(one: Entry, node: Node, mode: Mode, moved: dict[str, str], free: list[str]) -> list[Entry]:
    if one.name in moved:
        return [replace(one, address=moved[one.name])]
    if one.name != node.name or mode in {"version", "added", "moved", "key"}:
        return [one]
    if mode == "removed":
        return []
    name = one.name if mode == "readdr" else f"new{one.nodeid}"
    return [replace(one, name=name, address=free[0])]


def _restart(cluster: Cluster, good: list[Node], moved: dict[str, str], key: bytes) -> None:
    parallel(lambda one: one.run("systemctl stop pve-cluster corosync"), good)
    for one in good:
        if one.name in moved:
            one.use_address(moved[one.name])
        if key:
            one.write("/etc/corosync/authkey", key, 0o400)
    for one in good:
        for name, address in moved.items():
            one.run(f"sed -i 's/^[0-9.]* {name}.lab /{address} {name}.lab /' /etc/hosts")
    cluster.know_hosts()
    parallel(lambda one: one.run("systemctl start corosync pve-cluster"), good)


def _logged(words: str) -> str:
    """A command: whether corosync has said that since it was last started."""
    return (
        'journalctl -q -t corosync --since "$(systemctl show -p ExecMainStartTimestamp --value corosync)"'
        f" -g '{words}' -n 1 | grep -q ."
    )


def _wait_outdated(node: Node, _: list[Node]) -> None:
    node.wait_for("outdated", _logged("Received config version"))
    node.wait("ended", lambda: _has_ended(node))


def _has_ended(node: Node) -> bool:
    return node.run("systemctl is-active corosync", check=False).strip() in {"inactive", "failed"}


def _wait_rejecting(node: Node, _: list[Node]) -> None:
    node.wait_for("rejecting", _logged("Packet rejected"))


def _wait_rejected(_: Node, good: list[Node]) -> None:
    for one in good:
        one.wait_for("rejecting", _logged("Packet rejected"))


def _wait_undecryptable(node: Node, good: list[Node]) -> None:
    for one in (node, *good):
        one.wait_for("unable to decrypt", _logged("Unable to decrypt"))


def _wait_alone(node: Node, _: list[Node]) -> None:
    node.wait_for("alone", "corosync-quorumtool -s | grep -q 'Activity blocked'")


def _wait_restless(node: Node, good: list[Node]) -> None:
    """All have formed their membership anew, and nobody has joined or left.

    Of five nodes the stale one knows three: now and then it is one of them for long enough to learn that its list is
    old, and ends.
    """
    again = 'journalctl -q -t corosync --since "$(systemctl show -p ExecMainStartTimestamp --value corosync)"'
    is_restless = f"[ $({again} | grep -c 'was formed. Members *$') -ge 1 ]"
    for one in (node, *good):
        one.wait("restless", partial(_is_restless_or_over, one, is_restless, node))


def _is_restless_or_over(one: Node, is_restless: str, stale: Node) -> bool:
    return one.can(is_restless) or _has_ended(stale)


WAITS: dict[str, Callable[[Node, list[Node]], None]] = {
    "version": _wait_outdated,
    "added": _wait_restless,
    "moved": _wait_rejecting,
    "readdr": _wait_rejected,
    "idreuse": _wait_rejected,
    "removed": _wait_alone,
    "key": _wait_undecryptable,
}
