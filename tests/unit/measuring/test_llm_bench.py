"""What clients of a service see: how prompts get their length, what an answer has to be, and what follows of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from provisioner.measuring.endpoints import WORDS, Length, UncountedError, filler, length_of, tokens_in
from provisioner.measuring.history import Setting as Where
from provisioner.measuring.history import line_of, result_in
from provisioner.measuring.llm import (
    SCHEMA,
    Answered,
    Depth,
    Progress,
    Setting,
    UnknownProgressError,
    answered_in,
    command,
    depth_of,
    fit,
    fit_by_answers,
    most_tokens,
    reading_per_s,
    rounds_of,
    tokenizer_text,
    writing_per_s,
)

RECORDED = Path(__file__).parents[2] / "data/benchmarks/llama_benchy_progress.jsonl"
"""Of llama-benchy 0.4.0 against the double ``timed_engine``: first token after 0.05 s, then one each 0.01 s."""


def answered(setting: Setting, prompt: int = 512, **changed: Any) -> Answered:
    told = {"number": 1, "first_s": 0.5, "rest_s": 1.0, "prompt": prompt, "tokens": 101, "pieces": 101, "error": ""}
    return Answered(setting, **{**told, **changed})


def test_what_a_real_one_says_is_read() -> None:
    found = list(answered_in(RECORDED.read_text().splitlines()))
    assert [(one.setting, one.number) for one in found] == [
        (Setting(0, 40, 4), 0),
        (Setting(0, 40, 4), 1),
        (Setting(100, 40, 4), 0),
        (Setting(100, 40, 4), 1),
    ]
    assert [one.prompt for one in found] == [61, 61, 200, 200]
    for one in found:
        assert (one.tokens, one.pieces, one.error) == (4, 4, "")
        assert one.first_s == pytest.approx(0.05, abs=0.02)
        assert writing_per_s(one) == pytest.approx(100, rel=0.2)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "null",
        '{"type": "request_end"}',
        '{"schema": "llama-benchy-progress.v2", "type": "header"}',
        json.dumps({"schema": SCHEMA, "type": "request_end", "request_id": 7, "error": ""}),
        json.dumps({"schema": SCHEMA, "type": "request_first_token", "request_id": 7, "ttft_s": "soon"}),
        json.dumps({"schema": SCHEMA, "type": "request_first_token", "request_id": [], "ttft_s": 1}),
    ],
)
def test_what_it_never_says_is_refused(line: str) -> None:
    with pytest.raises(UnknownProgressError):
        Progress().read(line)


def test_lines_of_kinds_that_nobody_needs_are_passed_over() -> None:
    progress = Progress()
    assert progress.read(json.dumps({"schema": SCHEMA, "type": "a new one"})) is None
    assert not progress.is_answered


def test_each_word_is_one_token_of_its_tokenizer() -> None:
    said = json.loads(tokenizer_text())
    assert len(said["model"]["vocab"]) == len(set(WORDS)) + 1
    assert {*filler(1000, 5).split()} <= said["model"]["vocab"].keys()
    assert filler(50, 1) != filler(50, 2)
    assert len(filler(50, 1).split()) == 50


def test_no_key_and_no_latency_is_asked_for() -> None:
    words = command("http://127.0.0.1:9/x", "m", [Setting(0, 40, 4)], 2, is_exact=False, folder="/f")
    assert "--api-key" not in words
    assert "--exact-tg" not in words
    assert words[words.index("--latency-mode") + 1] == "none"
    assert words[words.index("--base-url") + 1] == "http://127.0.0.1:9/x/v1"


@pytest.mark.parametrize("seed", range(20))
def test_prompts_get_their_length_of_any_tokenizer(seed: int) -> None:
    """The true tokenizer has ``per_word`` tokens for a word, and some around each message."""
    chance = random.Random(seed)  # noqa: S311
    per_word, around, behind = chance.uniform(0.3, 9.0), chance.randint(0, 60), chance.randint(0, 30)
    depths = [Depth(depth, 512, 32) for depth in (0, 2048, 8192)]

    def counted(setting: Setting) -> int:
        return round((setting.context + setting.prompt) * per_word) + around + (behind if setting.context else 0)

    short = (20, counted(Setting(0, 20, 1)))
    fit(depths, length_of(short, (60, counted(Setting(0, 60, 1)))))
    for one in depths:
        one.cold = answered(one.setting, counted(one.setting))
    fit_by_answers(depths)
    for one in depths:
        assert not list(one.doubts(answered(one.setting, counted(one.setting)))), one
    assert len({one.setting.prompt for one in depths}) == 1, "they are asked by one start"


def test_depths_that_are_the_same_words_are_refused() -> None:
    with pytest.raises(UncountedError, match="0, 1, 2 are too near"):
        fit([Depth(depth, 64, 8) for depth in (0, 1, 2)], Length(9.0, 5))


@pytest.mark.parametrize(("shorter", "longer"), [((20, 50), (60, 50)), ((20, 50), (60, 3))])
def test_a_service_that_counts_nothing_is_refused(shorter: tuple[int, int], longer: tuple[int, int]) -> None:
    with pytest.raises(UncountedError):
        length_of(shorter, longer)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"usage": None},
        {"usage": {}},
        *({"usage": {"prompt_tokens": one}} for one in (0, -1, True, "5", 5.5, None)),
    ],
)
def test_an_answer_without_a_count_is_refused(answer: Any) -> None:
    with pytest.raises(UncountedError):
        tokens_in(answer)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"error": "HTTP 500: no"}, "HTTP 500: no"),
        ({"tokens": 0}, "an empty answer"),
        ({"prompt": 2048}, "it counted 2048 tokens of a prompt of 2560"),
        ({"prompt": 2700}, "it counted 2700 tokens of a prompt of 2560"),
        ({"first_s": 0.0}, "it told no moment of its first token"),
    ],
)
def test_an_answer_of_something_else_is_doubted(changed: dict[str, Any], words: str) -> None:
    depth = Depth(2048, 512, 32, Setting(1600, 400, 32))
    assert list(depth.doubts(answered(depth.setting, 2560))) == []
    assert list(depth.doubts(answered(depth.setting, **{"prompt": 2560, **changed}))) == [words]


def test_figures_are_those_that_clients_see() -> None:
    depth = Depth(0, 512, 101)
    depth.cold = answered(depth.setting, first_s=3.0)
    depth.trials += [(answered(depth.setting), 0.1), (answered(depth.setting, first_s=0.25, rest_s=2.0), 0.2)]
    first, reading, writing = depth.series()
    assert (first.name, first.unit, first.values) == ("first token", "s", (0.5, 0.25))
    assert (reading.name, reading.values) == ("pp512", (1024, 2048))
    assert (writing.name, writing.values) == ("tg101", (100, 50))
    assert [trial.waited for trial in writing.trials] == [0.1, 0.2]
    assert reading_per_s(depth.trials[0][0]) == 1024
    where = Where("box", "EPYC", "", "", "b", "m", depth.options("some"))
    result = depth.result("2026-11-28T00:00:00+00:00", "llama/llama_cpp", where)
    assert result.cold == {"first token": 3.0, "whole answer": 4.0}
    assert result_in(line_of(result)) == result


@pytest.mark.parametrize(
    ("tokens", "pieces", "is_stream"), [(8, 2, False), (100, 1, False), (100, 3, True), (7, 1, True)]
)
def test_one_burst_is_no_stream(tokens: int, pieces: int, is_stream: bool) -> None:
    depth = Depth(64, 512, 100)
    depth.trials += [(answered(depth.setting), 0.0), (answered(depth.setting, tokens=tokens, pieces=pieces), 0.0)]
    names = [one.name for one in depth.series()]
    assert names == (["first token @ d64", "pp512 @ d64", "tg100 @ d64"] if is_stream else ["whole answer @ d64"])


def test_an_answer_that_is_none_of_what_was_asked_is_refused() -> None:
    depths = [Depth(0, 64, 8)]
    assert depth_of(depths, answered(depths[0].setting)) is depths[0]
    with pytest.raises(UncountedError):
        depth_of(depths, answered(Setting(5, 5, 5)))


@pytest.mark.parametrize("trials", [1, 2, 5, 10, 11, 60, 999])
def test_starts_share_the_trials(trials: int) -> None:
    rounds = rounds_of(trials)
    assert sum(rounds) == trials
    assert max(rounds) - min(rounds) <= 1
    assert min(rounds) >= 1


def test_what_it_may_cost_is_no_less_than_what_is_asked() -> None:
    told = most_tokens([Depth(0, 512, 128), Depth(1000, 512, 128)], 10)
    assert told == {"requests": 32, "read": 16 * 2024, "written": 16 * 256}
