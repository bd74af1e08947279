"""What many clients see at once: what guidellm reports, what is good of it, and what all of them get together."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from provisioner.measuring.history import Setting as Where
from provisioner.measuring.history import line_of, result_in
from provisioner.measuring.load import (
    PARTS,
    Judged,
    Level,
    NoAnswerError,
    Objective,
    Request,
    UnknownReportError,
    asked_text,
    figures,
    levels_in,
    options_of,
    percentile,
    prompts_text,
    seconds_each,
    tokens_between,
)

RECORDED = Path(__file__).parents[2] / "data/benchmarks/guidellm_report.json"
"""Of guidellm 0.8.1 against the double ``timed_engine``, one client and then four, for five seconds each.

The first token came after 0.2 s, and 15 more with 0.02 s between two of them.
"""
GOOD = Objective(first_s=2.0, each_s=0.1)


def report() -> Any:
    return json.loads(RECORDED.read_text())


def level(*requests: Request, clients: int = 2, seconds: float = 10.0, failed: int = 0) -> Level:
    return Level(clients, 100.0, 100.0 + seconds, requests, failed, "HTTP 503" if failed else "", ())


def steady(count: int, answer_s: float = 1.0, tokens: int = 11) -> list[Request]:
    """Answers of one client, one after the other, the first token after a tenth of its time."""
    return [Request(100.0 + number * answer_s, answer_s / 10, answer_s, 512, tokens) for number in range(count)]


def test_what_a_real_one_reports_is_read() -> None:
    one, four = levels_in(report())
    assert (one.clients, four.clients) == (1, 4)
    assert (len(one.requests), len(four.requests)) == (9, 36)
    assert one.ended_s - one.began_s == pytest.approx(5.0)
    assert (one.failed, one.error) == (0, "")
    assert "bottlenecked by the data generation" in one.warnings[0]
    for request in (*one.requests, *four.requests):
        assert (request.prompt, request.tokens) == (139, 16)
        assert 0.2 <= request.first_s < 1.0
    assert median(request.first_s for request in one.requests) == pytest.approx(0.2, abs=0.06)
    judged = [Judged(level, GOOD, 0.1) for level in (one, four)]
    assert figures(judged[1])["all"] == pytest.approx(4 * figures(judged[0])["all"], rel=0.15)
    assert figures(judged[1])["each"] == pytest.approx(50, rel=0.15)


@pytest.mark.parametrize(
    "change",
    [
        {"benchmarks": None},
        {"benchmarks": [{}]},
        {"benchmarks": [{**report()["benchmarks"][0], "requests": {"successful": [{}], "errored": []}}]},
        {"benchmarks": [{**report()["benchmarks"][0], "config": {"strategy": {"streams": "many"}}}]},
        {"benchmarks": [{**report()["benchmarks"][0], "start_time": None}]},
    ],
)
def test_what_it_never_reports_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UnknownReportError):
        levels_in({**report(), **change})


def test_it_is_told_no_key_and_asks_nobody_for_a_model(tmp_path: Path) -> None:
    ours = json.loads(asked_text("http://x", "m", [1, 4], 30, 64, is_exact=True, folder=tmp_path))["spec"]
    assert "api_key" not in ours["backend"]
    assert ours["backend"]["validate_backend"] is False
    assert ours["tokenizer"]["model"] == str(tmp_path / "tokenizer")
    assert ours["profile"]["streams"] == [1, 4]
    others = json.loads(asked_text("http://x", "m", [1], 30, 64, is_exact=False, folder=tmp_path))["spec"]
    assert others["backend"]["extras"]["body"] == {"max_tokens": 64}, "others refuse what they do not know"


def test_no_prompt_is_like_another() -> None:
    prompts = [json.loads(line)["prompt"] for line in prompts_text(50, 100, 16, 7).splitlines()]
    assert len(set(prompts)) == 100
    assert {len(prompt.split()) for prompt in prompts} == {50}


@pytest.mark.parametrize(
    ("first_s", "each_s", "is_good"), [(2.0, 0.1, True), (2.01, 0.1, False), (0.1, 0.101, False), (0.1, 0.0, True)]
)
def test_good_is_what_begins_and_goes_on_in_time(first_s: float, each_s: float, is_good: bool) -> None:
    assert Request(0.0, first_s, first_s + 10 * each_s, 5, 11).is_good(GOOD) == is_good


def test_goodput_counts_good_answers_alone() -> None:
    late = [Request(105.0, 5.0, 6.0, 512, 11)] * 2
    judged = Judged(level(*steady(8), *late), GOOD, 0.0)
    assert judged.good == 8
    assert judged.good_per_s == pytest.approx(0.8)
    assert figures(judged)["good"] == pytest.approx(0.8)


def test_all_tokens_are_spread_over_the_time_and_none_is_lost() -> None:
    requests = steady(10)
    whole = sum(tokens_between(one, 100.0 + part / 2, 100.5 + part / 2) for one in requests for part in range(20))
    assert whole == pytest.approx(110)
    judged = Judged(level(*requests), GOOD, 0.0)
    assert len(judged.in_parts) == PARTS
    assert figures(judged)["all"] == pytest.approx(11, rel=0.02)


def test_answers_that_were_not_whole_at_the_end_make_it_no_slower() -> None:
    """Four clients, answers of 3 s, 10 s: the fourth answer of each is cut, and nobody tells of it."""
    requests = [one for _ in range(4) for one in steady(3, answer_s=3.0, tokens=31)]
    judged = Judged(level(*requests, clients=4), GOOD, 0.0)
    assert judged.until_s == pytest.approx(107.0)
    assert figures(judged)["all"] == pytest.approx(4 * 31 / 3, rel=0.1)


def test_one_token_that_came_alone_counts() -> None:
    assert tokens_between(Request(0.0, 1.0, 1.0, 5, 7), 0.5, 1.5) == 7
    assert tokens_between(Request(0.0, 1.0, 1.0, 5, 7), 1.5, 2.5) == 0


def test_where_nobody_was_answered_there_is_no_figure() -> None:
    with pytest.raises(NoAnswerError, match="none of 2 clients was answered: HTTP 503"):
        Judged(level(failed=5), GOOD, 0.0)


def test_what_is_kept_can_be_read_again() -> None:
    judged = Judged(level(*steady(8)), GOOD, 0.25)
    where = Where("box", "EPYC", "", "", "b", "m", options_of("some", (512, 128), 2))
    result = judged.result("2026-11-28T00:00:00+00:00", "llama/llama_cpp", where)
    assert result_in(line_of(result)) == result
    assert [series.name for series in result.series] == ["first token @ c2", "each @ c2", "all @ c2"]
    assert {trial.waited for series in result.series for trial in series.trials} == {0.25}
    assert result.setting.options == {"model": "some", "p": "512", "n": "128", "c": "2"}


def test_times_and_percentiles() -> None:
    assert seconds_each(270, 4) == 67.5
    assert seconds_each(270, 100) == 10
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.95) == 1.0
    assert percentile([float(number) for number in range(100)], 0.95) == 95.0
