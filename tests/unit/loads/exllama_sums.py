"""Models by their config.json, and the bytes that exllamav3 1.4.2 itself allocates for them.

The bytes were counted on the processor, of what its ``Cache`` allocates for 1,024 tokens (``cache/fp16.py``,
``cache/quant.py``, ``modules/sliding_attn.py``, ``modules/gated_delta_net.py``).
``tests/integration/test_exllama_caches.py`` counts them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TOKENS = 1024
DENSE: dict[str, Any] = {
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12_288,
    "vocab_size": 1000,
    "max_position_embeddings": 40_960,
    "rms_norm_eps": 1e-6,
    "layer_norm_eps": 1e-5,
    "hidden_act": "silu",
    "rope_theta": 1e6,
}
EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
WINDOWS: dict[str, Any] = {"sliding_window": 512, "layer_types": ["sliding_attention", "full_attention"] * 2}
DELTA: dict[str, Any] = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
GEMMA3: dict[str, Any] = {
    "query_pre_attn_scalar": 256,
    "rope_local_base_freq": 1e4,
    "hidden_activation": "gelu_pytorch_tanh",
}
NEXT: dict[str, Any] = {**EXPERTS, **DELTA, "shared_expert_intermediate_size": 512}
GPT_OSS: dict[str, Any] = {**WINDOWS, "sliding_window": 128, "num_local_experts": 8, "num_experts_per_tok": 2}
KINDS = ["linear_attention", "full_attention"] * 2


@dataclass(frozen=True)
class Counted:
    """One model, how it is served, and what was counted."""

    architecture: str
    kind: str
    keys: dict[str, Any]
    bits: tuple[int, int] | None
    history: int
    cache: int
    state: int = 0

    @property
    def config(self) -> dict[str, Any]:
        """Its config.json."""
        return {"architectures": [self.architecture], "model_type": self.kind, **DENSE, **self.keys}


SLOTS = 4
WHOLE = 16_777_216
COUNTED = (
    Counted("LlamaForCausalLM", "llama", {}, None, 0, WHOLE),
    Counted("MistralForCausalLM", "mistral", {}, None, 0, WHOLE),
    Counted("Qwen2ForCausalLM", "qwen2", {}, None, 0, WHOLE),
    Counted("Qwen3MoeForCausalLM", "qwen3_moe", EXPERTS, None, 0, WHOLE),
    Counted("Gemma3ForCausalLM", "gemma3_text", {**WINDOWS, **GEMMA3}, None, 0, WHOLE),
    Counted("Cohere2ForCausalLM", "cohere2", {**WINDOWS, "logit_scale": 1.0}, None, 0, WHOLE),
    Counted("Qwen3ForCausalLM", "qwen3", {}, (2, 3), 0, 3_145_728),
    Counted("Qwen3ForCausalLM", "qwen3", {}, (4, 4), 0, 4_718_592),
    Counted("Qwen3ForCausalLM", "qwen3", {}, (5, 7), 0, 6_815_744),
    Counted("Qwen3ForCausalLM", "qwen3", {}, (8, 6), 0, 7_864_320),
    Counted("Qwen3ForCausalLM", "qwen3", {}, (8, 8), 0, 8_912_896),
    Counted("Qwen3ForCausalLM", "qwen3", {"num_key_value_heads": 3, "head_dim": 80}, (8, 4), 0, 1_490_944),
    Counted("GptOssForCausalLM", "gpt_oss", GPT_OSS, (8, 8), 0, 4_456_448, 25_165_824),
    Counted("Qwen3NextForCausalLM", "qwen3_next", NEXT, (8, 8), 0, 2_228_224, 25_952_256),
    Counted("Qwen3NextForCausalLM", "qwen3_next", NEXT, (8, 8), 4, 2_228_224, 127_401_984),
)
"""Eight heads of 128 of four layers, unless it is said otherwise."""
