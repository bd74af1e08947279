"""Where a node may be that is to be forgotten: every address that anybody knows of it is tried first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address

from provisioner.repair.facts import ClusterFacts, NodeFacts
from provisioner.repair.forgetting import Target, lead_of


def whereabouts(facts: ClusterFacts, target: Target, told: Iterable[str] = ()) -> tuple[str, ...]:
    """The addresses at which ``target`` may answer: a member's own, what any list has of it, and what was ``told``.

    None that is another node's now: that one answers for itself. A removed node is silent in corosync, and its guests
    may run on; so those of a ghost count as much as a member's.
    """
    others = _of_others(facts, target.name)
    known = (*_known(facts, target.name), *told)
    own = [address for address in known if address not in others and not _is_loopback(address)]
    addresses = dict.fromkeys((*target.addresses, *own))
    return tuple(filter(None, addresses))


def _known(facts: ClusterFacts, name: str) -> Iterator[str]:
    """The addresses that anybody knows of the node: those that were tried, and those in all nodes' lists."""
    for silent in facts.silent:
        if silent.name == name:
            yield silent.address
    for node in facts.nodes:
        yield from _listed(node, name)


def _listed(node: NodeFacts, name: str) -> Iterator[str]:
    """The addresses that the lists and the pmxcfs of ``node`` have for the node of that name."""
    for member in node.listed:
        if member.name == name:
            yield from member.addresses
    for peer in node.peers:
        if peer.name == name:
            yield peer.address


def _of_others(facts: ClusterFacts, name: str) -> frozenset[str]:
    """The addresses of the cluster's other members, and of the other nodes that answered."""
    addresses = set[str]()
    conf = lead_of(facts).pve_conf
    if conf is not None:
        for member in conf.others(name):
            addresses.update(member.addresses)
    for node in facts.nodes:
        if node.name != name:
            addresses.update(node.all_addresses)
    return frozenset(addresses)


def _is_loopback(text: str) -> bool:
    """Whether it leads to the machine itself; a certificate names those, too."""
    try:
        return ip_address(text).is_loopback
    except ValueError:
        return False
