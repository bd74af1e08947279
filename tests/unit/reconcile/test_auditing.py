"""``audit`` asks as each service that runs code of others for what it must not reach."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.inside.answers import DamagedAnswerError, places_reached
from provisioner.reconcile.audit import EGRESS, ways_out
from provisioner.values.errors import ProviderError
from provisioner.values.state import Execution, Fleet, Instance, Service

IMAGE = Service("oci", "web", "app", {"oci_reaches": []}, port=8300, unit="oci.service")
ENGINE = Service("llama_cpp", "llama", "engine", {}, port=8080, unit="llama-server.service")
WEB = Instance("web", "here", "home", "debian/13", services=(IMAGE,), address="10.0.0.2")
LLAMA = Instance("llama", "here", "home", "debian/12", services=(ENGINE,), address="10.0.0.3")
ASKED = ["10.0.0.1:22", "10.0.0.3:8080"]


def asked(
    answer: Execution | ProviderError, web: Instance = WEB, reached: str = ""
) -> tuple[list[str], list[str], list[list[str]]]:
    """Return what is told, what is found, and the commands that were run, where the container answers so.

    ``reached``: the place that root in it reaches, of those that its host has rules against.
    """
    commands: list[list[str]] = []

    def execute(name: str, command: list[str], stdin: bytes = b"", **_: Any) -> Execution:
        commands.append([name, *command])
        if command[-1] == "ask":
            codes = [[host, port, 0 if f"{host}:{port}" == reached else 111] for host, port in json.loads(stdin)]
            return Execution(0, json.dumps(codes).encode(), b"")
        if isinstance(answer, ProviderError):
            raise answer
        return answer

    effects: Any = SimpleNamespace(providers={"here": SimpleNamespace(execute=execute)}, emit=lambda _event: None)
    found = list(ways_out(lambda name, _user: f"{name}.incus", [WEB, LLAMA], Fleet("home", (web, LLAMA)), effects))
    told = [check.message for one in found for check in one.checks]
    return told, [finding.message for one in found for finding in one.findings], commands


def said(**answer: Any) -> Execution:
    return Execution(0, json.dumps({"asked": ASKED, "reached": [], "refused": 2, **answer}).encode(), b"")


def test_one_that_is_kept_in_is_a_line_and_its_neighbours_were_asked_for() -> None:
    told, findings, commands = asked(said())
    assert (len(told), findings) == (1, [])
    assert "2 places" in told[0]
    assert commands == [["web", *EGRESS, "oci", "10.0.0.3:8080"]]


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"reaches": ("llama.incus:8080",)}, "its host refuses them as well"),
        ({"reaches": (), "refused_by": "kernel 6.1"}, "rules in its container alone do that"),
        ({}, "rules in its container alone do that"),
    ],
)
def test_where_it_is_enforced_is_said(held: dict[str, Any], words: str) -> None:
    assert asked(said(), replace(WEB, **held))[0][0].endswith(f"; {words}")


def test_what_root_in_it_reaches_past_its_host_is_a_finding() -> None:
    words = "root in its container reaches 10.0.0.3:8080, which the rules of its host are against"
    assert asked(said(), replace(WEB, reaches=()), "10.0.0.3:8080")[:2] == ([], [words])
    for reaches in ("llama.incus:8080", "10.0.0.3:8080"):
        assert asked(said(), replace(WEB, reaches=(reaches,)), "10.0.0.3:8080")[1] == [], "the file connects it"
    assert asked(said(), WEB, "10.0.0.3:8080")[1] == [], "its host has no rules"


def test_places_that_are_none_are_an_answer_that_is_damaged() -> None:
    damaged: list[Any] = [{}, [["10.0.0.3", 22]], [["10.0.0.3", "22", 0]], [[7, 22, 0]], [["10.0.0.3", 65536, 0]]]
    for answer in damaged:
        with pytest.raises(DamagedAnswerError):
            places_reached(answer)
    assert places_reached([["10.0.0.3", 22, 0], ["fd00::1", 22, 111]]) == ["10.0.0.3:22"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (said(reached=["10.0.0.3:8080"], refused=1), "it reaches 10.0.0.3:8080, which nobody allows it"),
        (said(refused=1), "nobody keeps it in"),
        (said(asked=[], refused=0), "nobody keeps it in"),
        (said(refused="2"), "nobody could see what is open in it"),
        (said(more=1), "nobody could see what is open in it"),
        (Execution(1, b"", b"table inet egress_oci is not what its page says"), "nobody could see what is open in it"),
        (ProviderError("Unable to run python3"), "nobody could see what is open in it"),
    ],
)
def test_what_is_not_known_to_be_kept_in_is_a_finding(answer: Execution | ProviderError, words: str) -> None:
    assert asked(answer)[:2] == ([], [words])
