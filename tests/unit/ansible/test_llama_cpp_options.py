"""Which options role ``llama_cpp`` refuses, as Ansible judges it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plays import refusals

ROOT = Path(__file__).resolve().parents[3]
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, ""),
    "all of it": (
        {
            "kv_cache": {"v": "q8_0"},
            "environment": {"GGML_X": "a b \\Z c", "_1": 2},
            "extra_arguments": ["--seed", "1"],
            "api_key": "sk-!~",
        },
        "",
    ),
    "a cache without flash attention": ({"kv_cache": {"v": "q8_0"}, "flash_attention": "off"}, "need flash attention"),
    "layers without a card": ({"gpu_layers": "all"}, "`gpu_layers` is all"),
    "a device without a card": ({"device": "CUDA0"}, "`device` CUDA0"),
    "layers on a card": ({"backend": "cuda", "gpu_layers": "all", "device": "CUDA0"}, ""),
    "an argument of ours": ({"extra_arguments": ["--api-key", "x"]}, "(--api-key)"),
    "an argument of ours by its other name": ({"extra_arguments": ["--ctx_size", "9"]}, "(--ctx-size)"),
    "a variable of two words": ({"environment": {"A B": "x"}}, "Names are letters"),
    "a variable that ends a line": ({"environment": {"A\n": "x"}}, "Names are letters"),
    "a value of two lines": ({"environment": {"A": "x\nExecStartPre=/bin/true"}}, "a control character"),
    "tools by a variable": ({"environment": {"LLAMA_ARG_TOOLS": "all"}}, "a shell where it runs (LLAMA_ARG_TOOLS)"),
    "servers of tools by a variable": ({"environment": {"LLAMA_ARG_MCP_SERVERS_JSON": "{}"}}, "a shell where it runs"),
    "a variable of the program that is harmless": ({"environment": {"LLAMA_ARG_AGENTS": "1"}}, ""),
    "a key of two lines": ({"api_key": "two\nkeys"}, "`api_key` holds"),
    "a key that ends a line": ({"api_key": "line\n"}, "`api_key` holds"),
    "a key of two words": ({"api_key": "two keys"}, "`api_key` holds"),
    "a key outside ASCII": ({"api_key": "schl\u00fcssel"}, "`api_key` holds"),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the role says to each case, nothing where it takes it."""
    cases = {name: options for name, (options, _) in CASES.items()}
    return refusals(ROOT, tmp_path_factory.mktemp("play"), "llama_cpp", "preflight_options", cases)


@pytest.mark.parametrize("name", CASES)
def test_what_it_cannot_serve_with_is_refused_and_nothing_else(told: dict[str, str], name: str) -> None:
    _, words = CASES[name]
    assert words in told.get(name, "")
    assert (name in told) == bool(words)
