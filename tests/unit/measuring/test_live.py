"""What a service does at a moment, and how fast: counters that go on, that begin again, and that nobody tells."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.measuring.live import Counted, Look, Rates, State, look_of, rates_between
from provisioner.services.llama_cpp import SERIES as LLAMA_CPP
from provisioner.services.vllm import SERIES as VLLM
from tests.case_files import read_cases

CASES = read_cases("measuring/live")


def look(at_s: float, start: str = "first", **models: tuple[int, int]) -> Look:
    """A look at counters of these models."""
    counted = {name: Counted(*numbers) for name, numbers in models.items()}
    return Look(State.ANSWERS, at_s, start, counted=counted)


def said(**changes: Any) -> dict[str, Any]:
    """What a container says of a service that serves."""
    told = {"unit": "active", "start": "first 18080", "status": "UP", "check": "L7OK", "problem": "", "sleeps": False}
    return {**told, "running": 1, "waiting": 0, "at_s": 10.0, "models": [], "vram": -1, **changes}


def llama_cpp(read: int, written: int, running: int = 0, slots: list[list[int]] | None = None) -> dict[str, Any]:
    """What a container says of one model of llama.cpp."""
    words = {"read": read, "written": written, "running": running, "waiting": 0}
    samples = [[LLAMA_CPP[word], float(number)] for word, number in words.items()]
    return {"name": "", "samples": samples, "slots": slots or []}


def test_a_rate_is_the_difference_between_two_looks_by_the_time_between_them() -> None:
    assert rates_between(look(10, one=(100, 50)), look(12.5, one=(350, 100))) == Rates(100.0, 20.0)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, look(12, one=(5, 5))),
        (look(10, one=(1000, 900)), look(12, one=(20, 950))),
        (look(10, one=(1000, 900)), look(12, one=(1020, 5))),
        (look(10, "first", one=(10, 10)), look(12, "second", one=(9000, 9000))),
        (look(10, one=(10, 10)), look(10, one=(20, 20))),
        (look(10, one=(10, 10)), look(9, one=(20, 20))),
        (Look(State.LOADS), look(12, one=(20, 20))),
        (look(10, one=(10, 10)), Look(State.STOPPED)),
    ],
    ids=["first look", "read anew", "written anew", "another start", "no time", "time backwards", "unknown", "gone"],
)
def test_counters_that_begin_again_say_no_rate(before: Look | None, now: Look) -> None:
    assert rates_between(before, now) is None


def test_a_model_that_was_not_there_before_counts_from_now_on() -> None:
    before, now = look(10, one=(100, 100)), look(12, one=(120, 140), two=(90_000, 90_000))
    assert rates_between(before, now) == Rates(10.0, 20.0)
    assert rates_between(now, look(14, two=(90_200, 90_020))) == Rates(100.0, 10.0)


def test_what_running_requests_have_written_counts_before_the_engine_counts_it() -> None:
    """llama.cpp's counter jumps by all of an answer when that ends: the slots say how far it is."""
    reads = look_of(said(models=[llama_cpp(0, 0, 1, [[2048, 500, 300, 0], [2048, 0, 0, 0]])]), LLAMA_CPP, ["m"])
    writes = look_of(
        said(at_s=12.0, models=[llama_cpp(500, 0, 1, [[2048, 620, 500, 120], [2048, 0, 0, 0]])]), LLAMA_CPP, ["m"]
    )
    ended = look_of(said(at_s=14.0, models=[llama_cpp(500, 200)]), LLAMA_CPP, ["m"])
    assert reads.counted == {"": Counted(300, 0)}
    assert rates_between(reads, writes) == Rates(100.0, 60.0)
    assert rates_between(writes, ended) == Rates(0.0, 40.0)
    assert writes.cache == 620 / 4096
    assert ended.cache == 0.0
    assert ended.models == ("m",)


def test_slots_that_are_not_told_leave_the_rate_unknown() -> None:
    told = {**llama_cpp(500, 0, 1), "slots": None}
    found = look_of(said(models=[told]), LLAMA_CPP, ["m"])
    assert (found.state, found.running, found.counted, found.cache) == (State.ANSWERS, 1, None, None)


def test_several_engines_of_one_server_are_added_up() -> None:
    samples = [[VLLM["read"], 10.0], [VLLM["read"], 5.0], [VLLM["written"], 7.0], [VLLM["running"], 2.0]]
    samples += [[VLLM["waiting"], 3.0], [VLLM["cache"], 0.5], [VLLM["cache"], 0.25]]
    found = look_of(said(waiting=4, models=[{"name": "", "samples": samples, "slots": []}]), VLLM, ["m"])
    assert found.counted == {"": Counted(15, 7)}
    assert (found.running, found.waiting, found.cache) == (2, 7, 0.375)


def test_without_figures_of_its_own_the_switch_tells() -> None:
    found = look_of(said(running=3, waiting=2), {}, ["m"])
    assert (found.state, found.running, found.waiting, found.counted) == (State.ANSWERS, 3, 2, None)
    nobody = look_of(said(running=-1, waiting=-1), {}, ["m"])
    assert (nobody.running, nobody.waiting, nobody.vram) == (None, None, None)


def test_of_several_models_those_in_memory_are_named() -> None:
    assert look_of(said(models=[{**llama_cpp(1, 1), "name": "one"}]), LLAMA_CPP, []).models == ("one",)
    none = look_of(said(), LLAMA_CPP, [])
    assert (none.models, none.counted) == ((), {})


@pytest.mark.parametrize(("changes", "state"), CASES["what it does is said in a word"])
def test_what_it_does_is_said_in_a_word(changes: dict[str, Any], state: str) -> None:
    assert look_of(said(**changes), LLAMA_CPP, ["m"]).state == state
