"""Translate the container's network card between the file's options and Proxmox' ``net0``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.providers.proxmox.properties import joined, parts

CARD = "eth0"
_PLAIN = {"gateway": "gw", "ip6": "ip6", "gateway6": "gw6", "vlan": "tag", "mac": "hwaddr"}
_DECIDED = {"bridge", "ip", "gw", "ip6", "gw6", "tag", "firewall"}
_WITHOUT_ADDRESS = {"manual", ""}


def mapping_of(net: str, *, mac: bool) -> dict[str, Any]:
    """What the file would say of a card; its MAC address only where the file decides it."""
    values = parts(net)
    if not values:
        return {}
    address = values.get("ip", "none")
    card: dict[str, Any] = {
        "bridge": values.get("bridge", ""),
        "ip": "none" if address in _WITHOUT_ADDRESS else address,
        "firewall": values.get("firewall") == "1",
    }
    for option, key in _PLAIN.items():
        if values.get(key, "") not in _WITHOUT_ADDRESS:
            card[option] = values[key]
    if "vlan" in card:
        card["vlan"] = int(card["vlan"])
    mac_address = str(card.pop("mac", "")).upper()
    if mac:
        card["mac"] = mac_address
    return card


def option_for(wanted: Mapping[str, Any], current: str = "") -> str:
    """``net0`` as it is to be.

    What the file has no option for (rate, MTU) stays, and so does the MAC address unless the file decides it: without
    one Proxmox would give the card another one, and its DHCP server another address.
    """
    kept = {key: value for key, value in parts(current).items() if key not in _DECIDED}
    values = {"name": CARD, **kept}
    values["bridge"] = str(wanted["bridge"])
    values["ip"] = "manual" if wanted["ip"] == "none" else str(wanted["ip"])
    for option, key in _PLAIN.items():
        if option in wanted:
            values[key] = str(wanted[option])
    if wanted.get("firewall"):
        values["firewall"] = "1"
    values["type"] = "veth"
    return joined(values)


def is_same(one: str, other: str) -> bool:
    """Whether two cards are alike, in whatever order they are written."""
    return _normal(one) == _normal(other)


def released(net: str) -> str:
    """The card of a copy: an address that another one has is asked for anew."""
    given = parts(net)
    for key, gateway, instead in (("ip", "gw", "dhcp"), ("ip6", "gw6", "auto")):
        if "/" in given.get(key, ""):
            given[key] = instead
            given.pop(gateway, None)
    return joined(given)


def _normal(net: str) -> dict[str, str]:
    given = {"ip": "manual", "ip6": "manual", "firewall": "0", "type": "veth", **parts(net)}
    return {**given, "hwaddr": given.get("hwaddr", "").upper()}
