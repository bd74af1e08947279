"""What exllamav2 keeps of a model and reserves to compute with, held against what its own classes allocate."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provisioner.loads.exllama2 import (
    KNOWN,
    MIXTURES,
    TIED,
    WIDE_STREAM,
    is_output_embedded,
    passing_bytes,
    reserved_bytes,
    shape_of_exllama2,
    table_bytes,
    unpacked_bytes,
)
from provisioner.loads.layers import Shape
from provisioner.loads.terms import Load, buffer_bytes, cache_bytes
from provisioner.models.folders import header_of
from provisioner.models.header import Header
from provisioner.services.tabbyapi.older_loads import MODES
from tests.unit.loads.exllama2_sums import CHUNK, COUNTED2, LLAMA, Counted2
from tests.unit.loads.exllama_sums import DENSE, EXPERTS, TOKENS


def head(**keys: Any) -> Header:
    """The head of a Llama with these keys in its config.json."""
    return header_of(json.dumps({"architectures": [LLAMA], **DENSE, **keys}).encode())


@pytest.mark.parametrize("counted", COUNTED2, ids=lambda one: f"{one.architecture}-{one.mode}")
def test_cache_tables_and_reserve_are_what_the_library_allocates(counted: Counted2) -> None:
    header = header_of(json.dumps(counted.config).encode())
    shape = shape_of_exllama2(header)
    assert shape.unread == ()
    load = Load("m", shape, 1, TOKENS, *MODES[counted.mode], is_paged=True)
    assert cache_bytes(load) == counted.cache
    assert reserved_bytes(header, CHUNK) == counted.reserved
    assert table_bytes(header) * TOKENS == counted.tables
    if counted.unpacked:
        assert unpacked_bytes(header) * TOKENS == counted.unpacked


def test_a_layer_is_unpacked_only_where_the_cache_is_packed() -> None:
    header = head()
    shape = shape_of_exllama2(header)
    unpacked, tables = unpacked_bytes(header), table_bytes(header)
    for mode, besides in (("FP16", 0), ("Q8", unpacked), ("Q4", unpacked)):
        load = Load("m", shape, 1, TOKENS - 1, *MODES[mode], is_paged=True, buffers=7, tables=tables, unpacked=unpacked)
        assert buffer_bytes(load) == 7 + TOKENS * (tables + besides), mode


def shape(**keys: Any) -> Shape:
    """The shape of such a model."""
    return shape_of_exllama2(head(**keys))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"architectures": ["DeepseekV3ForCausalLM"]}, 'architecture "DeepseekV3ForCausalLM" is not known here'),
        ({"architectures": ["GPT2LMHeadModel"]}, 'architecture "GPT2LMHeadModel" is not known here'),
        ({"architectures": []}, "names no architecture, or several, is not known here"),
        ({"architectures": [LLAMA, LLAMA]}, "names no architecture, or several, is not known here"),
        ({"architectures": "LlamaForCausalLM"}, "names no architecture, or several, is not known here"),
        ({"architectures": ["Mistral3ForConditionalGeneration"]}, 'of model_type "pixtral" alone'),
        ({"num_hidden_layers": 0}, "how many layers, heads and tokens it has"),
        ({"num_hidden_layers": 5000}, "how many layers, heads and tokens it has"),
        ({"num_attention_heads": 0, "num_key_value_heads": 0}, "how many layers, heads and tokens it has"),
        ({"intermediate_size": None}, "how wide it is"),
        ({"architectures": ["MixtralForCausalLM"]}, "how many experts it has"),
    ],
)
def test_what_is_not_told_is_named_and_never_guessed(keys: dict[str, Any], why: str) -> None:
    found = shape(**keys)
    assert len(found.unread) == 1
    assert why in found.unread[0]
    assert found.layers == ()


def test_a_model_that_sees_is_known_with_the_encoder_that_the_library_knows() -> None:
    seeing = {"architectures": ["Mistral3ForConditionalGeneration"], "vision_config": {"model_type": "pixtral"}}
    assert shape(**seeing).unread == ()


@pytest.mark.parametrize(
    ("method", "keys", "is_embedded"),
    [
        ("exl2", {"tie_word_embeddings": True}, False),
        ("gptq", {"tie_word_embeddings": True}, True),
        ("gptq", {"tie_word_embeddings": False}, False),
        ("gptq", {}, False),
        ("gptq", {"architectures": ["Gemma2ForCausalLM"]}, True),
        ("gptq", {"architectures": ["Glm4ForCausalLM"], "tie_word_embeddings": False}, False),
    ],
)
def test_embeddings_lie_on_the_card_where_they_are_the_output(
    method: str, keys: dict[str, Any], is_embedded: bool
) -> None:
    quantised = {"quantization_config": {"quant_method": method, "bits": 4}}
    assert is_output_embedded(head(**quantised, **keys)) is is_embedded


def test_what_passes_through_grows_with_the_chunk_and_with_the_requests() -> None:
    header = head(vocab_size=1001)
    # Two vectors of 4,096, queries twice, keys and values of 1,024, and a number of each of 32 heads.
    of_token = 2 * 4096 * 2 + 2 * 4096 * 2 + 2 * 1024 * 2 + 32 * 4
    assert passing_bytes(header, 512, 0) == 512 * of_token
    assert passing_bytes(header, 512, 10) == 512 * of_token + 10 * 1024 * 2
    wide = head(architectures=["Gemma2ForCausalLM"])
    assert passing_bytes(wide, 512, 0) == 512 * (of_token + 4096 * 2)


def test_the_experts_of_a_dense_architecture_are_none() -> None:
    assert shape(**EXPERTS).experts == 0
    assert KNOWN >= MIXTURES | TIED | WIDE_STREAM
