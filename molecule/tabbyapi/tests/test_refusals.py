"""What the role refuses before it changes anything, each with the words that say what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from testinfra.host import Host

from tests.molecule.refusals import Case, told_to

SCENARIO = Path(__file__).resolve().parents[1]
GGUF = "tabbyAPI reads EXL3/EXL2 folders; GGUF is for llama_cpp"
SAME = "canary-same-key-0123"
CASES: dict[str, Case] = {
    "as it is": ({}, ""),
    "all cards": ({"tensor_parallel": True, "gpu_split": [20.5, 24], "vision": True, "cache_mode": "2,8"}, ""),
    "a draft model": ({"draft_mode": "model", "draft_model": "tiny-exl3", "max_seq_len": 2048}, ""),
    "cache 1000": ({"cache_size": 1000}, "has to be a multiple of 256. Write 768 or 1024, or 0"),
    "cache 100": ({"cache_size": 100}, "Write 256, or 0"),
    "cache below 0": ({"cache_size": -256}, "`cache_size` (-256) must be 0 or more"),
    "mode 9,4": ({"cache_mode": "9,4"}, "with exllamav3 write FP16, Q8, Q6 or Q4, or the bits of keys and values"),
    "mode 8,8 of exllamav2": ({"cache_mode": "8,8", "backend": "exllamav2"}, "write FP16, Q8, Q6 or Q4."),
    "length 0": ({"max_seq_len": 0}, "Unable to use a `max_seq_len` of 0"),
    "length of more than the cache": ({"max_seq_len": 4096}, "`max_seq_len` of 4096 with a `cache_size` of 2048"),
    "chunk 100": ({"chunk_size": 100}, "`chunk_size` (100) must be 256 or more"),
    "chunk 300": ({"chunk_size": 300}, "`chunk_size` (300) has to be a multiple of 256"),
    "split below 0": ({"gpu_split": [-1]}, "`gpu_split` (-1) must be 0 or more"),
    "no draft model": ({"draft_mode": "model"}, "needs the folder of a draft model"),
    "draft model without its mode": ({"draft_model": "tiny-exl3"}, "`draft_mode` disabled and `draft_model` tiny-exl3"),
    "ngrams of exllamav2": ({"draft_mode": "ngram", "backend": "exllamav2", "cache_mode": "Q8"}, "need exllamav3"),
    "folder with a GGUF": ({"model": "a-gguf"}, GGUF),
    "GGUF file": ({"model": "a-gguf/model.gguf"}, GGUF),
    "folder without a model": ({"model": "nothing"}, "it holds no config.json"),
    "missing folder": ({"model": "missing"}, "there is no such folder"),
    "folder elsewhere": ({"model": "../secret"}, "a folder below `model_dir`"),
    "EXL2 for exllamav3": ({"model": "old-exl2"}, "its weights are exl2. Set `backend` to exllamav2"),
    "EXL3 for exllamav2": (
        {"backend": "exllamav2", "cache_mode": "Q8"},
        "its weights are exl3. Set `backend` to exllamav3",
    ),
    "short key": ({"api_key": "short"}, "`api_key` and `admin_key` must differ and have 16 or more characters"),
    "key with a quote": ({"api_key": 'canary"0123456789'}, "of letters, digits and"),
    "same keys": ({"api_key": SAME, "admin_key": SAME}, "must differ"),
    "variable of upstream": ({"environment": {"TABBY_NETWORK_PORT": "1"}}, "one of tabbyAPI's own"),
    "variable of two lines": ({"environment": {"A": "1\n2"}}, "a control character"),
    "short commit": ({"commit": "e632af4"}, "`commit` (e632af4) must be 40 hexadecimal digits"),
    "source that is an option": ({"source": "--upload-pack=x"}, "must be a https, ssh or file address"),
    "no interpreter": ({"python": "/srv/none/bin/python"}, "Role torch_stack makes it"),
}


@pytest.fixture(scope="module")
def told(host: Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the role says to each case, nothing where it takes it."""
    return told_to(host, "tabbyapi", SCENARIO, CASES, tmp_path_factory.mktemp("play"))


@pytest.mark.parametrize("name", CASES)
def test_what_types_cannot_say_is_refused(told: dict[str, str], name: str) -> None:
    _, words = CASES[name]
    assert words in told.get(name, "")
    assert (name in told) == bool(words)
