"""What the firewall of Proxmox holds containers to: rules that are written, read back, and mended where changed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from provisioner.hosts.base import addresses_of
from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.hosts.proxmox.access import Access
from provisioner.labfile.hosts import behind_firewall
from provisioner.values.errors import ProviderError
from provisioner.values.plan import differences
from provisioner.values.state import Instance
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.firewall import Firewall
from tests.unit.hosts.proxmox.box import LAB, guest, wanted
from tests.unit.hosts.proxmox.plans import limited

REACHES = ("192.168.1.20:8123", "[fd00::20]:443")
CARD: dict[str, Any] = {"bridge": "vmbr0", "ip": "dhcp", "firewall": True}
WITH_6 = {**CARD, "ip": "9.9.9.7/24", "gateway": "9.9.9.1", "ip6": "2a02:1::7/64"}

LET_OUT: list[tuple[Any, ...]] = [
    ("192.168.1.20", 8123),
    ("fd00::20", 443),
    ("8.8.8.8", 443, "udp"),
    ("223.255.255.255", 80),
    ("192.168.1.1", 53, "udp"),
    ("fd00::1", 53),
    ("ff02::16", 0, "icmpv6"),
]
KEPT_FROM: list[tuple[Any, ...]] = [
    ("192.168.1.10", 8006),
    ("192.168.1.20", 22),
    ("192.168.1.1", 443),
    ("10.0.0.8", 8080),
    ("172.16.0.1", 443),
    ("100.64.0.1", 443),
    ("169.254.169.254", 80),
    ("224.0.0.1", 443),
    ("fd00::20", 444),
    ("fd00:ec2::254", 80),
    ("fe80::1", 80),
    ("2a02:1::8", 80),
    ("2606:4700::1", 443),
]


@pytest.fixture
def web(pve: Double, provider: ProxmoxProvider) -> Instance:
    """A container with an image, on a cluster whose firewall is on."""
    pve.world.firewall.options["enable"] = 1
    provider.create(wanted("web", settings={"network": CARD}))
    return wanted("web", reaches=REACHES)


def firewall(pve: Double, name: str = "web") -> Firewall:
    """What the double has of the container's firewall."""
    return pve.world.firewalls.setdefault(guest(pve, name).vmid, Firewall())


def seen(provider: ProxmoxProvider, name: str = "web") -> tuple[str, ...] | None:
    """What it is told to be held to."""
    found = provider.observe(LAB).instance(name)
    assert found is not None
    return found.reaches


def lets_out(pve: Double, address: str, port: int = 443, proto: str = "tcp") -> bool:
    """Whether something gets out, as ``ruleset_generate_vm_rules`` and the policy in pve-firewall's source have it."""
    found = firewall(pve)
    has_card = "firewall=1" in guest(pve, "web").config["net0"]
    if not (pve.world.firewall.options.get("enable") and found.options.get("enable") and has_card):
        return True
    for rule in found.rules:
        if rule["type"] == "out" and rule["enable"] and _matches(rule, address, port, proto):
            return bool(rule["action"] == "ACCEPT")
    return bool(found.options.get("policy_out", "ACCEPT") == "ACCEPT")


def _matches(rule: dict[str, Any], address: str, port: int, proto: str) -> bool:
    asked = ip_address(address)
    is_other = rule.get("proto", proto) != proto or int(rule.get("dport", port)) != port
    if is_other or "iface" in rule or "source" in rule:
        return False
    if "dest" not in rule:
        return True
    first, _, last = rule["dest"].partition("-")
    if not last:
        return asked in ip_network(first)
    ends = ip_address(first), ip_address(last)
    return ends[0].version == asked.version and int(ends[0]) <= int(asked) <= int(ends[1])


def test_it_is_held_and_that_is_read_back_and_not_written_twice(
    pve: Double, provider: ProxmoxProvider, web: Instance
) -> None:
    assert seen(provider) is None
    assert provider.network.confine(web) == ""
    assert seen(provider) == REACHES
    assert firewall(pve).options == {"enable": 1, "policy_in": "ACCEPT", "policy_out": "REJECT"}
    assert {rule["enable"] for rule in firewall(pve).rules} == {1}
    before = deepcopy(firewall(pve))
    provider.network.confine(web)
    assert firewall(pve) == before


def test_one_from_before_is_changed_once(pve: Double, provider: ProxmoxProvider) -> None:
    pve.world.firewall.options["enable"] = 1
    provider.create(wanted("web", settings={"network": {**CARD, "firewall": False}}))
    before = provider.observe(LAB).instance("web")
    assert before is not None
    held = replace(before, reaches=REACHES, settings=behind_firewall(before.settings))
    assert differences(before, held).keys() == {"reaches", "network"}
    provider.update(held)
    provider.network.confine(held)
    assert differences(provider.observe(LAB).instance("web"), held) == {}
    assert lets_out(pve, "8.8.8.8")
    assert not lets_out(pve, "192.168.1.10")


