"""Aliases of aliases: what they come to, whatever their number, and in a time that grows with the file only."""

from __future__ import annotations

import time
from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import problems, resolve
from provisioner.lab.alias_rules import MOST_ALIASES
from provisioner.lab.aliases import alias_loop, flatten
from provisioner.lab.rules import MOST_OF_A_RULE
from provisioner.values.state import Problem, Secret
from tests.lab_files import spec_of

BUDGET_S = 5.0


def _problems(aliases: dict[str, Any], *models: str) -> list[Problem]:
    written = {
        "name": "lab",
        "models": {name: {"source": "builtin:tiny"} for name in ("tiny", *models)},
        "containers": {
            "engine": {"services": {"llama_cpp": {"model": "tiny"}}},
            "gateway": {"services": {"litellm": {"master_key": Secret("k", "sk-1"), "aliases": aliases}}},
        },
    }
    return problems(resolve(spec_of(written), load_catalog()))


def _doubled(count: int) -> dict[str, Any]:
    """``a0`` leads over twice as many ways as ``a1`` to the engine."""
    aliases: dict[str, Any] = {f"a{one}": [f"a{one + 1}", f"a{one + 1}", "tiny"] for one in range(count)}
    return {**aliases, f"a{count}": ["tiny"]}


def _crossed(count: int) -> dict[str, Any]:
    """Each layer has two aliases that both name both of the next: again twice as many ways, each other."""
    aliases: dict[str, Any] = {}
    for one in range(count):
        aliases |= {f"{side}{one}": [f"a{one + 1}", f"b{one + 1}"] for side in "ab"}
    return {**aliases, f"a{count}": ["tiny"], f"b{count}": ["tiny"]}


@pytest.mark.parametrize("aliases", [_doubled(300), _crossed(300)], ids=["doubled", "crossed"])
def test_ways_that_double_with_each_alias_take_no_time(aliases: dict[str, Any]) -> None:
    began = time.process_time()
    assert _problems(aliases) == []
    assert all(flatten(aliases, alias) == ("tiny",) for alias in aliases)
    assert time.process_time() - began < BUDGET_S


def test_a_chain_longer_than_python_can_call_is_followed_to_its_end() -> None:
    chain = {f"a{one}": [f"a{one + 1}", f"m{one}"] for one in range(5000)} | {"a5000": ["end"]}
    assert flatten(chain, "a0") == ("end", *(f"m{one}" for one in reversed(range(5000))))
    assert alias_loop(chain, "a0") == ()
    assert alias_loop(chain | {"a5000": ["a4999"]}, "a4999") == ("a4999", "a5000", "a4999")


def test_more_aliases_than_anybody_writes_are_refused() -> None:
    found = _problems({f"a{one}": ["tiny"] for one in range(MOST_ALIASES + 1)})
    assert [one.message for one in found] == [f"there are {MOST_ALIASES + 1} aliases"]


def test_one_mistake_made_often_is_told_in_time_and_not_a_thousand_times() -> None:
    began = time.process_time()
    found = _problems({f"a{one}": [f"x{one}"] for one in range(900)}, *(f"model-{one}" for one in range(2000)))
    assert len(found) == MOST_OF_A_RULE
    assert max(len(one.hint) for one in found) < 2000
    assert time.process_time() - began < BUDGET_S


def test_a_long_circle_is_drawn_by_its_beginning() -> None:
    ring = {f"a{one}": [f"a{(one + 1) % 50}", "tiny"] for one in range(50)}
    messages = [one.message for one in _problems(ring)]
    assert len(messages) == 50
    assert messages[0].startswith("the alias leads back to itself: a0 → a1 → ")
    assert messages[0].endswith(" → … → a0")
