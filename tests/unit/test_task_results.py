"""What a container says in the place of a module's result: our own value comes of it, whatever it is."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from provisioner.reconcile.prove import MOST_CHARACTERS
from provisioner.reconcile.runner import LONGEST_SAID, MOST_SAID, TaskEvent, short_words, task_event
from tests.case_files import read_cases

CASES = read_cases("task_results")

SEED = 13
REAL: dict[str, Any] = CASES["real"]
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
        assert isinstance(short_words(found.came), str)


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


def judged(status: str = "runner_on_ok", action: str = "ansible.builtin.assert", **result: Any) -> str:
    """What came by a task that judges."""
    data = {"host": "llama", "task": "verify | Check", "task_action": action, "res": result}
    found = task_event({"event": status, "event_data": data})
    assert found is not None
    return found.came


def test_what_came_is_told_of_judging_tasks_that_hold_alone() -> None:
    assert judged(msg="HTTP 401") == "HTTP 401"
    assert judged(msg="HTTP 401", action="assert") == "HTTP 401"
    assert judged(msg=["a", 7, "b"]) == "a\nb"
    assert judged(msg="HTTP 401", action="ansible.builtin.debug") == ""
    assert judged(msg="HTTP 401", status="runner_on_failed") == ""
    assert judged(msg="HTTP 401", censored="hidden") == ""
    assert judged(msg="All assertions passed") == "", "Ansible's own words"
    assert judged(msg={"a": 1}) == ""


def test_of_a_loop_what_each_item_says_is_told() -> None:
    items = [{"msg": "a"}, {"msg": "b", "skipped": True}, {"msg": "c", "_ansible_no_log": True}, {"msg": "d"}]
    assert judged(msg="All items completed", results=items) == "a\nd"


def test_what_came_is_short_and_can_be_printed() -> None:
    assert short_words("a\x1b[1mb\r\n\n\u202ec  d\x00") == "a [1mb\nc d"
    assert short_words("x" * LONGEST_SAID) == "x" * LONGEST_SAID
    long = short_words("x" * (LONGEST_SAID + 1))
    assert (len(long), long[-1]) == (LONGEST_SAID, "…")
    lines = short_words("\n".join(map(str, range(MOST_SAID + 2)))).split("\n")
    assert (len(lines), lines[-1]) == (MOST_SAID + 1, "and 2 more")
    whole = "\n".join(["x" * LONGEST_SAID] * (MOST_SAID + 5))
    assert len(short_words(whole)) <= MOST_CHARACTERS, "none of it is cut where proofs are kept"
