"""Which of what ``bench`` has kept says how fast a model writes on a card."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from provisioner.loads.suggestions import Measured
from provisioner.measuring.history import Result, Series, Setting, Trial
from provisioner.suggest.speeds import writing_speeds

AT = "2026-11-20T08:00:00+00:00"
CARD = "NVIDIA GeForce RTX 3060"
MODEL = "e" * 64


def result(kind: str, options: Mapping[str, str], *names: str, card: str = CARD, model: str = MODEL) -> Result:
    """A result whose trials are 40, 41.2 and 50 tokens in a second."""
    trials = (Trial(40.0), Trial(41.2), Trial(50.0))
    series = tuple(Series(name, "tokens/s", trials) for name in names)
    return Result(AT, kind, "llama/llama_cpp", Setting("box", "EPYC", card, "580", "b" * 64, model, options), series)


def speeds(*results: Result) -> list[Measured]:
    return writing_speeds(results, lambda name: name == CARD).get(MODEL, [])


def test_what_llama_bench_wrote_is_known_with_how_it_was_served() -> None:
    options = {"ngl": "-1", "ctk": "q8_0", "ctv": "q4_0", "ncmoe": "12", "b": "2048"}
    assert speeds(result("engine", options, "pp512", "tg128", "tg64 @ d4096")) == [
        Measured(41.2, AT, 0, "q8_0", "q4_0", None, 12),
        Measured(41.2, AT, 4096, "q8_0", "q4_0", None, 12),
    ]
    assert speeds(result("engine", {"ngl": "33"}, "tg128")) == [Measured(41.2, AT, gpu_layers=33)]
    assert speeds(result("engine", {}, "tg128")) == [Measured(41.2, AT)]


def test_what_clients_saw_does_not_say_how_it_was_served() -> None:
    found = speeds(result("llm", {"model": "m", "p": "512", "n": "128", "d": "0"}, "first token", "pp512", "tg128"))
    assert found == [Measured(41.2, AT, is_told=False, by_clients=True)]


def test_of_a_folder_clients_saw_which_engine_served_it_and_with_which_cache() -> None:
    options = {"model": "m", "p": "512", "n": "128", "d": "4096", "engine": "tabbyapi", "cache": "8,8"}
    (found,) = speeds(result("llm", options, "tg128 @ d4096"))
    assert found == Measured(41.2, AT, 4096, engine="tabbyapi", cache="8,8", by_clients=True)


@pytest.mark.parametrize(
    "other",
    [
        result("engine", {}, "tg128", card=""),
        result("engine", {}, "tg128", card="NVIDIA GeForce RTX 3090"),
        result("engine", {"dev": "none"}, "tg128"),
        result("engine", {"nkvo": "1"}, "tg128"),
        result("engine", {}, "tg128", model="f" * 64),
        result("llm", {}, "tg128", model=""),
        result("llm", {"engine": "vllm", "cache": "auto", "speculative": "ngram"}, "tg128"),
        result("load", {}, "tg128"),
        result("quality", {}, "divergence"),
        result("engine", {}, "pp512"),
    ],
    ids=[
        "cpu",
        "other card",
        "no device",
        "cache off it",
        "other model",
        "unknown model",
        "drafts",
        "load",
        "quality",
        "reading",
    ],
)
def test_what_says_nothing_of_that_model_on_that_card_does_not_count(other: Result) -> None:
    assert speeds(other) == []
    assert len(speeds(other, result("engine", {}, "tg128"))) == 1
