"""What the role refuses before it changes anything, each with the words that say what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from testinfra.host import Host

from tests.molecule.refusals import Case, told_to

SCENARIO = Path(__file__).resolve().parents[1]
TINY = "/srv/models/tiny/tiny.gguf"
CASES: dict[str, Case] = {
    "as it is": ({}, ""),
    "nothing but fetched": ({"models": []}, ""),
    "a model of its maker's": ({"pull": [{"name": "a", "model": "hf.co/org/repo-GGUF:Q4_K_M"}]}, ""),
    "a cache of q8_0": ({"kv_cache_type": "q8_0", "flash_attention": "on", "keep_alive": "always"}, ""),
    "no models": ({"models": [], "pull": []}, "Unable to serve nothing with Ollama"),
    "a name with a blank": ({"models": [{"alias": "a b", "path": TINY}]}, "each needs a name of its own"),
    "a name with a tag": ({"models": [{"alias": "a:b", "path": TINY}]}, "each needs a name of its own"),
    "two of one name": ({"pull": [{"name": "tiny", "model": "a"}]}, "each needs a name of its own"),
    "a model by its address": ({"pull": [{"name": "a", "model": "https://x/y"}]}, "what its registry calls the model"),
    "a model elsewhere": ({"pull": [{"name": "a", "model": "../etc/x"}]}, "what its registry calls the model"),
    "a short digest": ({"pull": [{"name": "a", "model": "b", "digest": "c"}]}, "must be 64 hexadecimal digits"),
    "a cache without attention": ({"kv_cache_type": "q8_0", "flash_attention": "off"}, "without flash attention"),
    "short key": ({"api_key": "short"}, "it must have 16 or more characters"),
    "key with a quote": ({"api_key": 'canary"0123456789'}, "of letters, digits and"),
    "variable of two lines": ({"environment": {"A": "1\n2"}}, "a control character"),
    "variable with a blank": ({"environment": {"A B": "1"}}, "a name is none"),
    "no such file": ({"models": [{"alias": "a", "path": "/srv/models/none.gguf"}]}, "no /srv/models/none.gguf"),
    "no program": ({"artifact_path": "/srv/none"}, 'Run "provision up": it unpacks the program'),
    "a day": ({"keep_alive": "1 day"}, "`keep_alive` (1 day) must be a duration"),
    "no requests": ({"num_parallel": 0}, "`num_parallel` (0) must be 1 or more"),
    "no archive": ({"source": "https://x.example/install.sh"}, "must be the address of an archive of Ollama"),
}
CASES |= {
    f"variable {name}": ({"environment": {name: "1"}}, "one that opens the server")
    for name in ("OLLAMA_HOST", "OLLAMA_ORIGINS", "OLLAMA_MODELS", "ollama_debug", "OLLAMA_DEBUG_LOG_REQUESTS")
}
CASES |= {
    f"variable {name}": ({"environment": {name: "1"}}, "says what the role says")
    for name in ("OLLAMA_NO_CLOUD", "OLLAMA_KEEP_ALIVE", "OLLAMA_NOPRUNE", "HOME", "LD_PRELOAD")
}


@pytest.fixture(scope="module")
def told(host: Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the role says to each case, nothing where it takes it."""
    return told_to(host, "ollama", SCENARIO, CASES, tmp_path_factory.mktemp("play"))


@pytest.mark.parametrize("name", CASES)
def test_what_types_cannot_say_is_refused(told: dict[str, str], name: str) -> None:
    _, words = CASES[name]
    assert words in told.get(name, "")
    assert (name in told) == bool(words)
