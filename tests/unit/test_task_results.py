"""What a container says in the place of a module's result: our own value comes of it, whatever it is."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from provisioner.runner.events import TaskEvent, task_event

SEED = 13
REAL: dict[str, Any] = {
    "event": "runner_on_ok",
    "event_data": {
        "host": "llama",
        "role": "llama_cpp",
        "task": "llama_cpp : verify | Ask",
        "duration": 1.5,
        "res": {
            "changed": True,
            "msg": "x",
            "cmd": ["true"],
            "rc": 0,
            "start": "1",
            "end": "2",
            "delta": "0:00:01.25",
            "stdout": "a",
            "stderr": "b",
            "module_stderr": "c",
            "provision_facts": {"device_memory": 5},
            "results": [{"failed": True, "msg": "y", "results": [{"failed": True}]}],
        },
    },
}
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**400,
    float("nan"),
    "x",
    "9" * 5000,
    "9" * 5000 + ":1:1",
    "0:0:1.2.3",
    "٣:٣:٣",
    [],
    [[]],
    ["x"],
    {},
    {"a": {}},
    {"device_memory": "x"},
    {"device_memory": 10**400},
)


def deep(levels: int) -> dict[str, Any]:
    """A result within a result, and so on."""
    made: dict[str, Any] = {"failed": True, "msg": "x"}
    for _ in range(levels):
        made = {"failed": True, "results": [made]}
    return made


def mutated(chance: random.Random) -> dict[str, Any]:
    """A real event with one to four changes in what a container says."""
    made = copy.deepcopy(REAL)
    made["event"] = chance.choice(("runner_on_ok", "runner_on_failed", "runner_on_unreachable", "runner_retry"))
    holder = chance.choice((made["event_data"], made["event_data"]["res"]))
    for _ in range(chance.randint(1, 4)):
        holder[chance.choice(sorted(holder))] = copy.deepcopy(chance.choice(HOSTILE))
    return made


def test_no_result_breaks_the_run() -> None:
    chance = random.Random(SEED)  # noqa: S311 - repeatable, not secret
    for number in range(5000):
        event = mutated(chance)
        found = task_event(event)
        assert isinstance(found, TaskEvent), (number, event)
        assert all(isinstance(value, int) and 0 <= value < 2**63 for value in found.facts.values()), (number, event)
        assert isinstance(found.message, str)


@pytest.mark.parametrize(
    "facts", ["x", [], ["device_memory"], 5, {"device_memory": "5"}, {"device_memory": True}, None]
)
def test_measures_that_are_none_are_left_out(facts: Any) -> None:
    event = copy.deepcopy(REAL)
    event["event_data"]["res"]["provision_facts"] = facts
    found = task_event(event)
    assert found is not None
    assert found.facts == {}


def test_a_measure_counts() -> None:
    event = copy.deepcopy(REAL)
    del event["event_data"]["res"]["results"]
    found = task_event(event)
    assert found is not None
    assert found.facts == {"device_memory": 5}
    assert found.commands[0].elapsed_s == 1.25


def test_results_within_results_have_an_end() -> None:
    event = copy.deepcopy(REAL)
    event |= {"event": "runner_on_failed"}
    event["event_data"]["res"] = deep(100_000)
    found = task_event(event)
    assert found is not None
    assert found.message == "no reason was given"
    event["event_data"]["res"] = None  # freed here, and not level by level on the way out
