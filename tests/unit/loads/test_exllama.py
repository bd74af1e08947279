"""What exllamav3 keeps of a model, held against what its own classes allocate."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provisioner.loads.exllama import ATTENDING, is_recurrent, shape_of_exllama
from provisioner.loads.layers import Recurrent, Shape
from provisioner.loads.terms import Load, cache_bytes, state_bytes
from provisioner.models.folders import header_of
from tests.unit.loads.exllama_sums import COUNTED, DENSE, SLOTS, TOKENS, Counted


def load_of(counted: Counted) -> Load:
    """The model as it was counted."""
    header = header_of(json.dumps(counted.config).encode())
    shape = shape_of_exllama(header, is_packed=counted.bits is not None, drafted=counted.history)
    keys, values = counted.bits or (0, 0)
    kinds = (f"exl{keys}", f"exl{values}") if counted.bits else ("f16", "f16")
    return Load("m", shape, 1, TOKENS, *kinds, slots=SLOTS, is_paged=True)


@pytest.mark.parametrize("counted", COUNTED, ids=lambda one: f"{one.kind}-{one.bits}-{one.history}")
def test_cache_and_state_are_what_the_library_allocates(counted: Counted) -> None:
    load = load_of(counted)
    assert load.shape.unread == ()
    assert (cache_bytes(load), state_bytes(load)) == (counted.cache, counted.state)


def shape(**keys: Any) -> Shape:
    """The shape of a model with these keys in its config.json."""
    return shape_of_exllama(header_of(json.dumps({**DENSE, **keys}).encode()), is_packed=False)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"model_type": "deepseek_v3"}, 'of model_type "deepseek_v3" is not known here'),
        ({"model_type": "gemma4_text"}, 'of model_type "gemma4_text" is not known here'),
        ({"model_type": "llama", "num_hidden_layers": 0}, "how many layers and heads it has"),
        ({"model_type": "llama", "num_hidden_layers": 5000}, "how many layers and heads it has"),
        ({"model_type": "llama", "num_attention_heads": 0, "num_key_value_heads": 0}, "how many layers and heads"),
        ({"model_type": "gpt_oss", "sliding_window": 128}, "what each of its layers keeps"),
        ({"model_type": "qwen3_5_text", "layer_types": ["sliding_attention"] * 4}, "what each of its layers keeps"),
        ({"model_type": "qwen3_5_text", "layer_types": ["linear_attention"]}, "what each of its layers keeps"),
    ],
)
def test_what_is_not_told_is_named_and_never_guessed(keys: dict[str, Any], why: str) -> None:
    found = shape(**keys)
    assert len(found.unread) == 1
    assert why in found.unread[0]
    assert found.layers == ()


def test_every_fourth_layer_of_a_hybrid_attends_where_its_file_lists_none() -> None:
    kinds = [isinstance(layer, Recurrent) for layer in shape(model_type="qwen3_5_text").layers]
    assert kinds == [True, True, True, False]
    kinds = [isinstance(layer, Recurrent) for layer in shape(model_type="qwen3_next", full_attention_interval=2).layers]
    assert kinds == [True, False] * 2


def test_models_with_a_state_are_not_among_those_that_keep_all_tokens() -> None:
    for kind in ATTENDING:
        assert not is_recurrent(header_of(json.dumps({**DENSE, "model_type": kind}).encode())), kind
    assert is_recurrent(header_of(json.dumps({**DENSE, "model_type": "gpt_oss"}).encode()))
