"""The verb ``audit``, and its short part in ``verify``: what is open and on no page is a finding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.catalog import Opens, load_catalog
from provisioner.inside import exposure
from provisioner.inside.exposure import DISGUISED, ELSEWHERE, PLAIN, WRONG
from provisioner.reconcile import audit
from provisioner.values.errors import ProviderError
from provisioner.values.state import Device
from tests.case_files import read_cases
from tests.raising import raising
from tests.unit.cli.conftest import FILE, World

CASES = read_cases("cli/audit")

ANY = "0.0.0.0"  # noqa: S104  # what is said of a socket
MINE = [
    ["tcp", ANY, 8080, "switch-llama-server.service"],
    ["tcp", "127.0.0.1", 18080, "llama-server.service"],
    ["udp", "127.0.0.53", 53, "systemd-resolved.service"],
    ["tcp", "127.0.0.1", 40123, "llama-server-beside.service"],
]


@pytest.fixture
def up(up: World) -> World:
    """The lab, brought up, with the sockets that its pages list."""
    up.sockets["llama"] = list(MINE)
    return up


def test_nothing_is_open_that_is_on_no_page(up: World) -> None:
    assert up.command("audit").ended(0) == up.snapshot


@pytest.mark.parametrize(
    "socket",
    [
        ["tcp", ANY, 18080, "llama-server.service"],
        ["tcp", "::", 18080, "llama-server.service"],
        ["tcp", "10.0.0.7", 9999, "llama-server.service"],
        ["udp", "127.0.0.1", 18080, "switch-llama-server.service"],
        ["tcp", "127.0.0.1", 9000, "switch-llama-server.service"],
    ],
)
def test_a_socket_of_a_service_that_is_on_no_page_is_found_by_audit_and_verify(
    up: World, socket: list[str | int]
) -> None:
    up.sockets["llama"].append(socket)
    for verb in ("audit", "verify"):
        assert up.command(verb).ended(3) == up.snapshot


def test_what_the_image_has_open_in_the_network_is_a_line(up: World) -> None:
    for protocol in ("tcp", "udp"):
        for address in (ANY, "::"):
            up.sockets["llama"].append([protocol, address, 5355, "systemd-resolved.service"])
    up.sockets["llama"].append(["udp", "10.0.0.7", 68, "systemd-networkd.service"])
    assert up.command("audit", "llama").ended(0) == up.snapshot
    assert "5355" not in up.command("verify", "llama").out


ADDED = [
    {"listen": f"{ANY}:9000", "connect": "127.0.0.1:8080"},
    {"listen": f"{ANY}:9000", "connect": "127.0.0.1:53", "protocol": "udp"},
    {"listen": "127.0.0.1:2375", "connect": "unix:/run/docker.sock", "bind": "instance"},
]


@pytest.mark.parametrize("properties", ADDED, ids=["tcp", "udp", "to the host"])
def test_a_port_that_the_host_passes_on_and_the_file_does_not_is_a_finding(
    up: World, properties: dict[str, str]
) -> None:
    container = up.host.containers["llama"]
    added = Device("theirs", "publish", properties)
    container.instance = replace(container.instance, devices=(*container.instance.devices, added))
    assert up.command("audit", "llama").ended(3) == up.snapshot


def test_a_port_that_a_profile_passes_on_is_a_finding(up: World) -> None:
    up.host.profile = (Device("theirs", "publish", ADDED[0]),)
    answer = up.command("audit", "gateway")
    assert (answer.code, "device theirs passes" in answer.out, "Closed" in answer.out) == (3, True, False)


def test_a_port_that_the_file_asks_for_is_none(up: World, lab: Path) -> None:
    lab.write_text(FILE.replace("model: tiny,", "expose: lan, model: tiny,"))
    up.monkeypatch.setattr(audit, "lan_address", lambda *_: None)
    assert up.command("up", "--yes").code == 0
    assert any(device.kind == "publish" for device in up.host.network.publications("llama"))
    assert up.command("audit").code == 0


def test_a_host_that_does_not_tell_its_ports_passes_for_nothing(up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        up.host.network,
        "publications",
        raising(ProviderError("Unable to look at the devices of container llama", details="Not authorized")),
    )
    answer = up.command("audit", "llama")
    assert (answer.code, "Not authorized" in answer.out) == (3, True)


@pytest.mark.parametrize("unit", ["nc.service", "session-3.scope", ""])
def test_a_socket_of_nobody_of_the_lab_is_found_by_audit_alone(up: World, unit: str) -> None:
    up.sockets["llama"].append(["tcp", ANY, 4444, unit])
    assert up.command("audit").ended(3) == up.snapshot
    assert up.command("verify").code == 0


def test_a_socket_whose_process_has_gone_counts_by_its_port(up: World) -> None:
    up.sockets["llama"].append(["tcp", ANY, 8080, ""])
    assert up.command("audit").code == 0


@pytest.mark.parametrize("verb", ["audit", "verify"])
def test_a_route_that_answers_is_told_with_the_request_to_repeat_it(up: World, verb: str) -> None:
    up.answered["llama/llama_cpp"] = [["POST", "/invocations", 422, PLAIN], ["POST", "/invocations", 422, WRONG]]
    assert up.command(verb).ended(3) == up.snapshot


def test_the_stream_has_each_finding_once_with_all_ways_in_which_it_answered(up: World) -> None:
    up.answered["llama/llama_cpp"] = [["GET", "/metrics", 200, PLAIN], ["GET", "/metrics", 200, WRONG]]
    answer = up.command("audit", "--json")
    (finding,) = answer.of("diagnostic")
    assert finding["message"].count("200 without a key from its own loopback") == 1
    assert finding["message"].count("200 with a wrong key from its network") == 1
    assert answer.of("summary")[0]["exit_code"] == 3
    assert [one["ok"] for one in answer.of("check") if one["target"] == "llama/llama_cpp"] == [False]


def test_of_many_routes_the_rest_is_in_one_finding(up: World) -> None:
    up.answered["gateway/litellm"] = [["GET", f"/{number}", 200, PLAIN] for number in range(15)]
    assert up.command("audit").printed == up.snapshot


def test_verify_asks_a_short_part_and_audit_all(up: World) -> None:
    up.command("verify")
    short = {one["name"]: one for one in up.questions[0]["doors"] + up.questions[1]["doors"]}
    up.questions.clear()
    up.command("audit")
    whole = {one["name"]: one for one in up.questions[0]["doors"] + up.questions[1]["doors"]}
    assert short.keys() == whole.keys() == {"llama/llama_cpp", "gateway/litellm"}
    assert {*whole["llama/llama_cpp"]["open"]} == {"GET /health", "GET /v1/health"}
    assert all(one["passed"] == [] for one in whole.values())
    assert up.questions[0]["within_s"] > 60


def test_the_short_part_keeps_to_300_requests_of_a_service_and_10_seconds(up: World) -> None:
    up.command("verify")
    for question in up.questions:
        by_service: dict[str, int] = {}
        for door in question["doors"]:
            assert {PLAIN, WRONG, ELSEWHERE, DISGUISED} >= door["ways"].keys()
            by_service[door["name"]] = by_service.get(door["name"], 0) + sum(door["ways"].values())
        assert all(count <= 300 for count in by_service.values())
        assert question["most"] <= 300 * len(by_service)
        assert question["within_s"] <= 10


def test_of_what_is_asleep_only_its_switch_is_asked_and_that_is_said(up: World) -> None:
    up.units["llama/llama_cpp"] = "asleep"
    assert up.command("audit").ended(0) == up.snapshot
    assert all(one["looks_only"] for question in up.questions for one in question["doors"] if "llama" in one["name"])


def test_a_service_without_a_key_is_a_line_and_its_own_paths_are_not_counted(lab: Path, world: World) -> None:
    lab.write_text(FILE.replace(", api_key: !secret engine_key", ""))
    assert world.command("up", "--yes").code == 0
    assert world.command("audit").ended(0) == world.snapshot
    (door, *_) = [one for question in world.questions for one in question["doors"] if "llama" in one["name"]]
    assert "POST /v1/chat/completions" in door["passed"]
    assert "GET /slots" not in door["passed"]


def test_a_container_that_cannot_be_asked_is_a_finding(up: World) -> None:
    del up.host.programs["python3"]
    assert up.command("audit").ended(3) == up.snapshot


@pytest.mark.parametrize(
    "said",
    [
        ["tcp", ANY, 8080],
        ["tcp", "nowhere", 8080, "x.service"],
        ["tcp", ANY, 99999999, "x.service"],
        ["tcp", ANY, "8080", "x.service"],
        "tcp",
    ],
)
def test_an_answer_that_is_none_counts_for_nothing(up: World, said: list[str | int]) -> None:
    up.sockets["llama"] = [said]
    assert up.command("audit").ended(3) == up.snapshot


def test_a_container_that_does_not_run_is_not_asked(up: World) -> None:
    assert up.command("down", "--yes", "llama").code == 0
    assert up.command("audit").ended(0) == up.snapshot


def test_what_was_not_asked_to_its_end_passes_for_nothing(up: World) -> None:
    up.left = 3
    assert up.command("audit", "llama").printed == up.snapshot


def test_verify_says_of_what_its_short_part_did_not_come_to_the_end(up: World) -> None:
    up.left = 3
    assert up.command("verify", "llama").ended(0) == up.snapshot
    up.left = 0
    assert "was looked at" not in up.command("verify", "llama").err


def test_verify_says_nothing_more_of_what_is_asleep(up: World) -> None:
    up.units["llama/llama_cpp"], up.left = "asleep", 3
    up.rests["llama/llama_cpp"] = {"since": 1764064800.0, "proved": 1764061200.0, "start_s": 3.2}
    assert "was looked at" not in up.command("verify", "llama").err


def test_only_what_is_named_is_asked(up: World) -> None:
    up.answered["gateway/litellm"] = [["GET", "/metrics", 200, PLAIN]]
    assert up.command("audit", "llama").code == 0
    assert up.command("audit", "gateway").code == 3
    assert up.command("audit", "nobody").code == 64


SITES: str = CASES["sites"]


@pytest.fixture
def sites(lab: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A lab with a door, and with a service in the LAN that knows no key."""
    monkeypatch.setenv("PROVISION_SECRET_CA", "canary-authority-0123456789")
    lab.write_text(SITES)
    world.monkeypatch.setattr(audit, "lan_address", lambda *_: "127.0.0.1")
    assert world.command("up", "--yes").code == 0
    return world


