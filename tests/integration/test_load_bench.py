"""A real guidellm against a server whose delays are known: so many clients at once get so many times as much."""

from __future__ import annotations

import json

import pytest

from provisioner.measuring.endpoints import Endpoint, Target
from provisioner.measuring.history import Setting
from provisioner.measuring.load import Asked, Objective, figures, measure_load
from provisioner.values.errors import VerificationError
from provisioner.values.state import Secret
from tests.doubles.openai.timed_engine import StandIn, serving

pytestmark = [pytest.mark.network, pytest.mark.slow]

FIRST_S, STEP_S = 0.3, 0.02
KEY = "canary-of-a-stand-in-77b1"
ASKED = Asked((1, 4), 15.0, 128, 16, Objective(0.5, 0.1))


def endpoint(stand_in: StandIn) -> Endpoint:
    target = Target(stand_in.url, Secret("key", KEY))
    return Endpoint("stand-in", target, "m", None, True, Setting("", "", "", "", "", "", {}), "")


def test_what_clients_get_is_the_truth() -> None:
    with serving(StandIn(FIRST_S, STEP_S, key=KEY)) as stand_in:
        one, four = (figures(found) for found in measure_load(endpoint(stand_in), ASKED, lambda _event: None))
    for said in (one, four):
        assert said["first"] == pytest.approx(FIRST_S, rel=0.1)
        assert said["each"] == pytest.approx(1 / STEP_S, rel=0.1)
        assert said["failed"] == 0
        assert said["good"] == pytest.approx(1, abs=0.1)
    answer_s = FIRST_S + 15 * STEP_S
    assert one["all"] == pytest.approx(16 / answer_s, rel=0.15)
    assert four["all"] == pytest.approx(4 * one["all"], rel=0.15)
    assert stand_in.keys == {f"Bearer {KEY}"}
    prompts = {json.dumps(question["messages"]) for question in stand_in.asked}
    assert len(prompts) > 0.9 * len(stand_in.asked), "none is asked twice as long as there are others"
    read = [stand_in.tokens_of(question) for question in stand_in.asked if question.get("stream")]
    assert max(read) - min(read) <= 2
    assert sum(read) / len(read) == pytest.approx(128, rel=0.03)


def test_one_that_answers_nobody_is_told() -> None:
    with (
        serving(StandIn(key=KEY, ceiling=100)) as stand_in,
        pytest.raises(VerificationError, match="tokens are more than 100"),
    ):
        measure_load(endpoint(stand_in), ASKED, lambda _event: None)
