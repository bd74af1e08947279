"""What exllamav2 keeps of a model in memory, and reserves to compute with, as its config.json tells it. Pure.

Read in exllamav2 0.3.2, and held against what its own classes allocate (``tests/integration/test_exllama2_caches.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.loads.layers import MOST_LAYERS, Attention, Shape
from provisioner.models.header import Header

KNOWN = frozenset(
    "Cohere2ForCausalLM CohereForCausalLM Gemma2ForCausalLM Gemma3ForConditionalGeneration GemmaForCausalLM "  # noqa: SIM905
    "Glm4ForCausalLM GraniteForCausalLM IndexForCausalLM InternLM2ForCausalLM LlamaForCausalLM MiniCPMForCausalLM "
    "Mistral3ForConditionalGeneration MistralForCausalLM MixtralForCausalLM OrionForCausalLM Phi3ForCausalLM "
    "Qwen2ForCausalLM Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM "
    "Qwen3MoeForCausalLM Starcoder2ForCausalLM YiForCausalLM".split()
)
"""What ``architectures`` of a config.json names, of those that ``architecture.py`` knows and that can be read here.

It loads any other as a Llama, with a warning, and DBRX, GPT-2 and GPTBigCode name their numbers otherwise.
"""
MIXTURES = frozenset({"MixtralForCausalLM", "Qwen3MoeForCausalLM"})
"""Those whose feed-forward part is one of experts (``is_moe``)."""
TIED = frozenset(
    "Cohere2ForCausalLM CohereForCausalLM Gemma2ForCausalLM Gemma3ForConditionalGeneration GemmaForCausalLM "  # noqa: SIM905
    "Glm4ForCausalLM Starcoder2ForCausalLM".split()
)
"""Those whose output is the embeddings where the files have no other (``lm_head`` of their keys)."""
WIDE_STREAM = frozenset({"Gemma2ForCausalLM", "Gemma3ForConditionalGeneration"})
"""Those that add up what passes through their layers in numbers of four bytes (``residual_stream_fp32``)."""
TWO_TURNS = "Gemma3ForConditionalGeneration"
"""The one that turns positions in two ways, so that it has two tables of them."""
PIXTRAL = {"Mistral3ForConditionalGeneration": "pixtral"}
"""Those that it knows with one encoder of images alone."""
USUAL: Mapping[str, Mapping[str, int]] = {
    TWO_TURNS: {"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262_208},
}
"""Numbers that stand for those that a config.json does not name (``default_…`` there)."""
HALF, WHOLE = 2, 4
"""Bytes of a number that is computed with, and of one that is added up."""
MOST_UNPACKED = 512 * 2**20
"""Numbers of a matrix that are unpacked at once (``max_dq_size``)."""
PADDED, ALIGNED = 32, 128
"""Columns to whose multiple a matrix is filled up, and bytes that each part of the reserved memory has besides."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How wide a model is: ``queries`` and ``keys`` are numbers of all heads, ``inner`` one expert's, if it has any."""

    layers: int
    hidden: int
    head: int
    heads: int
    queries: int
    keys: int
    inner: int
    experts: int
    vocabulary: int


def name_of(header: Header) -> str:
    """The architecture by which exllamav2 goes, empty where its config.json names none, or several."""
    named = header.values.get("architectures", [])
    return named[0] if len(named) == 1 else ""


def sizes_of(header: Header) -> Sizes:
    """How wide the model is; 0 stands for what its config.json does not say."""
    name = name_of(header)
    values = {**USUAL.get(name, {})}
    for key, value in header.values.items():
        if value or key not in values:
            values[key] = value
    hidden, heads = values.get("hidden_size", 0), values.get("num_attention_heads", 0)
    head = values.get("head_dim", 0) or hidden // max(heads, 1)
    is_mixture = name in MIXTURES
    inner = values.get("intermediate_size", 0)
    experts = values.get("num_local_experts", 0) or values.get("num_experts", 0)
    return Sizes(
        header.layers,
        hidden,
        head,
        heads,
        heads * head,
        (values.get("num_key_value_heads", 0) or heads) * head,
        (values.get("moe_intermediate_size", 0) or inner) if is_mixture else inner,
        experts if is_mixture else 0,
        values.get("vocab_size", 0),
    )


