"""The own firewall of a container, ``/etc/pve/firewall/VMID.fw``: options that were set, and rules in their order.

Facts: pve-firewall's ``Firewall.pm`` (``verify_rule``, ``copy_list_with_digest``, ``load_vmfw_conf``) and
``API2/Firewall/Rules.pm``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.proxmox.errors import bad_parameters, died
from tests.doubles.proxmox.formats import ALIAS, address_version

WITH_PORTS = {"tcp", "udp", "sctp", "dccp", "udplite"}
VERSIONS = {"icmp": 4, "icmpv6": 6, "ipv6-icmp": 6}
DIRECTIONS = ("in", "out", "group")
ACTIONS = ("ACCEPT", "DROP", "REJECT")

Rule = dict[str, Any]


@dataclass
class Firewall:
    """What the file says; of a container that has none, nothing."""

    options: dict[str, Any] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)

    @property
    def shown_options(self) -> dict[str, Any]:
        """What was set, and nothing of what holds by default."""
        return {**self.options, "digest": _digest(self.options)}

    @property
    def shown_rules(self) -> list[Rule]:
        """The rules by their places, each with the digest of all."""
        digest = _digest(*self.rules)
        return [{**rule, "pos": place, "digest": digest} for place, rule in enumerate(self.rules)]

    def add(self, given: Mapping[str, str]) -> None:
        """One more rule, before all others, whatever ``pos`` says; it does nothing unless it says ``enable``."""
        rule: Rule = {name: value for name, value in given.items() if value not in ("", "-")}
        rule["enable"] = int(given.get("enable", "0"))
        comment = given.get("comment", "").strip()
        rule.pop("comment", None)
        if comment:
            rule["comment"] = comment
        _verify(rule)
        self.rules.insert(0, rule)

    def remove(self, place: int, digest: str) -> None:
        """Delete the rule at a place; with a digest only where nothing has changed since."""
        if digest and digest != _digest(*self.rules):
            raise died("detected modified configuration - file changed by other user? Try again.")
        if place >= len(self.rules):
            raise died(f"no rule at position {place}")
        del self.rules[place]

    def change(self, given: Mapping[str, Any], doomed: list[str], digest: str) -> None:
        """Set options, and forget others."""
        if digest and digest != _digest(self.options):
            raise died("detected modified configuration - file changed by other user? Try again.")
        for name in doomed:
            self.options.pop(name, None)
        self.options.update(given)


def _digest(*entries: Mapping[str, Any]) -> str:
    text = "".join(f"{name}:{entry[name]}\n" for entry in entries for name in sorted(entry))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _verify(rule: Rule) -> None:
    """Refuse what Proxmox refuses, and add the version of IP that a rule is for."""
    if rule["type"] not in DIRECTIONS:
        raise bad_parameters({"type": f"invalid rule type '{rule['type']}' for rule_env 'ct'"})
    if rule["type"] != "group" and rule["action"] not in ACTIONS:
        raise bad_parameters({"action": f"unknown action '{rule['action']}'"})
    for name in rule.keys() & {"dport", "sport"}:
        if "proto" not in rule:
            raise bad_parameters({"proto": f"missing property - '{name}' requires this property"})
        if rule["proto"] not in WITH_PORTS:
            raise bad_parameters({name: f"protocol '{rule['proto']}' does not support ports"})
    versions = _versions(rule)
    if len(versions) > 1:
        raise bad_parameters({"dest": "detected mixed ipv4/ipv6 addresses in rule"})
    for version in versions:
        rule["ipversion"] = version


def _versions(rule: Rule) -> set[int]:
    """The versions of IP that its protocol and its addresses are of; no name leads anywhere here."""
    versions = {VERSIONS.get(rule.get("proto", ""), 0)}
    for name in rule.keys() & {"source", "dest"}:
        if ALIAS.fullmatch(rule[name]):
            raise bad_parameters({name: f"no such alias '{rule[name]}'"})
        versions.add(address_version(rule[name]))
    return versions - {0}
