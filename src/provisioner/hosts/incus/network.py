"""Lists of access rules (network ACLs) on the network cards of containers that run code of others.

Such a list lets out to the servers of the bridge, to all that is public, and to what the file connects; its host
refuses the rest, whoever asks for it in the container. The host works them into rules for its bridge, for which its
kernel has to be able to follow connections on bridges: one that cannot refuses the list when it is put on a card. The
list is kept then, with the kernel's version on it, so that it is not tried again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from ipaddress import ip_interface
from typing import TYPE_CHECKING, Any

from provisioner.hosts import base
from provisioner.hosts.base import addresses_of, public_ranges
from provisioner.hosts.incus.api import WireError
from provisioner.hosts.incus.containers import Body, change
from provisioner.hosts.incus.translate import LAB, address_in, publications_of
from provisioner.values.state import Device, Instance

if TYPE_CHECKING:
    from provisioner.hosts.incus.inside import IncusHost

EXTENSION = "network_bridge_acl_devices"
NFTABLES = "nftables"
CARD = "eth0"
PATH = "network-acls"
REFUSED = "user.provisioner.refused"
"""The kernel that refused the list."""
NO_RULES = "Failed adding bridge filter rules"
"""In what Incus says where the kernel refuses them."""
ACLS = "security.acls"
OURS = "provision-"
KEYS = {f"{ACLS}.default.egress.action": "reject", f"{ACLS}.default.ingress.action": "allow"}
DOMAIN = ".incus"

Rule = dict[str, str]
Found = Mapping[str, Any]

NONE: Found = {"config": {}, "egress": []}
"""In the place of a list that is not there."""
UNSEEN: dict[str, Found] = {}
"""In the place of lists that this user may not see."""


def is_possible(server: Found, card: Found) -> bool:
    """Return whether an Incus takes such lists for that card, by its answer to ``/1.0``; its kernel may refuse them."""
    has_lists = EXTENSION in server.get("api_extensions", ()) and server["environment"].get("firewall") == NFTABLES
    return has_lists and "network" in card


def name_of(lab: str, container: str) -> str:
    """The name of a container's list: 63 characters at most, the last of which tell labs and long names apart."""
    return f"{OURS}{container[:40]}-{sha256(f'{lab}/{container}'.encode()).hexdigest()[:12]}"


