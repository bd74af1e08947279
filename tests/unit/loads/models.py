"""Models as their files' heads tell them: a hybrid, a dense one, one with windows, and a mixture of experts."""

from __future__ import annotations

from typing import Any

from provisioner.loads.layers import shape_of
from provisioner.loads.terms import MIB, Load

QWEN: dict[str, Any] = {
    "general.architecture": "qwen35",
    "qwen35.block_count": 32,
    "qwen35.context_length": 262144,
    "qwen35.embedding_length": 4096,
    "qwen35.attention.head_count": 16,
    "qwen35.attention.head_count_kv": 4,
    "qwen35.attention.key_length": 256,
    "qwen35.attention.value_length": 256,
    "qwen35.ssm.conv_kernel": 4,
    "qwen35.ssm.group_count": 16,
    "qwen35.ssm.inner_size": 4096,
    "qwen35.ssm.state_size": 128,
}
"""A hybrid of 9B: 8 layers of 32 attend, the others are recurrent."""
NINE = Load("nine", shape_of(QWEN, vocabulary=248_320), weights=5491 * MIB, context=40_192, slots=4)
USABLE = 7360 * MIB
LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 32,
    "llama.context_length": 8192,
    "llama.embedding_length": 4096,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
}
GEMMA: dict[str, Any] = {
    "general.architecture": "gemma3",
    "gemma3.block_count": 12,
    "gemma3.embedding_length": 1024,
    "gemma3.attention.head_count": 4,
    "gemma3.attention.head_count_kv": 1,
    "gemma3.attention.key_length": 256,
    "gemma3.attention.value_length": 256,
    "gemma3.attention.sliding_window": 512,
}
QWEN_FOLDER: dict[str, Any] = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 4096,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "torch_dtype": "bfloat16",
}
"""The config.json of a dense model of 8B; 40,960 tokens of it are 5,760 MiB of cache."""
MIXTURE: dict[str, Any] = {
    "general.architecture": "qwen3moe",
    "general.file_type": 15,
    "qwen3moe.block_count": 4,
    "qwen3moe.context_length": 32768,
    "qwen3moe.embedding_length": 2048,
    "qwen3moe.expert_count": 128,
    "qwen3moe.attention.head_count": 32,
    "qwen3moe.attention.head_count_kv": 4,
    "qwen3moe.attention.key_length": 128,
    "qwen3moe.attention.value_length": 128,
}


def mixture_tensors(layers: int = 4) -> dict[str, int]:
    """Tensors of a mixture: 300 MiB of experts and 21 MiB of everything else in each layer, 200 MiB at either end."""
    tensors = {"token_embd.weight": 200 * MIB, "output.weight": 200 * MIB, "output_norm.weight": 8192}
    for layer in range(layers):
        for name in ("gate", "up", "down"):
            tensors[f"blk.{layer}.ffn_{name}_exps.weight"] = 100 * MIB
        tensors |= {f"blk.{layer}.attn_q.weight": 20 * MIB, f"blk.{layer}.ffn_gate_shexp.weight": MIB}
    return tensors


def mixture(**options: Any) -> Load:
    """A load of that model: 1,684 MiB of tensors, of which 200 are never on the card."""
    tensors = mixture_tensors()
    return Load("mixture", shape_of(MIXTURE, 151_936), sum(tensors.values()), 4096, tensors=tensors, **options)
