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


def test_a_service_that_has_such_a_key_is_warned_of(up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_ENGINE_KEY", SHORT)
    answer = up.done("up", "--yes")
    assert "the value has fewer than 16 characters" in answer.err
    assert SHORT not in answer.out + answer.err
