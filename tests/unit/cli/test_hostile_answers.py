"""Containers whose agents say nothing, too much or what nobody asked: each is named, and speaks for itself alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import pytest

from provisioner.providers.fake import Container
from provisioner.values.errors import ProviderError
from provisioner.values.state import Execution
from tests.unit.cli.conftest import World

Say = Callable[[Execution], Execution]


def hostile(world: World, name: str, say: Say) -> None:
    """Let a container answer what ``say`` makes of its agent's true answer."""
    true = world.host.programs["python3"]

    def answer(container: Container, command: Sequence[str], stdin: bytes, env: Mapping[str, str]) -> Execution:
        found = true(container, command, stdin, env)
        return say(found) if container.instance.name == name else found

    world.host.programs["python3"] = answer


def hangs(_found: Execution) -> Execution:
    raise ProviderError("Unable to run python3 in container llama", details="It was killed after 30 s.")


def test_status_tells_of_the_others_when_one_does_not_answer(up: World) -> None:
    hostile(up, "llama", hangs)
    answer = up.command("status", "--json")
    drift = {one["name"]: one["drift"] for one in answer.of("container")}
    assert drift["gateway"] == []
    assert drift["llama"] == [
        f"{role}: it cannot be looked into: It was killed after 30 s." for role in ("base", "llama_cpp")
    ]
    assert [one["message"] for one in answer.of("diagnostic")] == ["Unable to run python3 in container llama"]


@pytest.mark.parametrize("verb", [("plan",), ("up", "--yes"), ("verify",)])
def test_nothing_is_begun_on_the_word_of_one_that_does_not_answer(up: World, verb: Sequence[str]) -> None:
    hostile(up, "llama", hangs)
    played = len(up.played)
    assert up.command(*verb).ended(1) == up.snapshot
    assert len(up.played) == played


@pytest.mark.parametrize("form", [(), ("--json",), ("--markdown",)])
def test_what_a_container_says_steers_nothing_and_fills_nothing(up: World, form: Sequence[str]) -> None:
    plain = up.command("plan", *form, on_terminal=True)
    words = f"\x1b]0;mine\x07\x9b2J\u202e{'x' * 4000} @octocat"

    def lies(found: Execution) -> Execution:
        answer = json.loads(found.stdout)
        if "stamps" in answer:
            changed = [["paths", f"{number}{words}", words] for number in range(1000)]
            answer["stamps"] = {role: {**stamp, "changed": changed} for role, stamp in answer["stamps"].items()}
        return Execution(0, json.dumps(answer).encode(), b"")

    hostile(up, "llama", lies)
    answer = up.command("plan", *form, on_terminal=True)
    assert answer.code == plain.code == 0
    assert "x" * 100 in answer.out
    assert not {"\x07", "\x9b", "\u202e"} & set(answer.out)
    assert len(answer.out) < 100_000
