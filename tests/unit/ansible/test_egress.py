"""The program that keeps a service in: its rules, and what it makes of names and routes."""

from __future__ import annotations

import socket
import threading
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
    assert (
        egress.ruleset("open-webui", page, ADDRESSES, ["10.0.0.1", "fd00::1"], ["10.89.77.0/24", "2001:db8:1::/64"])
        == snapshot
    )


class Names:
    """A server of names that answers as the test says; ``...`` is an answer that takes long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> None:
        self.answers, self.over = answers, threading.Event()
        monkeypatch.setattr(egress.socket, "getaddrinfo", self)
        monkeypatch.setattr(egress, "RESOLVE_S", 0.2)

    def __call__(self, host: str, *_: Any, **__: Any) -> list[Any]:
        """Answer once."""
        answer = self.answers.get(host)
        if answer is ...:
            self.over.wait(20)
        if not isinstance(answer, list):
            raise socket.gaierror
        return [(0, 0, 0, "", (address, 0)) for address in answer]


def test_a_name_that_nobody_resolves_in_time_keeps_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch, {"there": ["10.0.0.2", "10.0.0.1", "10.0.0.2"], "late": ...})
    known = {"gone": {"10.0.0.5": 1.0}, "late": {"10.0.0.6": 1.0}, "old": {"10.0.0.7": 1.0}, "there": {"10.0.0.9": 1.0}}
    found = egress.resolved(["there", "gone", "late"], known, 2.0)
    names.over.set()
    assert found == {"there": {"10.0.0.1": 2.0, "10.0.0.2": 2.0}, "gone": {"10.0.0.5": 1.0}, "late": {"10.0.0.6": 1.0}}


def test_a_public_name_keeps_the_others_of_its_addresses_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, {"api.example": ["8.8.4.4"]})
    known = {"api.example": {"8.8.8.8": 1000.0, "9.9.9.9": 100.0}}
    assert egress.resolved(["api.example"], known, 1001.0) == {"api.example": {"8.8.8.8": 1000.0, "8.8.4.4": 1001.0}}


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1%eth0", "127.0.0.1", "::1", "224.0.0.1", "::"])
def test_a_name_leads_to_nothing_of_the_link_or_the_machine(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    Names(monkeypatch, {"up.example": [address, "10.0.0.1"]})
    assert egress.resolved(["up.example"], {}, 1.0) == {"up.example": {"10.0.0.1": 1.0}}


def test_a_zone_is_nothing_for_nft() -> None:
    page = {"user": "web", "container": "", "reaches": ["internet"], "urls": []}
    assert "ip6 daddr { fe80::1 }" in egress.ruleset("web", page, {}, ["fe80::1%eth0"], [])


@pytest.mark.parametrize("written", ["10.0.0.1:0", "10.0.0.1:65536"])
def test_a_port_that_cannot_be_is_refused(written: str) -> None:
    with pytest.raises(SystemExit, match="is no port"):
        egress.places({"reaches": [written], "urls": []})


def test_servers_of_names_are_those_elsewhere(tmp_path: Path) -> None:
    for name, text in (("a", "nameserver 127.0.0.53\nsearch x\n"), ("b", "nameserver 10.0.0.1\nnameserver fd00::1\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert egress.name_servers([tmp_path / "a", tmp_path / "none", tmp_path / "b"]) == ["10.0.0.1", "fd00::1"]


ROUTES = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 014D590A 0003 0 0 1024 00000000 0 0 0
eth0 004D590A 00000000 0001 0 0 1024 00FFFFFF 0 0 0
eth0 00643364 014D590A 0003 0 0 1024 00FFFFFF 0 0 0
"""


def test_networks_that_the_machine_is_in() -> None:
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
    assert egress.near_networks(ROUTES, table) == ["10.89.77.0/24", "2001:db8:1::/64"]
    assert egress.near_networks("", "") == []


def test_gateways_are_those_of_the_default_routes() -> None:
    assert egress.gateways(ROUTES) == ["10.89.77.1"]
    assert egress.gateways("") == []


@pytest.mark.parametrize("arguments", [[], ["load"], ["prove", "../x"], ["run", "web"], ["load", "Web"]])
def test_what_is_no_command_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert egress.main(arguments) == 2
    assert "usage" in capsys.readouterr().err
