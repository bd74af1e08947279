"""The verb ``probe``: the longest context that really answers, and an engine that serves again afterwards."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import World


@pytest.fixture
def up(world: World) -> World:
    """The lab, brought up."""
    assert world.command("up", "--yes").code == 0
    world.questions.clear()
    return world


@pytest.mark.parametrize("ceiling", [4096, 20_000, 131_072])
def test_the_longest_context_that_answers_is_found(up: World, ceiling: int) -> None:
    up.ceiling = ceiling
    answer = up.command("probe", "llama", "--to", "131072")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[-1] == f"The longest that answers: {ceiling // 256 * 256:,}"
    assert len(up.questions) <= 10


def test_who_drops_a_part_of_its_prompt_answers_nothing(up: World) -> None:
    up.drops = True
    answer = up.command("probe", "llama", "--to", "8192")
    assert answer.out.splitlines()[-1] == "The longest that answers: 0"
    assert "doubtful" in answer.out
    assert "another token near the beginning of its prompt changed nothing of the answer" in answer.out


def test_the_engine_serves_again_afterwards(up: World) -> None:
    up.active.add("llama-server.service")
    up.command("probe", "llama", "--to", "8192")
    assert "llama-server.service" in up.active
    assert up.command("plan", "--detailed-exitcode").code == 0


@pytest.mark.parametrize("name", ["gateway", "nobody"])
def test_what_cannot_be_tried_is_refused(up: World, name: str) -> None:
    answer = up.command("probe", name)
    assert answer.code == 64
    assert up.questions == []