class Network(base.Network):
    """The lists of the containers of one host, and the ports that it passes on to them."""

    _host: IncusHost

    def confine(self, instance: Instance) -> str:
        """Have the host hold a running container to what it ``reaches``; give its words where its kernel cannot."""
        with self._host.worded(f"Unable to keep container {instance.name} in"):
            if instance.reaches is None:
                change(self._host.client, instance.name, released, self._host.root_disk)
                return ""
            return self._hold(instance, instance.reaches)

    def _hold(self, instance: Instance, reaches: Iterable[str]) -> str:
        acl = name_of(instance.lab, instance.name)
        found = self._lists(instance.lab).get(acl, NONE)
        wanted = {
            "description": f"What container {instance.name} of lab {instance.lab} reaches",
            "egress": self._rules(reaches, found["egress"], asks=True),
            "ingress": [],
            "config": {LAB: instance.lab},
        }
        if found is NONE:
            self._host.client.write("post", PATH, body={"name": acl, **wanted})
        elif found != {**found, **wanted}:
            self._host.client.write("put", PATH, acl, body=wanted)
        held = partial(_held, acl=acl, card=self._host.network_card)
        try:
            change(self._host.client, instance.name, held, self._host.root_disk)
        except WireError as error:
            if NO_RULES not in str(error):
                raise
            mark = {LAB: instance.lab, REFUSED: _kernel(self._host.client.get())}
            self._host.client.write("put", PATH, acl, body={**wanted, "config": mark})
            return str(error)
        return ""

    def publications(self, name: str) -> tuple[Device, ...]:
        """Return the container's proxy devices, those of its profiles included."""
        with self._host.worded(f"Unable to look at the devices of container {name}"):
            found = self._host.whole(name)
        return () if found is None else publications_of(found)

    def delete(self, instance: Instance) -> None:
        """Delete the list of a container that is gone."""
        acl = name_of(instance.lab, instance.name)
        if acl in self._lists(instance.lab):
            self._host.client.write("delete", PATH, acl)

    def read(self, lab: str, server: Found, containers: Iterable[Found]) -> dict[str, dict[str, Any]] | None:
        """Return by container of a lab the attributes of an ``Instance`` that its list tells; None where it takes none.

        ``server`` is what ``/1.0`` answers. A container whose list is not on its card, or not as provision writes it,
        is left out.
        """
        if not is_possible(server, self._host.network_card):
            return None
        lists = self._lists(lab)
        if lists is UNSEEN:
            return None
        told = {}
        for container in containers:
            acl = name_of(lab, container["name"])
            found = lists.get(acl, NONE)
            card = container["expanded_devices"].get(CARD, {})
            refused_by = found["config"].get(REFUSED, "")
            is_there = refused_by == _kernel(server) or (acl in card.get(ACLS, "") and card.items() >= KEYS.items())
            reaches = tuple(filter(None, (rule.get("description") for rule in found["egress"])))
            if is_there and found["egress"] == self._rules(reaches, found["egress"], asks=False):
                told[container["name"]] = {"reaches": reaches, "refused_by": refused_by}
        return told

    def _lists(self, lab: str) -> dict[str, Found]:
        """Return the lists with the lab's mark by their names; none for a restricted user, or on an old Incus."""
        try:
            listed = self._host.client.get(PATH, recursion="1")
        except WireError as error:
            if error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                raise
            return UNSEEN
        return {one["name"]: one for one in listed if one["config"].get(LAB) == lab}

    def _rules(self, reaches: Iterable[str], before: Sequence[Rule], *, asks: bool) -> list[Rule]:
        """The rules, in the order in which they are written; an address that nobody knows now stays what it was.

        ``asks``: whether it is asked where names of the LAN lead by now.
        """
        page = self._host.client.get("networks", self._host.network_card["network"])["config"]
        servers = [ip_interface(page[key]) for key in ("ipv4.address", "ipv6.address") if "/" in page.get(key, "")]
        public = ",".join(public_ranges(str(server.network) for server in servers))
        rules = [
            {"action": "allow", "destination": public, "state": "enabled"},
            {"action": "allow", "destination": "ff02::/16", "protocol": "icmp6", "state": "enabled"},
            _allowed("255.255.255.255/32", "udp", "67"),
            _allowed("ff02::1:2/128", "udp", "547"),
        ]
        for server in servers:
            rules.append(_allowed(str(server.ip), "udp", "53,67"))
            rules.append(_allowed(str(server.ip), "tcp", "53"))
        known = {rule.get("description"): rule.get("destination") for rule in before}
        for written in sorted(reaches):
            host, _, port = written.rpartition(":")
            destination = ",".join(self._addresses(host.strip("[]"), asks=asks)) or known.get(written)
            rule = {**_allowed(str(destination), "tcp", port), "description": written}
            if not destination:
                del rule["destination"]
                rule["state"] = "disabled"
            rules.append(rule)
        return rules

    def _addresses(self, host: str, *, asks: bool) -> Iterable[str]:
        """Return the addresses of a host: itself, those of a container, or those that a name has for this machine."""
        if host.endswith(DOMAIN):
            state = self._host.client.find("instances", host.removesuffix(DOMAIN), "state")
            return filter(None, [address_in(state or {})])
        return addresses_of(host, asks=asks)


def _kernel(server: Found) -> str:
    return f"kernel {server['environment']['kernel_version']}"


def _allowed(destination: str, protocol: str, port: str) -> Rule:
    """The rule that lets out to a port."""
    return {
        "action": "allow",
        "destination": destination,
        "protocol": protocol,
        "destination_port": port,
        "state": "enabled",
    }


def _held(body: Body, *, acl: str, card: Mapping[str, str]) -> Body:
    """The body of a container with the list on its card beside those of others; the card is its own from then on."""
    own = released(body)["devices"].get(CARD, card)
    lists = ",".join(filter(None, (own.get(ACLS), acl)))
    return {**body, "devices": {**body["devices"], CARD: {**own, ACLS: lists, **KEYS}}}


def released(body: Body) -> Body:
    """The body of a container whose card bears no list of ours."""
    card = body["devices"].get(CARD, {})
    lists = card.get(ACLS, "").split(",")
    others = [one for one in lists if not one.startswith(OURS)]
    if others == lists:
        return body
    rest = {key: value for key, value in card.items() if key not in (ACLS, *KEYS)}
    if others:
        rest[ACLS] = ",".join(others)
    return {**body, "devices": {**body["devices"], CARD: rest}}
