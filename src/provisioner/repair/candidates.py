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
    seen = tuple(nodes)
    own = {address for one in seen for address in (one.address, *one.addresses)}
    found: dict[str, list[str]] = {}
    for one in seen:
        for peer in one.pmxcfs.peers if one.pmxcfs else ():
            found.setdefault(peer.name, []).append(peer.address)
        lists = (one.running, *(conf.members for conf in (one.pve_conf, one.local_conf) if conf))
        for member in (member for members in lists for member in members):
            found.setdefault(member.name, []).extend(member.addresses)
    named = {
        name: tuple(address for address in dict.fromkeys(addresses) if address and address not in own)
        for name, addresses in found.items()
        if name not in {one.name for one in seen}
    }
    known = own.union(*named.values())
    strange = dict.fromkeys(
        address
        for one in seen
        for address in (*one.heard.values(), *one.signatures.rejected, *one.signatures.undecryptable)
        if address not in known
    )
    return (*(Candidate(name, one) for name, one in sorted(named.items())), *(Candidate("", (one,)) for one in strange))


def claims_of(nodes: Iterable[NodeFacts], silent: Iterable[Silent]) -> Mapping[str, str]:
    """The nodes (name → address) that say a silent one is joined: corosync takes seconds to see that one is gone."""
    names = {one.name for one in silent if one.name}
    return {
        one.name: one.address
        for one in nodes
        if one.quorum and any(member.name in names and member.nodeid in one.quorum.present for member in one.running)
    }
