"""Where a node may be that is to be forgotten: every address that anybody knows of it is tried first. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from provisioner.repair.facts import ClusterFacts, Member, NodeFacts
from provisioner.repair.forgetting import Target, lead_of


def whereabouts(facts: ClusterFacts, target: Target, told: Iterable[str] = ()) -> tuple[str, ...]:
    """The addresses at which ``target`` may answer: a member's own, what any list has of it, and what was ``told``.

    None that is another node's now: that one answers for itself. A removed node is silent in corosync, and its guests
    may run on; so those of a ghost count as much as a member's.
    """
    known = [one.address for one in facts.silent if one.name == target.name]
    for node in facts.nodes:
        known += [address for one in _lists(node) if one.name == target.name for address in one.addresses]
        known += [one.address for one in (node.pmxcfs.peers if node.pmxcfs else ()) if one.name == target.name]
    others = _of_others(facts, target.name)
    found = [one for one in (*known, *told) if one not in others and not _is_loopback(one)]
    return tuple(dict.fromkeys(filter(None, (*target.addresses, *found))))


def _lists(node: NodeFacts) -> tuple[Member, ...]:
    confs = (one.members for one in (node.pve_conf, node.local_conf) if one)
    return (*node.running, *(member for members in confs for member in members))


def _of_others(facts: ClusterFacts, name: str) -> frozenset[str]:
    conf = lead_of(facts).pve_conf
    members = {address for one in (conf.members if conf else ()) if one.name != name for address in one.addresses}
    answering = {address for one in facts.nodes if one.name != name for address in (one.address, *one.addresses)}
    return frozenset(members | answering)


def _is_loopback(text: str) -> bool:
    """Whether it leads to the machine itself; a certificate names those, too."""
    try:
        return ip_address(text).is_loopback
    except ValueError:
        return False
