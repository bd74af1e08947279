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
    absent = [address for address in member.addresses if address not in node.addresses]
    return tuple(filter(is_address, absent))


def usable_addresses(node: NodeFacts) -> tuple[str, ...]:
    """The node's addresses, without those that lead nobody to it."""
    return tuple(str(interface.ip) for interface in _interfaces(node))


def near_addresses(node: NodeFacts, others: Iterable[str]) -> tuple[str, ...]:
    """The node's addresses in a network in which one of ``others`` is."""
    targets = [ip_address(other) for other in filter(is_address, others)]
    near = list[str]()
    for interface in _interfaces(node):
        is_near = any(target in interface.network for target in targets)
        if is_near:
            near.append(str(interface.ip))
    return tuple(near)


def _interfaces(node: NodeFacts) -> list[IPv4Interface | IPv6Interface]:
    """The node's interfaces by which others may reach it."""
    interfaces = list[IPv4Interface | IPv6Interface]()
    for text in node.networks:
        try:
            interface = ip_interface(text)
        except ValueError:
            continue  # it is none
        if not interface.ip.is_loopback and not interface.ip.is_link_local:
            interfaces.append(interface)
    return interfaces
