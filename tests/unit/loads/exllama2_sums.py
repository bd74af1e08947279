"""Models by their config.json, and the bytes that exllamav2 0.3.2 itself allocates and reserves for them.

The bytes were counted on the processor, for 1,024 tokens of a cache (``cache.py``), chunks of 512 tokens
(``scratch_space_fixed`` of each module) and tables of 1,024 positions (``device.py``).
``tests/integration/test_exllama2_caches.py`` counts them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.unit.loads.exllama_sums import DENSE, EXPERTS, TOKENS

CHUNK = 512
LLAMA = "LlamaForCausalLM"
ODD = {"hidden_size": 2048, "num_attention_heads": 48, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32_003}
"""Queries that are wider than a token's vector, and tokens to which columns are added."""
MIXTRAL = {"num_local_experts": 8, "num_experts_per_tok": 2}
WIDE = {"vocab_size": 256_000, "hidden_size": 8192, "intermediate_size": 22_528}
"""A matrix of the output that is unpacked in parts."""
GEMMA3: dict[str, Any] = {
    "model_type": "gemma3",
    "vocab_size": None,
    "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 6, "hidden_size": 2560, "vocab_size": 262_208},
    "num_attention_heads": None,
    "num_key_value_heads": None,
    "head_dim": None,
    "hidden_size": None,
    "num_hidden_layers": None,
    "query_pre_attn_scalar": 256.0,
}


@dataclass(frozen=True)
class Counted2:
    """One model, how its cache is packed, and what was counted."""

    architecture: str
    keys: dict[str, Any]
    mode: str
    cache: int
    unpacked: int
    reserved: int
    tables: int

    @property
    def config(self) -> dict[str, Any]:
        """Its config.json."""
        whole = {"architectures": [self.architecture], "model_type": "", **DENSE, **self.keys}
        return {key: value for key, value in whole.items() if value is not None}

    @property
    def question(self) -> dict[str, Any]:
        """What the library is asked."""
        return {"config": self.config, "tokens": TOKENS, "mode": self.mode, "chunk": CHUNK}


RESERVED = 130_023_808
TABLES = 524_288
LAYER = 4_194_304
COUNTED2 = (
    Counted2(LLAMA, {}, "FP16", 16_777_216, 0, RESERVED, TABLES),
    Counted2(LLAMA, {}, "Q8", 8_912_896, LAYER, RESERVED, TABLES),
    Counted2(LLAMA, {}, "Q6", 6_815_744, LAYER, RESERVED, TABLES),
    Counted2(LLAMA, {}, "Q4", 4_718_592, LAYER, RESERVED, TABLES),
    Counted2(LLAMA, ODD, "Q6", 1_703_936, 1_048_576, 131_203_072, 262_144),
    Counted2(LLAMA, WIDE, "FP16", 16_777_216, 0, 1_073_741_824, TABLES),
    Counted2("Qwen3ForCausalLM", {"num_key_value_heads": None}, "FP16", 67_108_864, 0, RESERVED, TABLES),
    Counted2("Qwen3MoeForCausalLM", EXPERTS, "Q4", 4_718_592, LAYER, 37_748_864, TABLES),
    Counted2("MixtralForCausalLM", MIXTRAL, "FP16", 16_777_216, 0, 134_226_560, TABLES),
    Counted2("Gemma3ForConditionalGeneration", GEMMA3, "Q8", 13_369_344, LAYER, 1_073_741_824, 2_097_152),
)
"""Eight heads of 128 of four layers, unless it is said otherwise."""
