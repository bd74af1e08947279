"""A key that can be guessed is refused for a service that is new, and warned of where it serves already."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import World

SHORT = "short-canary"


def test_a_new_service_gets_no_key_that_can_be_guessed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_ENGINE_KEY", SHORT)
    assert world.command("validate").ended(0) == world.snapshot(name="validate")
    for verb in (["plan"], ["up", "--yes"]):
        answer = world.command(*verb)
        assert answer.ended(64) == world.snapshot(name="refused")
        assert SHORT not in answer.out + answer.err
    assert world.host.containers == {}


def test_a_service_that_serves_with_such_a_key_is_warned_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.lab.rules.SHORTEST_KEY", 0)
    monkeypatch.setenv("PROVISION_SECRET_ENGINE_KEY", SHORT)
    world.done("up", "--yes")
    monkeypatch.setattr("provisioner.lab.rules.SHORTEST_KEY", 16)
    answer = world.done("up", "--yes")
    assert "the value has fewer than 16 characters" in answer.err
    assert SHORT not in answer.out + answer.err


def test_no_such_key_takes_the_place_of_another(up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_ENGINE_KEY", SHORT)
    played = len(up.played)
    answer = up.command("up", "--yes")
    assert answer.code == 64, answer.printed
    assert "containers.llama.services.llama_cpp.api_key: the value has fewer than 16 characters" in answer.err
    assert len(up.played) == played


def test_no_new_service_of_a_container_gets_such_a_key(up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_ENGINE_KEY", SHORT)
    up.units["llama/llama_cpp"] = "not there"
    for name, container in up.host.containers.items():
        if name == "llama":
            del container.files["stamp/llama_cpp"]
    assert up.command("plan").code == 64