def shape_of_exllama2(header: Header) -> Shape:
    """The shape of a model: each layer keeps all tokens, those with a window as well."""
    unread: list[str] = []
    name, sizes = name_of(header), sizes_of(header)
    encoder = PIXTRAL.get(name)
    if name not in KNOWN:
        said = f'architecture "{name}"' if name else "a config.json that names no architecture, or several,"
        unread.append(f"what exllamav2 takes for {said} is not known here")
    elif encoder and header.values.get("encoder") != encoder:
        unread.append(f'exllamav2 knows {name} with an encoder of images of model_type "{encoder}" alone')
    elif not 0 < sizes.layers <= MOST_LAYERS or not sizes.keys or not sizes.inner or not sizes.vocabulary:
        unread.append("its config.json does not say how many layers, heads and tokens it has and how wide it is")
    elif name in MIXTURES and not sizes.experts:
        unread.append("its config.json does not say how many experts it has")
    layers = () if unread else (Attention(sizes.keys, sizes.keys),) * sizes.layers
    return Shape(
        name,
        layers,
        sizes.hidden,
        sizes.vocabulary,
        header.values.get("max_position_embeddings", 0),
        sizes.experts,
        tuple(unread),
    )


def is_output_embedded(header: Header) -> bool:
    """Whether a model's output is its embeddings, so that they lie on the card as well.

    Whoever makes an EXL2 file writes an output of its own into it (``conversion/compile.py``).
    """
    if header.values.get("method") == "exl2":
        return False
    tied = header.values.get("is_tied")
    return name_of(header) in TIED if tied is None else bool(tied)


def reserved_bytes(header: Header, chunk: int) -> int:
    """What is reserved once of a card for whatever layer computes: a chunk of so many tokens, and a matrix unpacked.

    The largest that any layer or the output wants (``scratch_space_fixed``).
    """
    sizes = sizes_of(header)
    state = _part(chunk * sizes.hidden)
    attention = _part(chunk * max(sizes.queries, sizes.hidden)) + max(
        _unpacked(sizes.hidden, sizes.queries),
        _unpacked(sizes.hidden, sizes.keys),
        _unpacked(sizes.queries, sizes.hidden),
    )
    matrix = max(_unpacked(sizes.hidden, sizes.inner), _unpacked(sizes.inner, sizes.hidden))
    if sizes.experts:
        forward = 2 * state + 2 * _part(chunk * sizes.inner) + _part(chunk * sizes.experts) + matrix
    else:
        forward = state + 2 * _part(chunk * max(sizes.hidden, sizes.inner)) + matrix
    return max(attention, forward, _unpacked(sizes.hidden, sizes.vocabulary))


def passing_bytes(header: Header, chunk: int, outputs: int) -> int:
    """What passes through a layer besides: a chunk of tokens, its queries, keys and values; and logits of ``outputs``.

    Reckoned from the shapes of the tensors in ``attn.py`` (``forward_paged``), with flash-attn.
    """
    sizes = sizes_of(header)
    stream = sizes.hidden * (HALF + (WHOLE if name_of(header) in WIDE_STREAM else HALF))
    attention = 2 * sizes.queries * HALF + 2 * sizes.keys * HALF + sizes.heads * WHOLE
    return chunk * (stream + attention) + outputs * _filled(sizes.vocabulary) * HALF


def unpacked_bytes(header: Header) -> int:
    """What one token takes of a packed cache besides: keys and values of one layer, unpacked (``touch_device``)."""
    return 2 * sizes_of(header).keys * HALF


def table_bytes(header: Header) -> int:
    """What one token takes of the tables by which positions are turned (``prepare_sincos``), at most."""
    tables = 2 if name_of(header) == TWO_TURNS else 1
    return tables * 2 * sizes_of(header).head * HALF


def _part(numbers: int) -> int:
    return numbers * HALF + ALIGNED


def _unpacked(rows: int, columns: int) -> int:
    return HALF * min(rows * _filled(columns), MOST_UNPACKED)


def _filled(columns: int) -> int:
    return -(-columns // PADDED) * PADDED
