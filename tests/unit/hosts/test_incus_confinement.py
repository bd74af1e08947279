"""What hosts hold containers to: rules that are written, read back, and found where somebody changed them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from provisioner.hosts.base import PRIVATE
from provisioner.hosts.incus.api import WireError
from provisioner.hosts.incus.inside import IncusHost
from provisioner.hosts.incus.network import ACLS, REFUSED, Network, name_of, released
from provisioner.hosts.incus.translate import LAB
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance
from tests.unit.ansible.switch_programs import program

CARD = {"type": "nic", "network": "br0", "name": "eth0"}
ROOT = {"type": "disk", "path": "/", "pool": "default"}
REACHES = ("192.168.1.20:8123", "[fd00::20]:443", "llama.incus:8080")
WEB = Instance("web", "box", "home", "debian/13", reaches=REACHES)
ACL = name_of("home", "web")
SERVER = {
    "api_extensions": ["network_acl", "network_bridge_acl_devices"],
    "environment": {"firewall": "nftables", "kernel_version": "6.1"},
}
NO_CONNTRACK = "Failed adding bridge filter rules for instance device: ct state: Protocol error"


class Incus:
    """An Incus in memory: networks, lists of rules, and containers, as its API says them."""

    def __init__(self) -> None:
        self.network = {"ipv4.address": "10.0.0.1/24", "ipv6.address": "fd42::1/64"}
        self.lists: dict[str, dict[str, Any]] = {}
        self.addresses = {"llama": "10.0.0.7"}
        self.server: dict[str, Any] = deepcopy(SERVER)
        self.forbids = False
        self.refuses = ""
        self.writes = 0
        body = dict.fromkeys(("architecture", "description", "ephemeral", "profiles", "stateful"))
        self.web: dict[str, Any] = {**body, "name": "web", "config": {}, "devices": {}, "status": "Running"}

    def get(self, *path: str, **_: str) -> Any:
        """Return what is there."""
        if path[:1] == ("network-acls",) and self.forbids:
            raise WireError(HTTPStatus.FORBIDDEN, "not authorized")
        if path == ("network-acls",):
            return deepcopy(list(self.lists.values()))
        whole = {**self.web, "expanded_devices": {"eth0": CARD, **self.web["devices"]}}
        found = {(): self.server, ("networks", "br0"): {"config": self.network}, ("instances", "web"): whole}
        return deepcopy(found[path])

    def get_tagged(self, *path: str) -> tuple[Any, str]:
        """Return the same with a tag."""
        return self.get(*path), "tag"

    def find(self, *path: str, **_: str) -> Any:
        """Return what is there, None for nothing."""
        if path[0] == "instances" and path[-1] == "state":
            addresses = [{"family": "inet", "scope": "global", "address": self.addresses.get(path[1])}]
            return {"network": {"eth0": {"addresses": addresses if path[1] in self.addresses else []}}}
        if self.forbids:
            raise WireError(HTTPStatus.FORBIDDEN, "not authorized")
        return deepcopy(self.lists.get(path[1]))

    def write(self, method: str, *path: str, body: Mapping[str, Any] | None = None) -> None:
        """Make, replace or delete a list."""
        self.writes += 1
        if method == "delete":
            del self.lists[path[1]]
        else:
            if method == "post" and ACL in self.lists:
                raise WireError(HTTPStatus.CONFLICT, "The network ACL already exists")
            self.lists[ACL] = {**deepcopy(dict(body or {})), "name": ACL}

    def change(self, _method: str, *_path: str, body: Mapping[str, Any], **_: str) -> None:
        """Change the container, unless the kernel refuses its list."""
        if self.refuses and ACLS in body["devices"].get("eth0", {}):
            raise WireError(HTTPStatus.BAD_REQUEST, self.refuses)
        self.web |= deepcopy(dict(body))


@pytest.fixture
def incus() -> Incus:
    return Incus()


def network(incus: Any, card: Mapping[str, str] = CARD) -> Network:
    host = IncusHost("box")
    host.client = incus
    host.profile_devices = {"root": ROOT, "eth0": card}
    return Network(host)


def seen(incus: Incus) -> Any:
    """What is told of the container: nothing at all, or what it is held to and what refuses that."""
    told = network(incus).read("home", incus.server, [incus.get("instances", "web")])
    return None if told is None else told.get("web")


def held(incus: Incus, one: Instance = WEB) -> str:
    return network(incus).confine(one)


def is_in(address: str, place: str) -> bool:
    """Whether an address is in a network or a range, as lists write them."""
    first, _, last = place.partition("-")
    if not last:
        return ip_address(address) in ip_network(place)
    ends = ip_address(first), ip_address(last)
    return ends[0].version == ip_address(address).version and int(ends[0]) <= int(ip_address(address)) <= int(ends[1])


def lets_out(incus: Incus, address: str, port: str = "443", protocol: str = "tcp") -> bool:
    """Whether a rule of the list is for that."""
    for rule in incus.lists[ACL]["egress"]:
        if rule["state"] == "disabled":
            continue
        is_there = any(is_in(address, one) for one in rule["destination"].split(","))
        ports = rule.get("destination_port", port).split(",")
        if is_there and rule.get("protocol", protocol) == protocol and port in ports:
            return True
    return False


def test_a_container_is_held_to_what_it_reaches_and_that_is_read_back(incus: Incus) -> None:
    assert seen(incus) is None
    assert held(incus) == ""
    assert seen(incus) == {"reaches": REACHES, "refused_by": ""}
    assert incus.web["devices"]["eth0"] == {
        **CARD,
        ACLS: ACL,
        f"{ACLS}.default.egress.action": "reject",
        f"{ACLS}.default.ingress.action": "allow",
    }
    writes = incus.writes
    assert held(incus) == ""
    assert incus.writes == writes, "nothing is written twice"


@pytest.mark.parametrize(
    ("address", "port", "protocol"),
    [
        ("10.0.0.7", "8080", "tcp"),
        ("192.168.1.20", "8123", "tcp"),
        ("fd00::20", "443", "tcp"),
        ("8.8.8.8", "443", "udp"),
        ("2606:4700::1", "443", "tcp"),
        ("10.0.0.1", "53", "udp"),
        ("10.0.0.1", "67", "udp"),
        ("255.255.255.255", "67", "udp"),
        ("fd42::1", "53", "tcp"),
    ],
)
def test_it_is_let_out_to(incus: Incus, address: str, port: str, protocol: str) -> None:
    held(incus)
    assert lets_out(incus, address, port, protocol)


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("10.0.0.1", "22"),
        ("10.0.0.1", "8443"),
        ("10.0.0.7", "8081"),
        ("10.0.0.8", "8080"),
        ("169.254.169.254", "80"),
        ("192.168.1.20", "22"),
        ("192.168.1.1", "443"),
        ("172.16.0.1", "443"),
        ("100.64.0.1", "443"),
        ("127.0.0.1", "443"),
        ("224.0.0.1", "443"),
        ("fd42::1", "8443"),
        ("fd00:ec2::254", "80"),
        ("fe80::1", "80"),
        ("::1", "80"),
    ],
)
def test_it_is_not_let_out_to(incus: Incus, address: str, port: str) -> None:
    held(incus)
    assert not lets_out(incus, address, port)


def test_a_bridge_with_public_addresses_is_near_and_not_the_internet(incus: Incus) -> None:
    incus.network = {"ipv4.address": "8.8.8.1/24", "ipv6.address": "2001:db8:1::1/64"}
    held(incus)
    assert not lets_out(incus, "8.8.8.1")
    assert not lets_out(incus, "2001:db8:1::7")
    assert lets_out(incus, "8.8.9.1")
    assert lets_out(incus, "2001:db8:2::7")


def test_what_is_private_is_said_in_the_same_way_as_inside() -> None:
    assert program("egress", "egress").PRIVATE == PRIVATE


def test_what_somebody_changed_is_not_told_as_held_and_is_mended(incus: Incus) -> None:
    held(incus)
    before = deepcopy(incus.lists[ACL])
    incus.lists[ACL]["egress"].append({"action": "allow", "destination": "10.0.0.0/8", "state": "enabled"})
    assert seen(incus) is None
    held(incus)
    assert incus.lists[ACL] == before
    del incus.web["devices"]["eth0"][ACLS]
    assert seen(incus) is None
    held(incus)
    incus.web["devices"]["eth0"][f"{ACLS}.default.egress.action"] = "allow"
    assert seen(incus) is None
    held(incus)
    assert seen(incus)["reaches"] == REACHES


def test_another_address_of_a_container_is_found_and_an_unknown_one_stays(incus: Incus) -> None:
    held(incus)
    del incus.addresses["llama"]
    assert seen(incus)["reaches"] == REACHES
    incus.addresses["llama"] = "10.0.0.9"
    assert seen(incus) is None
    held(incus)
    assert lets_out(incus, "10.0.0.9", "8080")
    assert not lets_out(incus, "10.0.0.7", "8080")


def test_a_name_that_nobody_knows_yet_is_no_way_out(incus: Incus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("192.168.1.9", 0))])
    reaches = ("nas.home:445", "voice.incus:8880")
    held(incus, replace(WEB, reaches=reaches))
    assert seen(incus)["reaches"] == reaches
    assert lets_out(incus, "192.168.1.9", "445")
    assert incus.lists[ACL]["egress"][-1] == {
        "action": "allow",
        "protocol": "tcp",
        "destination_port": "8880",
        "description": "voice.incus:8880",
        "state": "disabled",
    }


def test_a_kernel_that_refuses_is_noted_until_there_is_another_one(incus: Incus) -> None:
    incus.refuses = NO_CONNTRACK
    assert held(incus) == NO_CONNTRACK
    assert seen(incus) == {"reaches": REACHES, "refused_by": "kernel 6.1"}
    assert "eth0" not in incus.web["devices"]
    incus.server["environment"]["kernel_version"], incus.refuses = "6.12", ""
    assert seen(incus) is None
    assert held(incus) == ""
    assert seen(incus) == {"reaches": REACHES, "refused_by": ""}
    assert REFUSED not in incus.lists[ACL]["config"]


def test_another_refusal_is_an_error(incus: Incus) -> None:
    incus.refuses = "Network ACL not found"
    with pytest.raises(ProviderError, match="Unable to keep container web in\nNetwork ACL not found"):
        held(incus)


def test_a_list_that_is_not_of_the_lab_is_never_touched(incus: Incus) -> None:
    held(incus)
    incus.lists[ACL]["config"] = {LAB: "other"}
    before = deepcopy(incus.lists)
    assert seen(incus) is None
    with pytest.raises(ProviderError, match="already exists"):
        held(incus)
    network(incus).delete(WEB)
    assert incus.lists == before


def test_it_goes_with_its_container_and_off_the_card_where_nothing_is_kept_in(incus: Incus) -> None:
    held(incus)
    held(incus, replace(WEB, reaches=None))
    assert incus.web["devices"]["eth0"] == CARD
    network(incus).delete(WEB)
    assert incus.lists == {}
    network(incus).delete(WEB)


def test_lists_of_others_stay_on_the_card(incus: Incus) -> None:
    theirs = {"eth0": {**CARD, ACLS: "mine"}}
    incus.web["devices"] = dict(theirs)
    assert released(incus.web) == incus.web
    held(incus)
    assert incus.web["devices"]["eth0"][ACLS] == f"mine,{ACL}"
    assert seen(incus)["reaches"] == REACHES
    held(incus, replace(WEB, reaches=None))
    assert incus.web["devices"] == theirs


@pytest.mark.parametrize(
    ("server", "card"),
    [
        ({**SERVER, "api_extensions": ["network_acl"]}, CARD),
        ({**SERVER, "environment": {"firewall": "xtables", "kernel_version": "6.1"}}, CARD),
        (SERVER, {"type": "nic", "nictype": "bridged", "parent": "br0"}),
        (SERVER, {}),
    ],
)
def test_a_host_that_cannot_says_so(incus: Incus, server: dict[str, Any], card: dict[str, str]) -> None:
    assert network(incus, card).read("home", server, []) is None


def test_who_may_not_see_lists_has_none(incus: Incus) -> None:
    incus.forbids = True
    assert network(incus).read("home", incus.server, []) is None
    network(incus).delete(WEB)


def test_a_long_name_is_told_apart_by_its_end() -> None:
    names = {name_of(lab, one) for lab in ("a", "b") for one in ("x" * 63, "x" * 62 + "y")}
    assert len(names) == 4
    assert {len(name) for name in names} == {63}
