"""Rules of nft on this machine, and whether they cut the bridge off; with real iptables: test_doctor_machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.incus import machine


def device(key: str, right: Any, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": {"meta": {"key": key}}, "right": right}}


def field(name: str, right: Any) -> dict[str, Any]:
    return {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": name}}, "right": right}}


STATE = {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}
ACCEPT: dict[str, Any] = {"accept": None}


def problem(*rules: list[dict[str, Any]], family: str = "ip", policy: str = "drop", hook: str = "forward") -> str:
    chain = {"family": family, "table": "filter", "name": "FORWARD", "hook": hook, "policy": policy}
    entries: list[dict[str, Any]] = [{"metainfo": {}}, {"chain": chain}]
    entries += [{"rule": {"family": family, "table": "filter", "chain": "FORWARD", "expr": one}} for one in rules]
    return machine.forwarding("box", "incusbr0", json.dumps({"nftables": entries})).problem


@pytest.mark.parametrize(
    "rule",
    [
        [ACCEPT],
        [device("iifname", "incusbr0"), ACCEPT],
        [device("iifname", "incus*"), ACCEPT],
        [device("iif", "incusbr0"), ACCEPT],
        [device("iifname", {"set": ["docker0", "incusbr0"]}), ACCEPT],
        [device("iifname", "docker0", "!="), ACCEPT],
        [device("iifname", "incusbr0"), device("oifname", "eth0"), ACCEPT],
        [field("saddr", "10.0.0.0/8"), ACCEPT],
        [{"vmap": {"key": {"meta": {"key": "iifname"}}, "data": {"set": [["incusbr0", {"accept": None}]]}}}],
    ],
)
def test_a_rule_that_may_let_the_bridge_through_is_no_finding(rule: list[dict[str, Any]]) -> None:
    assert problem(rule) == ""


@pytest.mark.parametrize(
    "rule",
    [
        [{"drop": None}],
        [STATE, ACCEPT],
        [device("iifname", "docker0"), ACCEPT],
        [device("iifname", {"set": ["docker0", "eth0"]}), ACCEPT],
        [device("iifname", "incusbr0", "!="), ACCEPT],
        [device("oifname", "docker0"), ACCEPT],
        [field("dport", 80), ACCEPT],
        [{"xt": {"type": "match", "name": "conntrack"}}, ACCEPT],
    ],
)
def test_a_rule_that_lets_something_else_through_is_none_for_the_bridge(rule: list[dict[str, Any]]) -> None:
    assert "chain FORWARD has the policy drop" in problem(rule)


@pytest.mark.parametrize(
    "words", [{"policy": "accept"}, {"hook": "input"}, {"family": "ip6"}, {"family": "bridge"}], ids=str
)
def test_other_chains_cut_nothing_off(words: dict[str, str]) -> None:
    assert problem(**words) == ""


def test_rules_that_take_too_long_to_be_listed_are_not_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = tmp_path / "nft"
    slow.write_text("#!/bin/sh\nexec sleep 60\n", encoding="ascii")
    slow.chmod(0o755)
    monkeypatch.setattr(machine, "PATHS", str(tmp_path))
    monkeypatch.setattr(machine, "LOOK_TIMEOUT_S", 0.2)
    assert shutil.which("nft", path=machine.PATHS)
    assert machine.ruleset() is None
