"""Models of real architectures with random weights, some GiB in all: their heads are those of published models.

Sizes are those of Llama 3.2 1B, Qwen3 1.7B, Qwen3 30B-A3B (two of its layers), Gemma 3 1B, Qwen3.5 2B and Qwen3-VL 2B
with its projector. Tensors are named as llama.cpp 0.5.0 looks for them (``src/models``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Q8, F16, F32 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.F32
UNSIGNED = gguf.GGUFValueType.UINT32
PIECE = 2**24
"""Bytes that are written at once."""


@dataclass(frozen=True, slots=True)
class RandomModel:
    """A model: what its file says of it, and the shapes of its tensors as ``numpy`` has them (rows first)."""

    architecture: str
    values: Mapping[str, Any]
    tensors: Mapping[str, tuple[int, ...]]
    vocabulary: int = 0


def _sizes(width: int, layers: int, heads: tuple[int, int, int], inner: int) -> dict[str, Any]:
    """``heads``: how many of queries, how many of keys, and the numbers of one."""
    of_queries, of_keys, head = heads
    return {
        "block_count": layers,
        "context_length": 131_072,
        "embedding_length": width,
        "feed_forward_length": inner,
        "attention.head_count": of_queries,
        "attention.head_count_kv": of_keys,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
    }


def _attention(values: Mapping[str, Any], *, gated: bool = False) -> dict[str, tuple[int, ...]]:
    width, head = values["embedding_length"], values["attention.key_length"]
    queries, keys = values["attention.head_count"] * head, values["attention.head_count_kv"] * head
    return {
        "attn_norm": (width,),
        "attn_q": (queries * 2 if gated else queries, width),
        "attn_k": (keys, width),
        "attn_v": (keys, width),
        "attn_output": (width, queries),
    }


def _normed(values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    head = values["attention.key_length"]
    return {"attn_q_norm": (head,), "attn_k_norm": (head,)}


def _dense(values: Mapping[str, Any], norm: str = "ffn_norm") -> dict[str, tuple[int, ...]]:
    width, inner = values["embedding_length"], values["feed_forward_length"]
    return {norm: (width,), "ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner)}


def _model(
    architecture: str,
    values: Mapping[str, Any],
    vocabulary: int,
    layers: list[dict[str, tuple[int, ...]]],
    *,
    tied: bool,
) -> RandomModel:
    width = values["embedding_length"]
    tensors: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, width), "output_norm.weight": (width,)}
    if not tied:
        tensors["output.weight"] = (vocabulary, width)
    for place, layer in enumerate(layers):
        for name, shape in layer.items():
            suffix = "" if name == "ssm_a" else ".bias" if name == "ssm_dt" else ".weight"
            tensors[f"blk.{place}.{name}{suffix}"] = shape
    return RandomModel(architecture, values, tensors, vocabulary)


def llama() -> RandomModel:
    """As Llama 3.2 1B: every layer attends to all tokens."""
    values = _sizes(2048, 16, (32, 8, 64), 8192)
    layer = _attention(values) | _dense(values)
    return _model("llama", values, 128_256, [layer] * 16, tied=True)


def qwen3() -> RandomModel:
    """As Qwen3 1.7B: keys and queries with norms of their own."""
    values = _sizes(2048, 28, (16, 8, 128), 6144)
    layer = _attention(values) | _normed(values) | _dense(values)
    return _model("qwen3", values, 151_936, [layer] * 28, tied=True)


def mixture() -> RandomModel:
    """As two layers of Qwen3 30B-A3B: 128 experts, of which a token asks 8."""
    experts, width, inner = 128, 2048, 768
    values = _sizes(width, 2, (32, 4, 128), 6144)
    values |= {"expert_count": experts, "expert_used_count": 8, "expert_feed_forward_length": inner}
    layer = _attention(values) | _normed(values)
    layer |= {"ffn_norm": (width,), "ffn_gate_inp": (experts, width)}
    layer |= {"ffn_gate_exps": (experts, inner, width), "ffn_up_exps": (experts, inner, width)}
    layer |= {"ffn_down_exps": (experts, width, inner)}
    return _model("qwen3moe", values, 151_936, [layer] * 2, tied=False)


def windowed() -> RandomModel:
    """As Gemma 3 1B: five of six layers attend to a window of 512 tokens."""
    values = _sizes(1152, 26, (4, 1, 256), 6912)
    values |= {"attention.sliding_window": 512}
    layer = _attention(values) | _normed(values) | _dense(values)
    layer |= {"post_attention_norm": (1152,), "post_ffw_norm": (1152,)}
    return _model("gemma3", values, 262_144, [layer] * 26, tied=True)


def hybrid() -> RandomModel:
    """As Qwen3.5 2B: three of four layers keep a state in the place of keys and values."""
    width, layers, state, groups, inner = 2048, 24, 128, 16, 2048
    values = _sizes(width, layers, (8, 2, 256), 6144)
    values |= {
        "ssm.conv_kernel": 4,
        "ssm.state_size": state,
        "ssm.group_count": groups,
        "ssm.time_step_rank": inner // state,
        "ssm.inner_size": inner,
        "rope.dimension_sections": [11, 11, 10, 0],
        "rope.dimension_count": 64,
    }
    channels = inner + 2 * groups * state
    rank = inner // state
    recurrent = {
        "attn_norm": (width,),
        "attn_qkv": (channels, width),
        "attn_gate": (inner, width),
        "ssm_conv1d": (channels, 4),
        "ssm_dt": (rank,),
        "ssm_a": (rank,),
        "ssm_beta": (rank, width),
        "ssm_alpha": (rank, width),
        "ssm_norm": (state,),
        "ssm_out": (width, inner),
    } | _dense(values, "post_attention_norm")
    attending = _attention(values, gated=True) | _normed(values) | _dense(values, "post_attention_norm")
    kinds = [attending if (place + 1) % 4 == 0 else recurrent for place in range(layers)]
    return _model("qwen35", values, 248_320, kinds, tied=True)


def seeing() -> RandomModel:
    """As the language model of Qwen3-VL 2B, which takes images from ``eye``."""
    values = _sizes(2048, 28, (16, 8, 128), 6144)
    values |= {"rope.dimension_sections": [24, 20, 20, 0], "n_deepstack_layers": 3}
    layer = _attention(values) | _normed(values) | _dense(values)
    return _model("qwen3vl", values, 151_936, [layer] * 28, tied=True)


def eye() -> RandomModel:
    """As the projector of Qwen3-VL 2B: 24 layers, images cut into patches of 16 by 16, four of which become a token."""
    width, inner, layers, out, patch = 1024, 4096, 24, 2048, 16
    merged = 4 * width
    values = {
        "clip.has_vision_encoder": True,
        "clip.projector_type": "qwen3vl_merger",
        "clip.use_gelu": True,
        "clip.vision.image_size": 768,
        "clip.vision.patch_size": patch,
        "clip.vision.embedding_length": width,
        "clip.vision.feed_forward_length": inner,
        "clip.vision.projection_dim": out,
        "clip.vision.block_count": layers,
        "clip.vision.attention.head_count": 16,
        "clip.vision.attention.layer_norm_epsilon": 1e-6,
        "clip.vision.spatial_merge_size": 2,
        "clip.vision.image_mean": [0.5, 0.5, 0.5],
        "clip.vision.image_std": [0.5, 0.5, 0.5],
        "clip.vision.is_deepstack_layers": [place in (5, 11, 17) for place in range(layers)],
    }
    tensors: dict[str, tuple[int, ...]] = {
        "v.patch_embd.weight": (width, 3, patch, patch),
        "v.patch_embd.weight.1": (width, 3, patch, patch),
        "v.patch_embd.bias": (width,),
        "v.position_embd.weight": (48 * 48, width),
    }
    tensors |= _biased("v.post_ln", width)
    for place in range(layers):
        name = f"v.blk.{place}"
        tensors |= _biased(f"{name}.ln1", width) | _biased(f"{name}.ln2", width)
        tensors |= _biased(f"{name}.attn_qkv", 3 * width, width) | _biased(f"{name}.attn_out", width, width)
        tensors |= _biased(f"{name}.ffn_up", inner, width) | _biased(f"{name}.ffn_down", width, inner)
    for place in (5, 11, 17):
        name = f"v.deepstack.{place}"
        tensors |= _biased(f"{name}.norm", merged)
        tensors |= _biased(f"{name}.fc1", merged, merged) | _biased(f"{name}.fc2", out, merged)
    tensors |= _biased("mm.0", merged, merged) | _biased("mm.2", out, merged)
    return RandomModel("clip", values, tensors)


def _biased(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


MODELS = {"llama": llama, "qwen3": qwen3, "mixture": mixture, "windowed": windowed, "hybrid": hybrid, "seeing": seeing}


def write(model: RandomModel, file: Path) -> None:
    """Write the model; matrices as Q8_0, those of a projector as F16, all else as F32."""
    writer = gguf.GGUFWriter(file, model.architecture)
    prefix = "" if model.architecture == "clip" else f"{model.architecture}."
    for name, value in model.values.items():
        key = f"{prefix}{name}"
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, UNSIGNED if type(value) is int else gguf.GGUFValueType.get_type(value))
    if model.vocabulary:
        _write_vocabulary(writer, model.vocabulary)
    kinds = {}
    for name, shape in model.tensors.items():
        kinds[name] = _kind(model, name, shape)
        stored = gguf.quant_shape_to_byte_shape(shape, kinds[name]) if kinds[name] == Q8 else shape
        dtype = {Q8: np.uint8, F16: np.float16, F32: np.float32}[kinds[name]]
        writer.add_tensor_info(name, stored, np.dtype(dtype), _bytes(shape, kinds[name]), raw_dtype=kinds[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, shape in model.tensors.items():
        writer.write_tensor_data(_random(shape, kinds[name]))
    writer.close()


def _write_vocabulary(writer: gguf.GGUFWriter, count: int) -> None:
    writer.add_tokenizer_model("llama")
    words = ["<unk>", "<s>", "</s>"] + [f"w{place}" for place in range(count - 3)]
    writer.add_token_list(words)
    writer.add_token_scores([-float(place) for place in range(count)])
    writer.add_token_types([2, 3, 3] + [1] * (count - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _kind(model: RandomModel, name: str, shape: tuple[int, ...]) -> gguf.GGMLQuantizationType:
    is_matrix = len(shape) > 1 and name.endswith(("weight", "weight.1"))
    if not is_matrix or "ssm_conv1d" in name or "gate_inp" in name or "position_embd" in name:
        return F32
    return F16 if model.architecture == "clip" else Q8


def _bytes(shape: tuple[int, ...], kind: gguf.GGMLQuantizationType) -> int:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    return math.prod(shape) // block * size


def _random(shape: tuple[int, ...], kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """Numbers about zero, the same ones again after each piece; a scale of a hundredth before 32 of them in Q8_0."""
    source = np.random.default_rng(7)
    total = _bytes(shape, kind)
    if kind == Q8:
        blocks = np.empty((PIECE // 34, 34), np.uint8)
        blocks[:, :2] = np.frombuffer(np.float16(0.0005).tobytes(), np.uint8)
        blocks[:, 2:] = source.integers(0, 256, (len(blocks), 32), np.uint8)
        piece = blocks.reshape(-1)
    else:
        dtype = np.float16 if kind == F16 else np.float32
        piece = (source.standard_normal(PIECE // 4) * 0.02).astype(dtype).view(np.uint8)
    return np.resize(piece, total)


def sizes_of(model: RandomModel) -> Iterator[tuple[str, int]]:
    """Bytes of each tensor."""
    for name, shape in model.tensors.items():
        yield name, _bytes(shape, _kind(model, name, shape))
