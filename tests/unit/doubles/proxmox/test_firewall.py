"""The own firewall of a container: in which order rules come to stand, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doubles.proxmox import Double
from tests.doubles.proxmox.client import Hand, Reply, root

AT = "/nodes/pve1/lxc/105/firewall"
OUT = {"type": "out", "action": "ACCEPT"}


@pytest.fixture
def hand(pve: Double) -> Hand:
    pve.world.add_guest(105, "pve1")
    return root(pve)


def added(hand: Hand, **given: Any) -> Reply:
    return hand.ask("POST", f"{AT}/rules", **{**OUT, **given})


def rules(hand: Hand) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = hand.ask("GET", f"{AT}/rules").json["data"]
    return found


def test_a_new_rule_comes_first_wherever_it_was_wanted_and_is_switched_off(hand: Hand) -> None:
    """``create_rule`` in pve-firewall's ``API2/Firewall/Rules.pm``: ``unshift``, and ``enable`` 0 by default."""
    assert added(hand, comment="first").status == 200
    assert added(hand, comment=" second ", pos=1, enable=1).status == 200
    assert [(rule["pos"], rule["comment"], rule["enable"]) for rule in rules(hand)] == [
        (0, "second", 1),
        (1, "first", 0),
    ]


def test_a_digest_covers_all_rules_and_a_deletion_with_an_old_one_is_refused(hand: Hand) -> None:
    """``assert_if_modified`` in ``delete_rule``, ``copy_list_with_digest`` in ``Firewall.pm``."""
    added(hand, comment="first")
    digest = rules(hand)[0]["digest"]
    added(hand, comment="second")
    reply = hand.ask("DELETE", f"{AT}/rules/0", digest=digest)
    assert reply.line == "500 detected modified configuration - file changed by other user? Try again."
    assert hand.ask("DELETE", f"{AT}/rules/0").status == 200
    assert [rule["comment"] for rule in rules(hand)] == ["first"]
    assert hand.ask("DELETE", f"{AT}/rules/7").line == "500 no rule at position 7"


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        ({"dport": "80"}, {"proto": "missing property - 'dport' requires this property"}),
        ({"dport": "80", "proto": "icmp"}, {"dport": "protocol 'icmp' does not support ports"}),
        ({"dest": "nas"}, {"dest": "no such alias 'nas'"}),
        ({"type": "forward"}, {"type": "invalid rule type 'forward' for rule_env 'ct'"}),
        ({"action": "ALLOW"}, {"action": "unknown action 'ALLOW'"}),
        ({"dest": "fd00::1", "proto": "icmp"}, {"dest": "detected mixed ipv4/ipv6 addresses in rule"}),
    ],
)
def test_a_rule_that_cannot_be_is_refused(hand: Hand, given: dict[str, Any], errors: dict[str, str]) -> None:
    """``verify_rule`` and ``parse_address_list`` in ``Firewall.pm``."""
    reply = added(hand, **given)
    assert reply.status == 400
    assert reply.json["errors"] == errors
    assert rules(hand) == []


@pytest.mark.parametrize(
    ("dest", "words"),
    [
        ("10.0.0.1,fd00::1", "detected mixed ipv4/ipv6 addresses in address list"),
        ("10.0.0.1,10.0.1.1-10.0.1.9", "you can't use a range in a list"),
        ("192.168.1.7/24", "invalid IP address"),
    ],
)
def test_an_address_that_is_none(hand: Hand, dest: str, words: str) -> None:
    assert words in added(hand, dest=dest).json["errors"]["dest"]


def test_a_version_of_ip_is_told_that_nobody_wrote(hand: Hand) -> None:
    for given in ({"dest": "10.0.0.1-10.0.0.9"}, {"dest": "fd00::/8"}, {"proto": "icmpv6"}, {"proto": "tcp"}):
        added(hand, **given)
    assert [rule.get("ipversion") for rule in rules(hand)] == [None, 6, 6, 4]


def test_options_are_those_that_were_set(hand: Hand) -> None:
    """``set_options`` in ``API2/Firewall/VM.pm``; a guest that has no file has a digest of nothing."""
    empty = hand.ask("GET", f"{AT}/options").json["data"]
    assert empty == {"digest": "da39a3ee5e6b4b0d3255bfef95601890afd80709"}
    assert hand.ask("PUT", f"{AT}/options", enable=1, ndp=0, digest=empty["digest"]).status == 200
    found = hand.ask("GET", f"{AT}/options").json["data"]
    assert (found["enable"], found["ndp"]) == (1, 0)
    assert hand.ask("PUT", f"{AT}/options", delete="ndp", digest=empty["digest"]).status == 500
    assert hand.ask("PUT", f"{AT}/options", delete="ndp").status == 200
    assert "ndp" not in hand.ask("GET", f"{AT}/options").json["data"]
