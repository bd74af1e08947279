"""Who else to ask: every node that the nodes seen so far know of, with the addresses at which it may answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from provisioner.repair.facts import NodeFacts, Silent


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that was not asked yet; ``name`` is empty where only an address is known, ``addresses`` in order."""

    name: str
    addresses: tuple[str, ...]

    @property
    def key(self) -> str:
        """By what it is known: its name, else its address."""
        return self.name or self.addresses[0]


def candidates(nodes: Iterable[NodeFacts]) -> tuple[Candidate, ...]:
    """The nodes of all lists except those in ``nodes``, then addresses that speak to corosync without a name.

    pmxcfs's address comes first: it is the node's own; a link of corosync may be in a network of its own.
    """
    answered = tuple(nodes)
    listed = _listed(answered)
    own = set[str]()
    for node in answered:
        own.update(node.all_addresses)
        listed.pop(node.name, None)
    known = set(own)
    found = list[Candidate]()
    for name, addresses in sorted(listed.items()):
        known.update(addresses)
        untried = [address for address in addresses if address and address not in own]
        found.append(Candidate(name, tuple(dict.fromkeys(untried))))
    for address in _senders(answered):
        if address not in known:
            found.append(Candidate("", (address,)))
    return tuple(found)


def _listed(nodes: Iterable[NodeFacts]) -> dict[str, list[str]]:
    """The addresses by name that the nodes' lists have, in the order in which they are to be tried."""
    addresses_by_name = dict[str, list[str]]()
    for node in nodes:
        for peer in node.peers:
            addresses_by_name.setdefault(peer.name, []).append(peer.address)
        for member in node.listed:
            addresses_by_name.setdefault(member.name, []).extend(member.addresses)
    return addresses_by_name


def _senders(nodes: Iterable[NodeFacts]) -> list[str]:
    """The addresses from which packets came to the nodes' corosync, each once."""
    senders = list[str]()
    for node in nodes:
        senders += [*node.heard.values(), *node.signatures.turned_away]
    return list(dict.fromkeys(senders))


def claims_of(nodes: Iterable[NodeFacts], silent: Iterable[Silent]) -> Mapping[str, str]:
    """The nodes (name → address) that say a silent one is joined: corosync takes seconds to see that one is gone."""
    silent_names = {node.name for node in silent if node.name}
    claims = dict[str, str]()
    for node in nodes:
        present_names = {member.name for member in node.running if member.nodeid in node.present}
        if not silent_names.isdisjoint(present_names):
            claims[node.name] = node.address
    return claims
