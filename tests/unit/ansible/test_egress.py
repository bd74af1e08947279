"""The program that keeps a service in: its rules, and what it makes of names and routes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.ansible.switch_programs import program

egress = program("egress", "egress")
PAGES: dict[str, dict[str, Any]] = {
    "nothing": {"reaches": [], "urls": []},
    "engine by its address": {"reaches": [], "urls": ["http://10.0.0.7:8080/v1", "http://[fd00::7]:80/v1"]},
    "engine by its name": {"reaches": ["192.168.1.20:8123"], "urls": ["http://llama.incus:8080/v1"]},
    "internet": {"reaches": ["internet", "[fd00::20]:443"], "urls": ["https://api.example/v1"]},
}
ADDRESSES = {
    "10.0.0.7": ["10.0.0.7"],
    "fd00::7": ["fd00::7"],
    "192.168.1.20": ["192.168.1.20"],
    "llama.incus": ["10.0.0.8", "10.0.0.9", "fd00::8"],
    "fd00::20": ["fd00::20"],
}


@pytest.mark.parametrize("kind", ["user", "container"])
@pytest.mark.parametrize("name", PAGES)
def test_the_rules(name: str, kind: str, snapshot: SnapshotAssertion) -> None:
    page = {"user": "", "container": "", **PAGES[name], kind: "web"}
    assert egress.ruleset("open-webui", page, ADDRESSES, ["10.0.0.1", "fd00::1"], ["2001:db8:1::/64"]) == snapshot


def test_a_name_that_nobody_resolves_keeps_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(host: str, *_: Any, **__: Any) -> list[Any]:
        if host == "gone":
            raise socket.gaierror
        return [(0, 0, 0, "", ("10.0.0.2", 0)), (0, 0, 0, "", ("10.0.0.1", 0)), (0, 0, 0, "", ("10.0.0.2", 0))]

    monkeypatch.setattr(egress.socket, "getaddrinfo", answer)
    found = egress.resolved(["there", "gone", "gone"], {"gone": ["10.0.0.5"], "old": ["10.0.0.6"]})
    assert found == {"there": ["10.0.0.1", "10.0.0.2"], "gone": ["10.0.0.5"]}


def test_servers_of_names_are_those_elsewhere(tmp_path: Path) -> None:
    for name, text in (("a", "nameserver 127.0.0.53\nsearch x\n"), ("b", "nameserver 10.0.0.1\nnameserver fd00::1\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert egress.name_servers([tmp_path / "a", tmp_path / "none", tmp_path / "b"]) == ["10.0.0.1", "fd00::1"]


def test_networks_of_ipv6_that_the_machine_is_in() -> None:
    zero = "0" * 32
    prefix = "20010db8000100000000000000000000"
    table = "\n".join(
        f"{target} {length} {zero} 00 {gateway} 00000400 00000001 00000000 00000001 eth0"
        for target, length, gateway in (
            (prefix, "40", zero),
            (prefix[:-4] + "0007", "80", zero),
            ("fe80" + "0" * 28, "40", zero),
            (zero, "00", "fe80" + "0" * 27 + "1"),
            ("20010db8000200000000000000000000", "40", "fe80" + "0" * 27 + "1"),
        )
    )
    assert egress.near_networks(table) == ["2001:db8:1::/64"]


def test_gateways_are_those_of_the_default_routes() -> None:
    table = "Iface Destination Gateway\neth0 00000000 014D590A 0003\neth0 004D590A 00000000 0001\n"
    assert egress.gateways(table) == ["10.89.77.1"]


@pytest.mark.parametrize("arguments", [[], ["load"], ["prove", "../x"], ["run", "web"], ["load", "Web"]])
def test_what_is_no_command_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert egress.main(arguments) == 2
    assert "usage" in capsys.readouterr().err