def test_it_is_let_out_to_what_the_file_connects_and_what_is_public(
    pve: Double, provider: ProxmoxProvider, web: Instance
) -> None:
    assert [one for one in KEPT_FROM if not lets_out(pve, *one)] == [], "without rules all is open"
    provider.network.confine(web)
    assert [one for one in LET_OUT if not lets_out(pve, *one)] == []
    assert [one for one in KEPT_FROM if lets_out(pve, *one)] == []


def test_the_card_says_which_networks_are_near(pve: Double, provider: ProxmoxProvider, web: Instance) -> None:
    """Only where it says one of IPv6 the neighbours' addresses can be told from the internet's."""
    provider.update(wanted("web", settings={"network": WITH_6}))
    provider.network.confine(web)
    assert seen(provider) == REACHES
    assert lets_out(pve, "2606:4700::1")
    assert lets_out(pve, "9.9.10.1")
    for near in ("2a02:1::8", "9.9.9.8", "fd00::1", "fe80::1"):
        assert not lets_out(pve, near)
    provider.update(wanted("web", settings={"network": CARD}))
    assert seen(provider) is None, "its rules are those of another network"
    provider.network.confine(web)
    assert not lets_out(pve, "2a02:2::1")


def test_what_somebody_changed_is_found_and_mended(pve: Double, provider: ProxmoxProvider, web: Instance) -> None:
    provider.network.confine(web)
    before = deepcopy(firewall(pve))
    of_options: list[dict[str, Any]] = [{"enable": 0}, {"policy_out": "ACCEPT"}]
    of_rules: list[dict[str, Any]] = [{"enable": 0}, {"dest": "10.0.0.0/8"}, {"iface": "net1"}, {"action": "REJECT"}]
    for number, change in enumerate(of_options + of_rules):
        changed = firewall(pve).rules[-1] if number >= len(of_options) else firewall(pve).options
        changed |= change
        assert seen(provider) is None, change
        provider.network.confine(web)
        assert firewall(pve).options == before.options
        assert all(rule in firewall(pve).rules for rule in before.rules), change
        assert len(firewall(pve).rules) == len(before.rules)
        assert seen(provider) == REACHES


def test_a_rule_that_somebody_deleted_or_a_card_without_its_firewall_is_found(
    pve: Double, provider: ProxmoxProvider, web: Instance
) -> None:
    provider.network.confine(web)
    for place in (0, 5):
        del firewall(pve).rules[place]
        assert seen(provider) != REACHES
        provider.network.confine(web)
        assert seen(provider) == REACHES
    card = guest(pve, "web").config
    card["net0"] = card["net0"].replace("firewall=1", "firewall=0")
    assert seen(provider) is None


def test_what_others_have_written_stays_where_it_is(pve: Double, provider: ProxmoxProvider, web: Instance) -> None:
    theirs = {"type": "in", "action": "DROP", "proto": "tcp", "dport": "22", "comment": "provisioned by me"}
    for _ in range(2):
        firewall(pve).add({**theirs, "enable": "1"})
    firewall(pve).options = {"policy_in": "DROP", "policy_out": "DROP", "enable": 1, "dhcp": 0}
    before = deepcopy(firewall(pve))
    provider.network.confine(web)
    assert seen(provider) == REACHES, "a policy that drops holds as well"
    firewall(pve).add({**theirs, "comment": "another"})
    provider.network.confine(replace(web, reaches=("192.168.1.21:80",)))
    assert seen(provider) == ("192.168.1.21:80",)
    assert firewall(pve).options == before.options
    provider.network.confine(replace(web, reaches=None))
    kept = [rule.get("comment") for rule in firewall(pve).rules]
    assert kept == ["another", "provisioned by me", "provisioned by me"]
    assert firewall(pve).options == before.options


def test_without_code_of_others_nothing_is_left_that_refuses(
    pve: Double, provider: ProxmoxProvider, web: Instance
) -> None:
    provider.network.confine(web)
    provider.network.confine(replace(web, reaches=None))
    assert firewall(pve).rules == []
    assert firewall(pve).options == {"enable": 1, "policy_in": "ACCEPT"}
    assert lets_out(pve, "10.0.0.1")


