"""Containers whose agents say nothing, too much or what nobody asked: each is named, and speaks for itself alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options

from provisioner.hosts.fake import Container
from provisioner.values.errors import ProviderError
from provisioner.values.state import Execution
from tests.attackers.answers import LIES, steering
from tests.unit.cli.conftest import World

STEERS = frozenset("\x07\x9b\u202e\x00")
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


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(
    ("verb", "code"), [(("plan",), 1), (("audit",), 3), (("top", "--once", "--interval", "0.5"), 0)]
)
def test_an_answer_that_no_agent_gives_is_refused_as_a_whole(
    up: World, verb: Sequence[str], code: int, lie: str
) -> None:
    hostile(up, "llama", lambda found: Execution(0, LIES[lie](found.stdout), b""))
    answer = up.command(*verb, on_terminal=True)
    assert answer.code == code, answer.printed
    assert "its answer is damaged" in answer.printed or "said nothing" in answer.printed
    assert "llama" in answer.printed
    assert STEERS.isdisjoint(answer.printed)
    assert len(answer.printed) < 20_000


@pytest.mark.parametrize("lie", ["nothing", "half", "numbers", "another version"])
@pytest.mark.parametrize("verb", [("probe", "llama", "--yes"), ("bench", "llama", "--kind", "engine", "--yes")])
def test_what_a_measurement_says_is_refused_by_the_container_s_name(up: World, verb: Sequence[str], lie: str) -> None:
    def lies(found: Execution) -> Execution:
        is_measured = b'"outcome"' in found.stdout or b'"threads"' in found.stdout
        return Execution(0, LIES[lie](found.stdout), b"") if is_measured else found

    hostile(up, "llama", lies)
    answer = up.command(*verb)
    assert answer.code == 1
    assert "Unable to look into container llama: its answer is damaged" in answer.err
    assert "provision exec llama" in answer.err


@pytest.mark.parametrize("form", [(), ("--json",), ("--markdown",)])
def test_what_a_container_says_steers_nothing_and_fills_nothing(up: World, form: Sequence[str]) -> None:
    plain = up.command("plan", *form, on_terminal=True)
    hostile(up, "llama", lambda found: Execution(0, steering(found.stdout), b""))
    answer = up.command("plan", *form, on_terminal=True)
    assert answer.code == plain.code == 0
    assert "x" * 100 in answer.out
    assert STEERS.isdisjoint(answer.out)
    assert len(answer.out) < 100_000
    if form == ("--markdown",):
        html = cmarkgfm.github_flavored_markdown_to_html(answer.out, Options.CMARK_OPT_UNSAFE)
        outside = re.sub(r"<code[^>]*>.*?</code>", "", html, flags=re.DOTALL)
        assert "octocat" in html
        assert not [word for word in ("octocat", "hostile.example", "<img", "<strong>b<") if word in outside]
