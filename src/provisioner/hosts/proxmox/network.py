"""How containers of a Proxmox node are reached, every one of which is in the LAN itself, and what they reach."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from ipaddress import ip_address, ip_interface
from typing import Any

from provisioner.hosts import base
from provisioner.hosts.base import addresses_of, public_ranges
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.failures import PveError
from provisioner.hosts.proxmox.guest import Guest, address_in
from provisioner.hosts.proxmox.host import ProxmoxHost, worded
from provisioner.hosts.proxmox.translate import network_of
from provisioner.values.state import Instance, Status


class Network(base.Network):
    """The addresses of one node's containers, and their firewalls."""

    _host: ProxmoxHost

    def confine(self, instance: Instance) -> str:
        """Write rules into the container's own firewall, as addresses are now."""
        with worded(f"Unable to keep container {instance.name} in"):
            return _hold(self._host, instance)

    def address(self, name: str) -> str | None:
        """The address on its card."""
        host = self._host
        with worded(f"Unable to look at the address of container {name}"):
            vmid = host.find_vmid(name)
            if vmid is None or host.status(vmid) is not Status.RUNNING:
                return None
            return address_in(host.client.find(*host.path(vmid, "interfaces")))


# Rules in the own firewall of containers that run code of others.
#
# Each of ours lets something out and bears a comment that begins with ``OURS``; the container's policy refuses the
# rest. So their order does not matter, Proxmox puts a new one before all others, and what a run that was cut off has
# not written yet is closed. Rules and options of others stay as they are. Nothing of it holds before the firewall of
# the datacenter is on and that of the card (``firewall=1``, a setting of the container); its node takes rules up every
# ten seconds.

OURS = "provision: "
"""How the comments of our rules begin; the place that a rule is for, or one of ``_ALWAYS``, follows."""
PUBLIC, NAMES, NEIGHBOURS = "(what is public)", "(names)", "(neighbours)"
_ALWAYS = frozenset({PUBLIC, NAMES, NEIGHBOURS})
REFUSE = "REJECT"
_REFUSING = frozenset({REFUSE, "DROP"})
_FURTHER_CARD = re.compile(r"net[1-9]\d*")
_OF_PROXMOX = frozenset({"pos", "digest", "ipversion"})
"""What it adds to a rule that was written."""

Rule = dict[str, str]
Found = Mapping[str, Any]


def is_firewall_on(client: Client) -> bool:
    """Whether the firewall of the datacenter is on, as far as whoever asks may see it."""
    try:
        options = client.get("cluster", "firewall", "options")
    except PveError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return False
    return _is_switched_on(options)


def read_reaches(host: ProxmoxHost, guest: Guest) -> tuple[str, ...] | None:
    """Return what a container is held to; None for one whose rules or options are not as they are written here."""
    card = guest.config.get("net0", "")
    if not network_of(card, mac=False).get("firewall"):
        return None
    path = host.path(guest.vmid, "firewall")
    ours = _ours(host.client.get(*path, "rules"))
    known = _known(ours)
    reaches = sorted(known.keys() - _ALWAYS)
    expected = _rules(reaches, card, known, asks=False)
    is_written = sorted(ours, key=str) == sorted(expected, key=str)
    if is_written and _is_held(host.client.get(*path, "options")):
        return tuple(reaches)
    return None


def _hold(host: ProxmoxHost, instance: Instance) -> str:
    """Write the rules of a container as addresses are now, then the policy; take ours away where it is not held.

    Return in words what of it is not held, as somebody gave it a further card that no rule counts for.
    """
    guest = host.existing(instance, "keep in")
    client, path = host.client, host.path(guest.vmid, "firewall")
    before = _ours(client.get(*path, "rules"))
    if instance.reaches is None:
        _release(client, path, before)
        return ""
    wanted = _rules(instance.reaches, guest.config.get("net0", ""), _known(before), asks=True)
    for rule in wanted:
        if rule not in before:
            client.post(*path, "rules", as_root=False, **rule)
    for rule in before:
        if rule not in wanted:
            _delete_one(client, path, wanted)
    options = client.get(*path, "options")
    if not _is_held(options):
        changed = {"policy_out": REFUSE, "digest": options.get("digest")}
        if not _is_switched_on(options):
            # It lets nobody in where nothing is said of that; of one that is on already its owner has decided.
            changed |= {"enable": True, "policy_in": options.get("policy_in", "ACCEPT")}
        client.put(*path, "options", **changed)
    open_cards = _open_cards(guest.config)
    return f"its {' and '.join(open_cards)} without firewall=1 is let out anywhere" if open_cards else ""


