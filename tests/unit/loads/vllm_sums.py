"""Models by their config.json, and the bytes that vLLM 0.32.0 itself says that their caches and weights take.

Told by its own classes on a processor, with the smallest pages that are there for one, of 32 tokens (``needed``: pages
of one request; ``block``: what is never given away), and two batches of 2,048 tokens at once, as on a card of less than
70 GiB. ``tests/integration/test_vllm_caches.py`` asks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from provisioner.loads.terms import Pages
from tests.case_files import read_cases

CASES = read_cases("loads/vllm_sums")
TOKENS = 16_384
STEPS = 2
KEYS: dict[str, dict[str, Any]] = CASES["keys"]
DENSE, EXPERTS, LATENT = KEYS["dense"], KEYS["experts"], KEYS["latent"]
GRANITE, NEXT, QWEN35 = KEYS["granite"], KEYS["next"], KEYS["qwen35"]


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
    def drafted(self) -> int:
        """How many tokens are drafted at once."""
        return int(self.options.get("speculative_config", {}).get("num_speculative_tokens", 0))

    @property
    def pages(self) -> Pages:
        """As they are reckoned for a card."""
        return Pages(self.page, STEPS * 2048, self.states)

    @property
    def cached(self) -> str:
        """The type of its cache."""
        return str(self.options.get("kv_cache_dtype", "bf16"))


COUNTED = tuple(Counted(**one) for one in CASES["counted"])
"""Small models with the layers of large ones."""
LARGE = tuple(Counted(**one) for one in CASES["large"])
"""Models of a GiB and more, with the sizes of published ones."""
SEEING = Counted(**CASES["seeing"])
"""A model with an encoder of images, which is not loaded."""
