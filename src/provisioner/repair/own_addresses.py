"""Where a node is now, against what lists say of it: its interfaces were read. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface

from provisioner.repair.facts import Member, NodeFacts


def is_address(text: str) -> bool:
    """Whether it is an address, and no name."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def lost_addresses(node: NodeFacts, member: Member) -> tuple[str, ...]:
    """The addresses by which ``member`` is known and that the node does not have; none where its own are not known."""
    if not node.addresses:
        return ()
    return tuple(one for one in member.addresses if is_address(one) and one not in node.addresses)


def usable_addresses(node: NodeFacts) -> tuple[str, ...]:
    """The node's addresses, without those that lead nobody to it."""
    return tuple(str(one.ip) for one in _interfaces(node))


def near_addresses(node: NodeFacts, others: Iterable[str]) -> tuple[str, ...]:
    """The node's addresses in a network in which one of ``others`` is."""
    targets = [ip_address(one) for one in others if is_address(one)]
    return tuple(str(one.ip) for one in _interfaces(node) if any(target in one.network for target in targets))


def _interfaces(node: NodeFacts) -> list[IPv4Interface | IPv6Interface]:
    found = []
    for text in node.networks:
        try:
            interface = ip_interface(text)
        except ValueError:
            continue  # it is none
        if not interface.ip.is_loopback and not interface.ip.is_link_local:
            found.append(interface)
    return found
