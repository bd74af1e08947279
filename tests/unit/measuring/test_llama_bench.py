"""How llama-bench is asked what an engine computes, and what is read from its lines."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.measuring.engine import Figure, UnknownLineError, command_of, figures, sweeps

SERVED = [
    "/opt/llama_cpp/abc/bin/llama-server",
    *("--model", "/srv/m.gguf", "--alias", "m", "--ctx-size", "8192", "--host", "127.0.0.1", "--port", "18080"),
    *("--batch-size", "2048", "--ubatch-size", "512", "--cache-type-k", "q8_0", "--cache-type-v", "f16"),
    *("--flash-attn", "auto", "--no-kv-offload", "--gpu-layers", "all", "--load-mode", "mmap", "--cpu-moe"),
    *("--api-key-file", "/run/llama-server/api-key", "--threads", "4"),
]
LINE = {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "samples_ts": [1234.5]}


def test_it_measures_what_is_served() -> None:
    program, *words = command_of(SERVED, 2, (512, 128), {})
    assert program == "/opt/llama_cpp/abc/bin/llama-bench"
    told = dict(zip(words[::2], words[1::2], strict=True))
    assert told == {
        "-m": "/srv/m.gguf",
        "-b": "2048",
        "-ub": "512",
        "-ctk": "q8_0",
        "-ctv": "f16",
        "-fa": "auto",
        "-nkvo": "1",
        "-ngl": "-1",
        "-lm": "mmap",
        "-ncmoe": "999",
        "-t": "4",
        "-p": "512",
        "-n": "128",
        "-r": "1",
        "-o": "jsonl",
    }


def test_what_is_swept_stands_in_the_place_of_what_is_served() -> None:
    words = command_of(SERVED, 2, (512, 128), {"ubatch": "64", "depth": "4096", "cache_k": "f16"})
    assert [words[words.index(word) + 1] for word in ("-ub", "-d", "-ctk", "-b")] == ["64", "4096", "f16", "2048"]
    assert words.count("-ub") == 1


def test_each_combination_is_measured() -> None:
    assert list(sweeps({})) == [{}]
    found = list(sweeps({"batch": ["256", "512"], "threads": ["1", "2"]}))
    assert len(found) == 4
    assert {"batch": "512", "threads": "1"} in found


def test_a_line_says_a_figure_by_the_name_that_its_own_table_has() -> None:
    deep = {"n_prompt": 0, "n_gen": 128, "n_depth": 4096, "samples_ts": [17.5]}
    assert list(figures([LINE, deep])) == [Figure(True, 512, 0, 1234.5), Figure(False, 128, 4096, 17.5)]
    assert [one.name for one in figures([LINE, deep])] == ["pp512", "tg128 @ d4096"]


@pytest.mark.parametrize(
    "more",
    [
        {"samples_ts": []},
        {"samples_ts": [1, 2]},
        {"samples_ts": ["fast"]},
        {"samples_ts": [0]},
        {"samples_ts": [float("nan")]},
        {"samples_ts": [float("inf")]},
        {"n_gen": 5},
        {"n_prompt": 0},
        {"n_depth": None},
    ],
)
def test_what_is_no_figure_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(UnknownLineError):
        list(figures([{**LINE, **more}]))


@pytest.mark.parametrize("line", [None, [], "text", 5])
def test_what_is_no_line_of_it_is_refused(line: Any) -> None:
    with pytest.raises(UnknownLineError):
        list(figures([line]))
