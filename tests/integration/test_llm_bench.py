"""A real llama-benchy against a server whose delays are known: what is told is the truth, within 3 %."""

from __future__ import annotations

import json
from statistics import median

import pytest

from provisioner.measuring import llm
from provisioner.measuring.endpoints import Endpoint, Target
from provisioner.measuring.history import Setting
from provisioner.measuring.llm import Depth, measure_llm
from provisioner.values.errors import VerificationError
from provisioner.values.events import Event
from provisioner.values.state import Secret
from tests.doubles.openai.timed_engine import StandIn, serving

pytestmark = [pytest.mark.network, pytest.mark.slow]

FIRST_S, STEP_S = 0.5, 0.02
KEY = "canary-of-a-stand-in-1f0c"
NEAR = 0.03


def endpoint(stand_in: StandIn) -> Endpoint:
    target = Target(stand_in.url, Secret("key", KEY))
    return Endpoint("stand-in", target, "m", None, True, Setting("", "", "", "", "", "", {}), "")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "SPREAD_S", 0.0)


def test_first_token_and_rates_are_the_truth() -> None:
    depths = [Depth(0, 512, 64), Depth(2048, 512, 64)]
    events: list[Event] = []
    with serving(StandIn(FIRST_S, STEP_S, key=KEY)) as stand_in:
        results = measure_llm(endpoint(stand_in), depths, 10, events.append)
    for depth, result in zip(depths, results, strict=True):
        first, reading, writing = result.series
        assert first.middle == pytest.approx(FIRST_S, rel=NEAR)
        assert reading.middle == pytest.approx(depth.prompt / FIRST_S, rel=NEAR)
        assert writing.middle == pytest.approx(1 / STEP_S, rel=NEAR)
        assert result.cold["first token"] == pytest.approx(FIRST_S, rel=0.2)
    assert KEY not in json.dumps([str(event) for event in events])
    assert stand_in.keys == {f"Bearer {KEY}"}


def test_prompts_have_the_length_that_they_are_called() -> None:
    depths = [Depth(0, 256, 8), Depth(1024, 256, 8)]
    with serving(StandIn(key=KEY, per_word=4.7)) as stand_in:
        measure_llm(endpoint(stand_in), depths, 5, lambda _event: None)
    for depth in depths:
        assert median(one.prompt for one, _ in depth.trials) == pytest.approx(depth.prompt, rel=NEAR)


def test_one_that_drops_what_is_too_long_and_answers_is_caught() -> None:
    with (
        serving(StandIn(key=KEY, keeps=1024)) as stand_in,
        pytest.raises(VerificationError, match="it counted 1024 tokens"),
    ):
        measure_llm(endpoint(stand_in), [Depth(2048, 512, 8)], 2, lambda _event: None)


def test_one_that_answers_in_one_piece_is_said_not_to_stream() -> None:
    with serving(StandIn(FIRST_S, STEP_S, key=KEY, burst=True)) as stand_in:
        (result,) = measure_llm(endpoint(stand_in), [Depth(0, 256, 32)], 3, lambda _event: None)
    (whole,) = result.series
    assert whole.name == "whole answer"
    assert whole.middle == pytest.approx(FIRST_S + 31 * STEP_S, rel=NEAR)


@pytest.mark.parametrize(
    ("stand_in", "words"),
    [
        (StandIn(key=KEY, breaks=True), "Unable to measure stand-in"),
        (StandIn(key=KEY, says=0), "an empty answer"),
        (StandIn(key=KEY, ceiling=100), "tokens are more than 100"),
        (StandIn(key="another"), "it answered 401"),
    ],
)
def test_what_does_not_answer_as_it_is_asked_is_told(stand_in: StandIn, words: str) -> None:
    with serving(stand_in), pytest.raises(VerificationError, match=words):
        measure_llm(endpoint(stand_in), [Depth(0, 256, 8)], 2, lambda _event: None)
