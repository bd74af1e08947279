"""Which options of role ``llama_cpp`` do not go together, by a real run of Ansible."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ansible_environment import run_tasks

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
    "an argument of two lines": ({"extra_arguments": ["--lora", "a\nb"]}, "a control character"),
    "a variable of two words": ({"environment": {"A B": "x"}}, "Names are letters"),
    "a variable that ends a line": ({"environment": {"A\n": "x"}}, "Names are letters"),
    "a value of two lines": ({"environment": {"A": "x\nExecStartPre=/bin/true"}}, "a control character"),
    "a key of two lines": ({"api_key": "two\nkeys"}, "`api_key` holds"),
    "a key that ends a line": ({"api_key": "line\n"}, "`api_key` holds"),
    "a key of two words": ({"api_key": "two keys"}, "`api_key` holds"),
    "a key outside ASCII": ({"api_key": "schl\u00fcssel"}, "`api_key` holds"),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the role says to each case, nothing where it takes it."""
    folder = tmp_path_factory.mktemp("play")
    run_tasks(ROOT, folder, _tasks())
    said: dict[str, str] = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    return said


def _tasks() -> Iterator[dict[str, Any]]:
    yield {"set_fact": {"told": {}}}
    for name, (options, _) in CASES.items():
        include = {"name": "llama_cpp", "tasks_from": "preflight_together"}
        variables = {f"llama_cpp_{key}": value for key, value in options.items()}
        messages = "{{ ansible_failed_result.results | selectattr('failed') | map(attribute='msg') | join }}"
        yield {
            "block": [{"include_role": include, "vars": variables}],
            "rescue": [
                {"set_fact": {"told": "{{ told | combine({case: said}) }}"}, "vars": {"case": name, "said": messages}}
            ],
        }
    yield {"copy": {"content": "{{ told | to_json }}", "dest": "{{ folder }}/told.json", "mode": "0600"}}


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_go_together_is_refused_and_nothing_else(told: dict[str, str], name: str) -> None:
    _, words = CASES[name]
    assert words in told.get(name, "")
    assert (name in told) == bool(words)
