"""An answer of an engine's own program takes the place of what was added up, and of nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.loads.engines import EngineLoads, Question
from provisioner.loads.terms import largest_context, total_of
from provisioner.serving.engine_memory import OddAnswerError, read_answer, with_answers
from provisioner.values.address import Address
from tests.unit.loads.models import NINE

QUESTION = Question("program", {}, {}, {}, {}, open="what --lora changes is not counted")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("model 5 6 7\n", {"model": 18}),
        ("draft 1 2 3\nmodel 5 0 0\nprojector 9 0 0\n", {"draft": 6, "model": 5, "projector": 9}),
    ],
)
def test_each_part_is_the_sum_of_its_line(text: str, answer: dict[str, int]) -> None:
    assert read_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    ["", "\n", "draft 1 2 3\n", "model 1 2\n", "model 0 1 1\n", "model 1 2 3 \n", "model 1 2 3\nmodel 1 2 3\n", "x\n"],
)
def test_anything_else_is_no_answer(text: str) -> None:
    with pytest.raises(OddAnswerError):
        read_answer(text)


def test_what_is_open_and_what_is_guessed_of_images_stays() -> None:
    unread = ("nine: its tensors are not known", "eye: how large images may be is not known; 500 MiB stand for one")
    engine = EngineLoads(Address("llama/llama_cpp"), (NINE,), unread, unknown="nobody knows", question=QUESTION)
    told = with_answers(engine, {"nine": {"model": 10**10}}, {})
    assert (told.total, told.unread, told.unknown, told.question) == (10**10, unread[1:], QUESTION.open, None)


def test_of_images_whichever_is_more_counts() -> None:
    seeing = NINE.__class__(NINE.name, NINE.shape, NINE.weights, NINE.context, encoder=1000, image_buffer=500)
    engine = EngineLoads(Address("llama/llama_cpp"), (seeing,), question=QUESTION)
    small = with_answers(engine, {"nine": {"model": 10**10, "projector": 1400}}, {})
    large = with_answers(engine, {"nine": {"model": 10**10, "projector": 1600}}, {})
    assert [total_of(one.loads[0]) for one in (small, large)] == [10**10 + 1500, 10**10 + 1600]


@pytest.mark.parametrize(
    ("free", "largest"), [(10**10, 40_192), (10**10 + 2000 * 2048, 42_240), (10**10 - 1, 39_936), (0, 0)]
)
def test_the_largest_context_follows_from_two_answers_where_no_sum_of_ours_knows_it(free: int, largest: int) -> None:
    unknown = replace(NINE, slots=1, shape=replace(NINE.shape, layers=(), unread=("new",), context=50_000))
    engine = EngineLoads(Address("llama/llama_cpp"), (unknown,), question=QUESTION)
    answers = {"nine": {"model": 10**10}}, {"nine": {"model": 10**10 - 2000 * 40_192 // 2}}
    (load,) = with_answers(engine, *answers).loads
    assert load.told_each == 2000
    assert largest_context(load, free) == largest
    assert largest_context(load, 10**12) == 50_000 // 256 * 256
