"""What the config.json of a folder tells of its layers, and of what it tells nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provisioner.loads.layers import Attention, Shape, shape_of_folder
from provisioner.loads.terms import Load, cache_bytes
from provisioner.models.folders import header_of, weight_names
from tests.unit.loads.models import QWEN_FOLDER


def shape(**keys: Any) -> Shape:
    """The shape of that model of 8B, with these keys in its config.json."""
    return shape_of_folder(header_of(json.dumps({**QWEN_FOLDER, **keys}).encode()))


def windows(**keys: Any) -> list[int]:
    """The window of each of its layers with these keys."""
    layers = shape(**keys).layers
    return [layer.window for layer in layers if isinstance(layer, Attention)]


def context(**keys: Any) -> int:
    """The context of the model with these keys."""
    return shape(**keys).context


def test_each_layer_keeps_the_keys_and_values_of_its_heads() -> None:
    found = shape()
    assert found.layers == (Attention(8 * 128, 8 * 128),) * 36
    assert (found.context, found.unread) == (40_960, ())
    load = Load("a", found, 0, 40_960, "bf16", "bf16")
    assert cache_bytes(load) == 2 * 36 * 8 * 128 * 2 * 40_960
    assert cache_bytes(Load("a", found, 0, 40_960, "fp8", "fp8")) * 2 == cache_bytes(load)


def test_of_a_model_that_takes_images_the_part_that_answers_counts() -> None:
    whole = {"model_type": "qwen3_vl", "vision_config": {"depth": 27}, "text_config": {**QWEN_FOLDER}}
    header = header_of(json.dumps(whole).encode())
    assert shape_of_folder(header).layers == shape().layers
    assert header.values["has_encoder"]


def test_a_head_is_a_part_of_a_vector_where_no_number_says_it() -> None:
    part = 8 * 4096 // 32
    assert shape(model_type="llama", head_dim=None).layers == (Attention(part, part),) * 36
    assert shape(head_dim=None).unread == ("its config.json does not say how many layers and heads it has",)


@pytest.mark.parametrize(
    "keys",
    [
        {"model_type": "deepseek_v3", "kv_lora_rank": 512},
        {"model_type": "qwen3_next", "layer_types": ["linear_attention"] * 36},
        {"model_type": "jamba"},
        {"model_type": None},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 5000},
        {"num_hidden_layers": "36"},
        {"layer_types": ["linear_attention"] * 36},
        {"sliding_window": 512},
        {"sliding_window": 512, "layer_types": ["sliding_attention"] * 3},
    ],
)
def test_what_it_does_not_tell_is_named_and_never_guessed(keys: dict[str, Any]) -> None:
    found = shape(**keys)
    assert len(found.unread) == 1
    assert found.layers == ()


def test_a_window_counts_where_it_says_which_layers_have_one() -> None:
    kinds = ["sliding_attention", "full_attention"] * 18
    assert windows(sliding_window=512, layer_types=kinds) == [512, 0] * 18
    for keys in ({"use_sliding_window": False}, {"sliding_window": 40_960}):
        assert windows(**{"sliding_window": 512, **keys}) == [0] * 36


def test_a_window_counts_as_the_makers_of_a_kind_have_it_where_no_list_says_it() -> None:
    keys = {"sliding_window": 512, "num_hidden_layers": 8}
    assert windows(model_type="gemma3_text", **keys) == [512] * 5 + [0] + [512] * 2
    assert windows(model_type="gemma3_text", sliding_window_pattern=2, **keys) == [512, 0] * 4
    assert windows(model_type="gemma2", **keys) == [512, 0] * 4


@pytest.mark.parametrize(
    ("rope", "tokens"),
    [
        (None, 40_960),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}, 131_072),
        ({"rope_type": "yarn", "factor": 4.0}, 163_840),
        ({"type": "linear", "factor": 2}, 81_920),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 40_960),
        ({"rope_type": "yarn", "factor": "4"}, 40_960),
        ({"full_attention": {"rope_type": "linear", "factor": 2}, "sliding_attention": {"rope_type": "x"}}, 81_920),
    ],
)
def test_positions_that_are_stretched_give_more_context(rope: Any, tokens: int) -> None:
    assert context(rope_scaling=rope) == tokens
    assert context(rope_parameters=rope) == tokens
    assert context(rope_scaling=rope, model_type="gemma3_text") == 40_960


def test_weights_that_lie_there_twice_count_once() -> None:
    names = ["config.json", "consolidated.safetensors", "model-1.safetensors", "model-2.safetensors"]
    assert weight_names(names) == names[2:]
    assert weight_names(names[:2]) == names[1:2]
