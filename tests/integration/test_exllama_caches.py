"""What exllamav3's own classes allocate as cache and state of a model, against what is reckoned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provisioner.loads.exllama import ATTENDING, is_recurrent, shape_of_exllama
from provisioner.loads.terms import Load, cache_bytes, state_bytes
from provisioner.models.folders import header_of
from tests.exllama_venv import answers_of
from tests.unit.loads.exllama_sums import COUNTED, DELTA, DENSE, KINDS, SLOTS, TOKENS, WHOLE, Counted

pytestmark = [pytest.mark.network, pytest.mark.slow]
SHARE = 0.01
"""By how much a sum may be wrong."""
DRAFTING = {"mtp_num_hidden_layers": 1}
"""Without a layer for drafts 1.4.2 refuses a text model of this kind (``KeyError: 'mtp'``)."""
EVERY_SECOND = {"layer_types": KINDS, "full_attention_interval": 2}
"""1.4.2 reads the list of a model for text alone nowhere, and the interval instead."""
MORE = (
    Counted("Qwen3_5ForCausalLM", "qwen3_5_text", {**DELTA, **DRAFTING}, None, 0, WHOLE),
    Counted("Qwen3_5ForCausalLM", "qwen3_5_text", {**DELTA, **DRAFTING, **EVERY_SECOND}, (6, 5), 4, WHOLE),
    Counted("ArceeForCausalLM", "arcee", {"hidden_act": "relu2"}, None, 0, WHOLE),
    Counted("CohereForCausalLM", "cohere", {"logit_scale": 1.0}, None, 0, WHOLE),
    Counted("Exaone4ForCausalLM", "exaone4", {}, None, 0, WHOLE),
    Counted("Glm4ForCausalLM", "glm4", {"partial_rotary_factor": 0.5}, None, 0, WHOLE),
    Counted("MixtralForCausalLM", "mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2}, None, 0, WHOLE),
    Counted("Olmo3ForCausalLM", "olmo3", {}, None, 0, WHOLE),
    Counted("Phi3ForCausalLM", "phi3", {}, None, 0, WHOLE),
    Counted("SmolLM3ForCausalLM", "smollm3", {"no_rope_layers": [1] * 4}, None, 0, WHOLE),
    Counted(
        "SeedOssForCausalLM",
        "seed_oss",
        {"attention_bias": False, "attention_out_bias": False, "mlp_bias": False},
        None,
        0,
        WHOLE,
    ),
)
"""Models of which no bytes are noted."""


@pytest.fixture(scope="module")
def answers(exllama_python: Path) -> list[dict[str, Any]]:
    """What the library allocates for each model, in their order."""
    questions = []
    for one in (*COUNTED, *MORE):
        how = {"tokens": TOKENS, "bits": one.bits, "slots": SLOTS, "history": one.history}
        questions.append({"config": one.config, **how})
    return answers_of(exllama_python, "tests.exllama_sums", questions)


@pytest.mark.parametrize("place", range(len(COUNTED) + len(MORE)))
def test_what_is_reckoned_is_what_the_library_allocates(answers: list[dict[str, Any]], place: int) -> None:
    counted, answer = (*COUNTED, *MORE)[place], answers[place]
    header = header_of(json.dumps(counted.config).encode())
    shape = shape_of_exllama(header, is_packed=counted.bits is not None, drafted=counted.history)
    assert shape.unread == ()
    keys, values = counted.bits or (0, 0)
    kinds = (f"exl{keys}", f"exl{values}") if counted.bits else ("f16", "f16")
    load = Load("m", shape, 1, TOKENS, *kinds, slots=SLOTS)
    assert cache_bytes(load) == pytest.approx(answer["cache"], rel=SHARE)
    assert state_bytes(load) == pytest.approx(answer["state"], rel=SHARE)
    assert is_recurrent(header) == answer["is_recurrent"]
    assert len(answer["on_processor"]) == 1  # the embeddings alone
    assert answer["on_processor"][0].endswith("embed_tokens")


@pytest.mark.parametrize("place", range(len(COUNTED)))
def test_what_is_noted_is_what_this_library_allocates(answers: list[dict[str, Any]], place: int) -> None:
    counted, answer = COUNTED[place], answers[place]
    assert (answer["cache"], answer["state"]) == (counted.cache, counted.state)


def test_nearly_every_kind_that_is_known_is_held_against_it() -> None:
    held = {one.kind for one in (*COUNTED, *MORE)}
    assert {*ATTENDING} - held == {"gemma2", "glm4_moe", "ministral3", "qwen3_vl_moe_text", "qwen3_vl_text"}
    assert DENSE["num_hidden_layers"] == len(KINDS)
