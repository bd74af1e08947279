"""The cluster's ``corosync.conf`` as Proxmox VE 9 writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.doubles.corosync.standin import corosync_conf


@dataclass(frozen=True)
class Entry:
    """One member."""

    name: str
    nodeid: int
    address: str
    votes: int = 1


def conf_text(cluster: str, version: int, entries: Sequence[Entry]) -> str:
    """The file, keys sorted."""
    nodes = {
        one.name: {"name": one.name, "nodeid": one.nodeid, "quorum_votes": one.votes, "ring0_addr": one.address}
        for one in entries
    }
    return corosync_conf.dump(
        {
            "logging": {"debug": "off", "to_syslog": "yes"},
            "nodelist": {"node": nodes},
            "quorum": {"provider": "corosync_votequorum"},
            "totem": {
                "cluster_name": cluster,
                "config_version": version,
                "interface": {"0": {"linknumber": "0"}},
                "ip_version": "ipv4-6",
                "link_mode": "passive",
                "secauth": "on",
                "token_coefficient": "125",
                "version": "2",
            },
        }
    )


def entries_of(text: str) -> tuple[int, list[Entry]]:
    """The version and the members of a ``corosync.conf``."""
    conf = corosync_conf.parse(text)
    found = corosync_conf.members(conf).values()
    entries = [Entry(one["name"], int(one["nodeid"]), one["ring0_addr"], int(one["quorum_votes"])) for one in found]
    return int(conf["totem"]["config_version"]), sorted(entries, key=lambda one: one.nodeid)


def cluster_of(text: str) -> str:
    """The cluster's name in a ``corosync.conf``."""
    return str(corosync_conf.parse(text)["totem"]["cluster_name"])
