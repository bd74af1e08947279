"""What the role refuses before it changes anything, each with the words that say what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from testinfra.host import Host

from tests.molecule.refusals import Case, told_to

SCENARIO = Path(__file__).resolve().parents[1]
GGUF = "vLLM reads folders of safetensors; GGUF is for llama_cpp"
CASES: dict[str, Case] = {
    "as it is": ({}, ""),
    "as the model was made": ({"max_model_len": 0, "quantization": "fp8", "speculative": "ngram"}, ""),
    "without parsers": ({"reasoning_parser": "", "tool_parser": ""}, ""),
    "another tool parser": ({"tool_parser": "granite-20b-fc"}, ""),
    "an unknown tool parser": ({"tool_parser": "qwen9"}, "`tool_parser` qwen9: this vLLM has granite-20b-fc, hermes."),
    "an unknown parser": ({"reasoning_parser": "qwen9"}, "`reasoning_parser` qwen9: this vLLM has deepseek_r1, qwen3."),
    "a parser with a blank": ({"tool_parser": "a b"}, "`tool_parser` (a b) must consist of small letters"),
    "more context than the model's": (
        {"max_model_len": 4096},
        "the model was made for 2048 tokens. Write 2048 or less",
    ),
    "context of a stretched model": ({"model": "stretched", "max_model_len": 8192}, ""),
    "more than a stretched model's": (
        {"model": "stretched", "max_model_len": 8193},
        "the model was made for 8192 tokens. Write 8192 or less",
    ),
    "context below 0": ({"max_model_len": -1}, "`max_model_len` (-1) must be 0 or more"),
    "no requests": ({"max_num_seqs": 0}, "`max_num_seqs` (0) must be 1 or more"),
    "all of the card": (
        {"gpu_memory_utilization": 1.0},
        "`gpu_memory_utilization` (1.0) must be 0.05 or more and 0.98",
    ),
    "no cards": ({"tensor_parallel": 0}, "`tensor_parallel` (0) must be 1 or more"),
    "cards of the processor": ({"tensor_parallel": 2}, "they are for cards. Leave them out"),
    "more cards than there are": (
        {"backend": "cuda", "tensor_parallel": 2},
        "Unable to compute on 2 cards (`tensor_parallel`): the machine has 0 of NVIDIA. Write as many as there are.",
    ),
    "offload of the processor": ({"cpu_offload": 2}, "they are for cards. Leave them out"),
    "offload on two cards": ({"backend": "cuda", "cpu_offload": 2, "tensor_parallel": 2}, "Leave one of the two out"),
    "a stack for cards without one": (
        {"backend": "cuda", "packages": [{"name": "vllm", "version": "1", "url": "a", "sha256": "b"}]},
        "it computes on CUDA alone. Give the container a card",
    ),
    "folder with a GGUF": ({"model": "a-gguf"}, GGUF),
    "GGUF file": ({"model": "a-gguf/model.gguf"}, GGUF),
    "EXL3": ({"model": "an-exl3"}, "its weights are exl3, which is for tabbyapi"),
    "pickles": ({"model": "pickles"}, "it holds no safetensors. Weights in .bin or .pt are pickles"),
    "folder without a model": ({"model": "nothing"}, "it holds no config.json"),
    "missing folder": ({"model": "missing"}, "there is no such folder"),
    "folder elsewhere": ({"model": "../secret"}, "a folder below `model_dir`"),
    "short key": ({"api_key": "short"}, "it must have 16 or more characters"),
    "key with a quote": ({"api_key": 'canary"0123456789'}, "of letters, digits and"),
    "variable of two lines": ({"environment": {"A": "1\n2"}}, "a control character"),
    "variable with a blank": ({"environment": {"A B": "1"}}, "a name is none"),
    "no interpreter": ({"python": "/srv/none/bin/python"}, "Role torch_stack makes it"),
    "no vLLM": ({"python": "/srv/bare/bin/python"}, "there is no vLLM in it. Role torch_stack has to hold vLLM"),
}
CASES |= {
    f"variable {name}": ({"environment": {name: "1"}}, "one that opens the server")
    for name in (
        "VLLM_SERVER_DEV_MODE",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        "vllm_plugins",
        "VLLM_API_KEY",
        "VLLM_HOST_IP",
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
        "HF_HUB_OFFLINE",
        "PYTHONPATH",
        "LD_PRELOAD",
    )
}


@pytest.fixture(scope="module")
def told(host: Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the role says to each case, nothing where it takes it."""
    return told_to(host, "vllm", SCENARIO, CASES, tmp_path_factory.mktemp("play"))


@pytest.mark.parametrize("name", CASES)
def test_what_types_cannot_say_is_refused(told: dict[str, str], name: str) -> None:
    _, words = CASES[name]
    assert words in told.get(name, "")
    assert (name in told) == bool(words)
