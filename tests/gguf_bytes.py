"""GGUF files as tests need them: any head, models that no engine could load, and a projector that llama.cpp loads."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
F32 = 0
ALIGNMENT = 32
ONE_TENSOR = {"output.weight": (8,)}

Shapes = Mapping[str, tuple[int, ...]]


def gguf_bytes(values: Mapping[str, Any], tensors: Shapes = ONE_TENSOR, version: int = 3) -> bytes:
    """A whole file: texts, numbers, truths and lists of them as metadata, and tensors of small numbers."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(values))
    head += b"".join(_text(name) + _typed(value) for name, value in values.items())
    contents = bytearray()
    seven = struct.pack("<7f", *((index - 3) / 50 for index in range(7)))
    for name, shape in tensors.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, F32, len(contents))
        count = math.prod(shape)
        contents += _padded((seven * (count // 7 + 1))[: 4 * count])
    return _padded(head) + contents


def model_bytes(**values: Any) -> bytes:
    """A model as llama.cpp's converter describes one, with other values where they are given (``__`` for a dot)."""
    own: dict[str, Any] = {
        "block_count": 2,
        "context_length": 4096,
        "embedding_length": 64,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
    }
    own |= {name.replace("__", "."): value for name, value in values.items()}
    written = {f"llama.{name}": value for name, value in own.items()}
    vocabulary = {"tokenizer.ggml.tokens": ["a", "ä"], "tokenizer.ggml.scores": [0.5, 1.5]}
    return gguf_bytes({"general.architecture": "llama", **written, **vocabulary})


def projector_bytes(embedding: int) -> bytes:
    """A projector of LLaVA's kind, which sees nothing: four patches become tokens of ``embedding`` numbers."""
    width, layers = 16, 2
    sizes = {"image_size": 16, "patch_size": 8, "embedding_length": width, "feed_forward_length": width}
    sizes |= {"block_count": layers, "projection_dim": embedding, "attention.head_count": 2}
    grey = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "attention.layer_norm_epsilon": 1e-5}
    values = {"has_vision_encoder": True, "projector_type": "mlp", "use_gelu": True}
    values |= {f"vision.{name}": value for name, value in (sizes | grey).items()}
    tensors: dict[str, tuple[int, ...]] = {
        "v.patch_embd.weight": (8, 8, 3, width),
        "v.position_embd.weight": (width, 5),
        "v.class_embd": (width,),
        **_with_bias("v.pre_ln", width),
        **_with_bias("mm.0", width, embedding),
        **_with_bias("mm.2", embedding, embedding),
    }
    for layer in range(layers):
        for name in ("ln1", "ln2"):
            tensors |= _with_bias(f"v.blk.{layer}.{name}", width)
        for name in ("attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down"):
            tensors |= _with_bias(f"v.blk.{layer}.{name}", width, width)
    return gguf_bytes(
        {"general.architecture": "clip", **{f"clip.{name}": one for name, one in values.items()}}, tensors
    )


def _with_bias(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": shape, f"{name}.bias": shape[-1:]}


def _typed(value: Any) -> bytes:
    kind, content = _value(value)
    return struct.pack("<I", kind) + content


def _value(value: Any) -> tuple[int, bytes]:
    if isinstance(value, list):
        kinds = [_value(one) for one in value]
        return ARRAY, struct.pack("<IQ", kinds[0][0], len(kinds)) + b"".join(content for _, content in kinds)
    if isinstance(value, bool):
        return BOOL, struct.pack("<?", value)
    if isinstance(value, str):
        return STRING, _text(value)
    if isinstance(value, float):
        return FLOAT32, struct.pack("<f", value)
    return UINT32, struct.pack("<I", value)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % ALIGNMENT)
