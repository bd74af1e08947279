"""Models by their config.json, and the bytes that vLLM 0.32.0 itself says that their caches and weights take.

Told by its own classes on a processor, with the smallest pages that are there for one, of 32 tokens (``needed``: pages
of one request; ``block``: what is never given away), and two batches of 2,048 tokens at once, as on a card of less than
70 GiB. ``tests/integration/test_vllm_caches.py`` asks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from provisioner.loads.pages import Pages

TOKENS = 16_384
STEPS = 2
DENSE: dict[str, Any] = {
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 256,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
    "rope_theta": 1e6,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
DELTA: dict[str, Any] = {
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_key_value_heads": 2,
    "head_dim": 256,
}
ROPE: dict[str, Any] = {
    "rope_type": "default",
    "rope_theta": 1e7,
    "partial_rotary_factor": 0.25,
    "mrope_section": [11, 11, 10],
    "mrope_interleaved": True,
}
LATENT: dict[str, Any] = {
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 64,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "moe_layer_freq": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
    "scoring_func": "softmax",
    "norm_topk_prob": False,
    "routed_scaling_factor": 1.0,
    "attention_bias": False,
}
GEMMA: dict[str, Any] = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256}


def every(count: int, interval: int, kind: str, other: str = "full_attention") -> list[str]:
    """So many layers of a kind, each so many-th the other."""
    places = range(1, count + 1)
    return [kind if place % interval else other for place in places]


def windows(count: int, interval: int, size: int, **keys: Any) -> dict[str, Any]:
    """So many layers, all but each so many-th with a window."""
    listed = every(count, interval, "sliding_attention")
    return {"num_hidden_layers": count, "sliding_window": size, "layer_types": listed, **keys}


@dataclass(frozen=True)
class Counted:
    """One model, and what vLLM says; ``states``: how many a request keeps in a recurrent layer.

    ``halved``: bytes of those weights that ``quantization: fp8`` would halve.
    """

    name: str
    architecture: str
    kind: str
    keys: dict[str, Any]
    needed: int
    block: int
    weights: int = 0
    halved: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    states: int = 2
    page: int = 16

    @property
    def config(self) -> dict[str, Any]:
        """Its config.json."""
        usual = {"torch_dtype": "bfloat16"} if "text_config" in self.keys else DENSE
        return {"architectures": [self.architecture], "model_type": self.kind, **usual, **self.keys}

    @property
    def question(self) -> dict[str, Any]:
        """What the program in vLLM's venv is asked."""
        options = {"block_size": 32, **self.options}
        return {"config": self.config, "tokens": TOKENS, "concurrent": STEPS, "options": options}

    @property
    def pages(self) -> Pages:
        """As they are reckoned for a card."""
        return Pages(self.page, STEPS * 2048, self.states)

    @property
    def cached(self) -> str:
        """The type of its cache."""
        return str(self.options.get("kv_cache_dtype", "bf16"))


GRANITE: dict[str, Any] = {
    "num_hidden_layers": 10,
    "layer_types": every(10, 10, "mamba", "attention"),
    "num_local_experts": 0,
    "num_experts_per_tok": 0,
    "shared_intermediate_size": 128,
    "mamba_n_heads": 48,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "hidden_size": 1536,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "position_embedding_type": "nope",
}
NEXT: dict[str, Any] = {**DELTA, **EXPERTS, "num_hidden_layers": 48, "shared_expert_intermediate_size": 64}
QWEN35: dict[str, Any] = {
    **DELTA,
    "num_hidden_layers": 24,
    "linear_num_value_heads": 16,
    "mamba_ssm_dtype": "float32",
    "rope_parameters": ROPE,
}
OSS: dict[str, Any] = {"head_dim": 64, "num_local_experts": 4, "num_experts_per_tok": 2}
GEMMA3: dict[str, Any] = windows(26, 6, 512, num_key_value_heads=1, num_attention_heads=4, head_dim=256)
COUNTED = (
    Counted("dense", "Qwen3ForCausalLM", "qwen3", {}, 268_435_456, 524_288),
    Counted(
        "cache of 8 bits", "LlamaForCausalLM", "llama", {}, 134_217_728, 262_144, options={"kv_cache_dtype": "fp8"}
    ),
    Counted("experts", "Qwen3MoeForCausalLM", "qwen3_moe", EXPERTS, 268_435_456, 524_288),
    Counted("window", "Gemma3ForCausalLM", "gemma3_text", {**GEMMA, **GEMMA3}, 181_141_504, 131_072),
    Counted("window and experts", "GptOssForCausalLM", "gpt_oss", windows(24, 2, 128, **OSS), 507_248_640, 786_432),
    Counted("as often", "Gemma2ForCausalLM", "gemma2", {**GEMMA, **windows(8, 2, 4096)}, 403_177_472, 524_288),
    Counted("large window", "Olmo3ForCausalLM", "olmo3", windows(8, 4, 4096), 336_330_752, 262_144),
    Counted("delta nets and experts", "Qwen3NextForCausalLM", "qwen3_next", NEXT, 494_665_728, 13_369_344),
    Counted("delta nets", "Qwen3_5ForCausalLM", "qwen3_5_text", QWEN35, 247_332_864, 6_684_672),
    Counted(
        "delta nets, 8 bits",
        "Qwen3_5ForCausalLM",
        "qwen3_5_text",
        QWEN35,
        147_062_784,
        6_684_672,
        options={"kv_cache_dtype": "fp8"},
    ),
    Counted("Mamba", "GraniteMoeHybridForCausalLM", "granitemoehybrid", GRANITE, 57_081_856, 851_968, states=3),
    Counted("one vector", "DeepseekV2ForCausalLM", "deepseek_v2", LATENT, 75_497_472, 73_728, page=64),
)
"""Small models with the layers of large ones."""


