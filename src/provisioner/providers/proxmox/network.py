"""The container's network card between the file's words and Proxmox' ``net0``. Pure."""

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
    given = parts(net)
    if not given:
        return {}
    found: dict[str, Any] = {"bridge": given.get("bridge", ""), "ip": given.get("ip", "none")}
    found["ip"] = "none" if found["ip"] in _WITHOUT_ADDRESS else found["ip"]
    found["firewall"] = given.get("firewall") == "1"
    for word, key in _PLAIN.items():
        if key in given and given[key] not in _WITHOUT_ADDRESS:
            found[word] = int(given[key]) if word == "vlan" else given[key]
    address = str(found.pop("mac", "")).upper()
    return found | ({"mac": address} if mac else {})


def option_for(wanted: Mapping[str, Any], current: str = "") -> str:
    """``net0`` as it is to be.

    What the file has no word for (rate, MTU) stays, and so does the MAC address unless the file decides it: without
    one Proxmox would give the card another one, and its DHCP server another address.
    """
    kept = {key: value for key, value in parts(current).items() if key not in _DECIDED}
    made = {"name": CARD, **kept, "bridge": str(wanted["bridge"])}
    made["ip"] = "manual" if wanted["ip"] == "none" else str(wanted["ip"])
    made |= {key: str(wanted[word]) for word, key in _PLAIN.items() if word in wanted}
    made |= {"firewall": "1"} if wanted.get("firewall") else {}
    return joined({**made, "type": "veth"})


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