def _release(client: Client, path: Sequence[object], before: Sequence[Rule]) -> None:
    """Take our policy away, then our rules: without these the policy would let nothing out."""
    options = client.get(*path, "options")
    if before and options.get("policy_out") == REFUSE:
        client.put(*path, "options", delete="policy_out", digest=options.get("digest"))
    for _ in before:
        _delete_one(client, path, ())


def _open_cards(config: Mapping[str, str]) -> list[str]:
    """The container's further cards, which only people add, as far as its firewall does not count for them."""
    cards = sorted(name for name in config if _FURTHER_CARD.fullmatch(name))
    return [name for name in cards if not network_of(config[name], mac=False).get("firewall")]


def _delete_one(client: Client, path: Sequence[object], wanted: Sequence[Rule]) -> None:
    """Delete one rule of ours that is not wanted; others move up then, so that each is looked for anew."""
    for found in client.get(*path, "rules"):
        for rule in _ours([found]):
            if rule not in wanted:
                client.delete(*path, "rules", found["pos"], digest=found.get("digest"))
                return


def _is_switched_on(options: Found) -> bool:
    return int(options.get("enable") or 0) > 0


def _is_held(options: Found) -> bool:
    return _is_switched_on(options) and options.get("policy_out") in _REFUSING


def _ours(found: Iterable[Found]) -> list[Rule]:
    """Our rules of those that are there, as they were written."""
    ours: list[Rule] = []
    for rule in found:
        if str(rule.get("comment", "")).startswith(OURS):
            written = rule.keys() - _OF_PROXMOX
            ours.append({name: str(rule[name]) for name in sorted(written)})
    return ours


def _known(ours: Iterable[Rule]) -> dict[str, list[str]]:
    """The single addresses that our rules let out to, by what they are for."""
    known: dict[str, list[str]] = {}
    for rule in ours:
        addresses = known.setdefault(rule["comment"].removeprefix(OURS), [])
        addresses += addresses_of(rule.get("dest", ""), asks=False)
    return known


def _rules(reaches: Iterable[str], card: str, known: Mapping[str, Sequence[str]], *, asks: bool) -> list[Rule]:
    """The rules; a name that nobody knows now stays what was ``known``. ``card``: as Proxmox writes it.

    A place that has no address yet has a rule that is switched off. ``asks``: whether it is asked where names lead.
    """
    rules = [_rule(PUBLIC, dest=one) for one in _public(card)]
    rules.append(_rule(NAMES, proto="udp", dport="53"))
    rules.append(_rule(NAMES, proto="tcp", dport="53"))
    rules.append(_rule(NEIGHBOURS, proto="icmpv6", dest="ff02::/16"))
    for place in sorted(reaches):
        host, _, port = place.rpartition(":")
        addresses = addresses_of(host.strip("[]"), asks=asks) or known.get(place, ())
        # One each: a rule has addresses of one version of IP only.
        rules += [_rule(place, proto="tcp", dport=port, dest=address) for address in addresses]
        if not addresses:
            rules.append(_rule(place, proto="tcp", dport=port, enable="0"))
    return rules


def _public(card: str) -> Iterator[str]:
    """What is public and not of a network that the card's option says.

    Of IPv6 nothing is, where it says none: what a router gives the neighbours is not to be told from the internet.
    """
    network = network_of(card, mac=False)
    near, versions = set(), {4}
    for key in ("ip", "ip6"):
        if "/" in network.get(key, ""):
            written = ip_interface(network[key]).network
            near.add(str(written))
            versions.add(written.version)
    for one in public_ranges(near):
        if ip_address(one.partition("-")[0]).version in versions:
            yield one


def _rule(what: str, *, enable: str = "1", **matched: str) -> Rule:
    """A rule that lets out; Proxmox makes one that does not say ``enable`` switched off."""
    written = {"type": "out", "action": "ACCEPT", "enable": enable, "comment": f"{OURS}{what}", **matched}
    return dict(sorted(written.items()))