SIZES: dict[str, Any] = {"hidden_size": 2048, "vocab_size": 151_936}
LLAMA_1B: dict[str, Any] = {
    **SIZES,
    "vocab_size": 128_256,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "head_dim": 64,
    "intermediate_size": 8192,
}
QWEN_600M: dict[str, Any] = {
    **SIZES,
    "max_position_embeddings": 40_960,
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "intermediate_size": 3072,
}
QWEN_30B: dict[str, Any] = {
    **SIZES,
    "max_position_embeddings": 40_960,
    **EXPERTS,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "intermediate_size": 6144,
    "tie_word_embeddings": False,
}
GEMMA_1B: dict[str, Any] = {
    **GEMMA,
    **GEMMA3,
    "max_position_embeddings": 32_768,
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "vocab_size": 262_144,
}
QWEN35_2B: dict[str, Any] = {
    **SIZES,
    "max_position_embeddings": 262_144,
    **QWEN35,
    "num_hidden_layers": 8,
    "intermediate_size": 6144,
    "vocab_size": 248_320,
}
DEEPSEEK: dict[str, Any] = {
    **SIZES,
    "max_position_embeddings": 163_840,
    **LATENT,
    "n_routed_experts": 64,
    "num_experts_per_tok": 6,
    "n_shared_experts": 2,
    "moe_intermediate_size": 1408,
    "intermediate_size": 10_944,
    "vocab_size": 102_400,
    "tie_word_embeddings": False,
    "num_hidden_layers": 2,
}
LARGE = (
    Counted(
        "Llama 3.2 1B", "LlamaForCausalLM", "llama", LLAMA_1B, 536_870_912, 1_048_576, 2_488_406_272, 1_946_157_056
    ),
    Counted("Qwen3 0.6B", "Qwen3ForCausalLM", "qwen3", QWEN_600M, 1_879_048_192, 3_670_016, 1_202_586_048, 880_803_840),
    Counted(
        "Qwen3 30B-A3B, two layers",
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        QWEN_30B,
        67_108_864,
        131_072,
        3_747_632_160,
        2_492_465_152,
    ),
    Counted(
        "Gemma 3 1B", "Gemma3ForCausalLM", "gemma3_text", GEMMA_1B, 181_141_504, 131_072, 2_033_326_754, 1_395_523_584
    ),
    Counted(
        "Qwen3.5 2B, eight layers",
        "Qwen3_5ForCausalLM",
        "qwen3_5_text",
        QWEN35_2B,
        82_444_288,
        2_228_224,
        1_966_186_592,
        915_439_616,
    ),
    Counted(
        "DeepSeek-V2 Lite, two layers",
        "DeepseekV2ForCausalLM",
        "deepseek_v2",
        DEEPSEEK,
        37_748_736,
        36_864,
        2_191_546_400,
        1_331_691_520,
        page=64,
    ),
)
"""Models of a GiB and more, with the sizes of published ones."""


QWEN_VL: dict[str, Any] = {
    "tie_word_embeddings": True,
    "image_token_id": 151_655,
    "video_token_id": 151_656,
    "vision_start_token_id": 151_652,
    "vision_end_token_id": 151_653,
    "text_config": {
        **DENSE,
        **SIZES,
        "model_type": "qwen3_vl_text",
        "max_position_embeddings": 262_144,
        "num_hidden_layers": 14,
        "num_attention_heads": 16,
        "intermediate_size": 6144,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20]},
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 24,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_heads": 16,
        "out_hidden_size": 2048,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [5, 11, 17],
        "hidden_act": "gelu_pytorch_tanh",
    },
}
SEEING = Counted(
    "Qwen3-VL 2B, 14 layers",
    "Qwen3VLForConditionalGeneration",
    "qwen3_vl",
    QWEN_VL,
    939_524_096,
    1_835_008,
    2_098_851_040,
)
"""A model with an encoder of images, which is not loaded."""