def test_a_door_is_asked_for_what_stands_behind_each_site_by_its_name(sites: World) -> None:
    sites.command("audit", "door")
    (question,) = sites.questions
    (door,) = question["doors"]
    assert (door["url"], door["host_name"]) == ("https://127.0.0.1:443", "api.home.example")
    assert ["POST", "/v1/chat/completions"] in door["routes"]
    assert "GET /health/readiness" in door["open"]


def test_what_answers_through_a_door_is_told_with_the_site(sites: World) -> None:
    sites.answered["gateway/litellm"] = [["GET", "/metrics", 200, PLAIN]]
    assert sites.command("audit", "door").printed == sites.snapshot


def test_who_has_no_key_and_is_in_the_lan_is_a_finding_of_audit_alone(sites: World) -> None:
    told = sites.command("audit", "voice").ended(3)
    assert "FAIL voice/kokoro: no key asked for, and the LAN reaches it" in told
    assert "no key asked for" not in sites.command("verify", "voice").out


def test_the_lan_is_asked_where_it_reaches_a_service(sites: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    look = exposure.look

    def noted(question: dict[str, Any]) -> dict[str, Any]:
        asked.append(question)
        return look(question | {"within_s": -1})  # nobody listens here

    monkeypatch.setattr(exposure, "look", noted)
    sites.command("audit")
    urls = [door["url"] for question in asked for door in question["doors"]]
    assert urls == ["http://127.0.0.1:8880"]
    assert not any(question["sockets"] for question in asked)
    (voice,) = [one for one in asked if one["doors"]]
    assert "GET /web" not in voice["doors"][0]["passed"]


def test_a_condition_of_a_page_opens_what_the_file_asks_for(lab: Path, sites: World) -> None:
    lab.write_text(SITES.replace("web_player: false", "web_player: true"))
    assert sites.command("up", "--yes").code == 0
    sites.questions.clear()
    sites.command("verify", "voice")
    assert "GET /web/**" in sites.questions[0]["doors"][0]["passed"]


def test_of_a_service_without_a_key_whose_page_lists_nothing_no_route_is_too_much(
    sites: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role of somebody else's need not say what it opens; its sockets are looked at all the same."""
    kokoro = load_catalog().services["kokoro"]
    monkeypatch.setitem(load_catalog().services, "kokoro", replace(kokoro, opens=Opens()))
    sites.command("audit", "voice")
    (question,) = sites.questions
    assert question["sockets"] is True
    answered = exposure.requests_of(question["doors"][0], [("GET", "/metrics"), ("POST", "/v1/audio/speech")])
    assert list(answered) == []