def test_a_release_that_is_cut_off_leaves_a_way_out(
    pve: Double, provider: ProxmoxProvider, web: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.network.confine(web)
    monkeypatch.setattr(Firewall, "remove", lambda *_: 1 / 0)
    with pytest.raises(ProviderError):
        provider.network.confine(replace(web, reaches=None))
    assert "policy_out" not in firewall(pve).options, "rules alone refuse nothing"
    monkeypatch.undo()
    provider.network.confine(replace(web, reaches=None))
    assert firewall(pve).rules == []


def test_who_has_switched_a_firewall_on_decides_who_comes_in(
    pve: Double, provider: ProxmoxProvider, web: Instance
) -> None:
    """Without ``policy_in`` it lets in nobody but those of its rules."""
    firewall(pve).options = {"enable": 1}
    provider.network.confine(web)
    assert firewall(pve).options == {"enable": 1, "policy_out": "REJECT"}
    assert seen(provider) == REACHES


def test_a_further_card_that_is_not_held_is_told(pve: Double, provider: ProxmoxProvider, web: Instance) -> None:
    assert provider.network.confine(web) == ""
    config = guest(pve, "web").config
    config["net1"] = "name=eth1,bridge=vmbr1,firewall=1"
    assert provider.network.confine(web) == ""
    config["net1"] = "name=eth1,bridge=vmbr1"
    assert "net1 without firewall=1" in provider.network.confine(web)


def test_one_that_never_was_held_is_not_written_to(pve: Double, provider: ProxmoxProvider, web: Instance) -> None:
    firewall(pve).options = {"policy_out": "REJECT"}
    provider.network.confine(replace(web, reaches=None))
    assert firewall(pve) == Firewall({"policy_out": "REJECT"})


def test_what_is_written_before_a_run_is_cut_off_opens_nothing(
    pve: Double, provider: ProxmoxProvider, web: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rules first, the policy last: what is refused comes with the last write, and not one rule of ours refuses."""
    monkeypatch.setattr(Firewall, "change", lambda *_: 1 / 0)
    with pytest.raises(ProviderError):
        provider.network.confine(web)
    assert {rule["action"] for rule in firewall(pve).rules} == {"ACCEPT"}
    assert lets_out(pve, "10.0.0.1"), "as before"
    monkeypatch.undo()
    provider.network.confine(web)
    assert seen(provider) == REACHES


def test_somebody_who_writes_at_the_same_moment_loses_nothing(
    pve: Double, provider: ProxmoxProvider, web: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.network.confine(web)
    theirs = {"type": "in", "action": "ACCEPT", "enable": "1"}
    remove = Firewall.remove

    def raced(found: Firewall, place: int, digest: str) -> None:
        monkeypatch.undo()
        found.add(theirs)
        remove(found, place, digest)

    monkeypatch.setattr(Firewall, "remove", raced)
    with pytest.raises(ProviderError, match="Unable to keep container web in") as caught:
        provider.network.confine(replace(web, reaches=()))
    assert "Somebody else changed it at the same moment" in caught.value.resolution
    provider.network.confine(replace(web, reaches=()))
    assert [rule for rule in firewall(pve).rules if "comment" not in rule] == [{**theirs, "enable": 1}]
    assert seen(provider) == ()


def test_names_lead_to_addresses_of_either_kind_and_an_unknown_one_is_no_way_out(
    pve: Double, provider: ProxmoxProvider, web: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"nas.home": ["192.168.1.9", "fd00::9"]}

    def asked(host: str, *, asks: bool) -> list[str]:
        return known[host] if asks and host in known else addresses_of(host, asks=False)

    monkeypatch.setattr("provisioner.hosts.proxmox.network.addresses_of", asked)
    held = replace(web, reaches=("nas.home:445", "voice:8880"))
    provider.network.confine(held)
    assert seen(provider) == held.reaches
    assert lets_out(pve, "192.168.1.9", 445)
    assert lets_out(pve, "fd00::9", 445)
    assert not lets_out(pve, "192.168.1.9", 8880)
    known.clear()
    provider.network.confine(held)
    assert lets_out(pve, "192.168.1.9", 445), "an address that nobody knows now stays what it was"
    for rule in firewall(pve).rules:
        if rule.get("dest") == "192.168.1.9":
            rule["dest"] = "192.168.0.0/16"
    assert seen(provider) is None, "no name leads to a network"


def test_a_cluster_without_a_firewall_holds_nothing(pve: Double, provider: ProxmoxProvider, web: Instance) -> None:
    assert provider.observe(LAB).hosts["box"].confines
    provider.network.confine(web)
    pve.world.firewall.options["enable"] = 0
    assert not provider.observe(LAB).hosts["box"].confines
    assert seen(provider) is None
    del pve.world.firewall.options["enable"]
    assert not provider.observe(LAB).hosts["box"].confines


def test_who_may_not_look_at_the_cluster_is_told_of_none(pve: Double, access: Access, web: Instance) -> None:
    assert web
    may = ProxmoxProvider("box", access=limited(pve, access))
    assert may.observe(LAB).hosts["box"].confines
    not_may = replace(access, node="pve1")
    pve.world.access.permissions.grants.clear()
    not_may = replace(limited(pve, not_may, without=frozenset({"Sys.Audit"})), node="pve1")
    assert not ProxmoxProvider("box", access=not_may).observe(LAB).hosts["box"].confines


def test_its_rules_go_with_it_and_a_copy_is_held_as_well(pve: Double, provider: ProxmoxProvider, web: Instance) -> None:
    provider.network.confine(web)
    provider.clone(web, "copy")
    assert seen(provider, "copy") == REACHES
    vmid = guest(pve, "web").vmid
    provider.delete(web)
    assert vmid not in pve.world.firewalls


def test_what_is_not_of_the_lab_is_not_touched(pve: Double, provider: ProxmoxProvider, web: Instance) -> None:
    assert web
    pve.world.add_guest(300, "pve1", hostname="theirs", net0="name=eth0,bridge=vmbr0,firewall=1")
    with pytest.raises(ProviderError, match="Unable to keep container theirs in"):
        provider.network.confine(replace(web, name="theirs"))
    assert 300 not in pve.world.firewalls
