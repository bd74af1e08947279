"""llama-perplexity: how it is asked, what it says, and that nothing else passes for figures: it always ends well."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.measuring.quality import (
    NoFigureError,
    Quality,
    base_words,
    command,
    judging_words,
    logits_bytes,
    memory_bytes,
    perplexity_in,
    quality_in,
)

RECORDED = Path(__file__).parents[2] / "data/benchmarks"
BASE = (RECORDED / "llama_perplexity_base.txt").read_text().splitlines()
JUDGED = (RECORDED / "llama_perplexity_judged.txt").read_text().splitlines()
"""Of llama.cpp's build 11312: four chunks, a model of 372 tokens, and the same with four bits a weight."""
SIZE_OF_LOGITS, VOCABULARY, CHUNKS = 775_252, 372, 4
"""What the first one wrote."""


def test_what_a_real_one_says_of_a_quant_is_read() -> None:
    assert quality_in(JUDGED) == Quality(
        mean=0.000014,
        median=0.000014,
        worst_percent=0.000018,
        same_top=85.49,
        perplexity=369.88488,
        of_parent=370.262533,
    )
    assert perplexity_in(BASE) == 370.2625


@pytest.mark.parametrize(
    "missing", ["Mean    KLD", "Median  KLD", "99.0%   KLD", "Same top p", "Mean PPL(Q) ", "Mean PPL(base)"]
)
def test_a_figure_that_is_missing_is_no_figure(missing: str) -> None:
    said = [line for line in JUDGED if not line.startswith(missing)]
    assert len(said) < len(JUDGED)
    with pytest.raises(NoFigureError, match="does not say"):
        quality_in(said)


@pytest.mark.parametrize(
    "line",
    [
        "0.00.1 E kl_divergence: inconsistent vocabulary (381 vs 400)",
        "0.00.1 E perplexity: the data file you provided tokenizes to only 900 tokens",
    ],
)
def test_figures_of_something_else_are_none(line: str) -> None:
    for reader, said in ((quality_in, JUDGED), (perplexity_in, BASE)):
        with pytest.raises(NoFigureError, match=r"vocabulary|tokenizes to only"):
            reader([line, *said])


@pytest.mark.parametrize("said", [[], [""], ["0.1 E kl_divergence: failed to open /x"], ["Mean    KLD:   nan ± nan"]])
def test_one_that_ended_early_says_nothing(said: list[str]) -> None:
    for reader in (quality_in, perplexity_in):
        with pytest.raises(NoFigureError):
            reader(said)


def test_a_figure_that_is_no_number_is_none() -> None:
    said = [line.replace("0.000014 ±", "nan ±") for line in JUDGED]
    with pytest.raises(NoFigureError, match="does not say mean"):
        quality_in(said)


@pytest.mark.parametrize("times", [1, 7, 100])
def test_the_disk_that_is_reckoned_is_what_it_wrote(times: int) -> None:
    wanted = (SIZE_OF_LOGITS - 20) * times + 20
    assert wanted <= logits_bytes(VOCABULARY, CHUNKS * times) < wanted + 2**20
    assert memory_bytes(128_256) < 2**30


def test_it_is_asked_with_the_words_that_serve() -> None:
    served = [
        "--models-preset",
        "/etc/m.ini",
        "--gpu-layers",
        "20",
        "--batch-size",
        "2048",
        "--cpu-moe",
        "--port",
        "8080",
        "--flash-attn",
        "on",
    ]
    words = command("/opt/bin", served, 4, "/srv/q.gguf", judging_words("/l"))
    assert words == [
        "/opt/bin/llama-perplexity",
        *("--threads", "4", "--gpu-layers", "20", "--cpu-moe", "--flash-attn", "on"),
        *("--model", "/srv/q.gguf", "--ctx-size", "512", "--batch-size", "512", "--ubatch-size", "512"),
        *("--kl-divergence", "--kl-divergence-base", "/l"),
    ]
    assert base_words("/t", 7, "/l") == ["--file", "/t", "--chunks", "7", "--kl-divergence-base", "/l"]
    assert command("/b", ["--threads", "2"], 4, "/m", [])[1:3] == ["--threads", "2"]
