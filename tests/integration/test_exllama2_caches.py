"""What exllamav2's own classes allocate and reserve for a model, against what is reckoned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provisioner.loads.exllama2 import HALF, KNOWN, reserved_bytes, shape_of_exllama2, table_bytes, unpacked_bytes
from provisioner.loads.terms import Load, cache_bytes
from provisioner.models.folders import header_of
from provisioner.services.tabbyapi.older_loads import MODES
from tests.exllama_venv import answers_of
from tests.unit.loads.exllama2_sums import COUNTED2, MIXTRAL, Counted2
from tests.unit.loads.exllama_sums import TOKENS

pytestmark = [pytest.mark.network, pytest.mark.slow]
VISION: dict[str, dict[str, Any]] = {
    "Mistral3ForConditionalGeneration": {"vision_config": {"model_type": "pixtral"}},
    "Qwen2VLForConditionalGeneration": {"vision_config": {}},
    "Qwen2_5_VLForConditionalGeneration": {"vision_config": {}},
}
"""What a config.json says of its encoder, which is not loaded."""
EXPERTS = {
    "MixtralForCausalLM": MIXTRAL,
    "Qwen3MoeForCausalLM": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 768},
}
NORM = {"layer_norm_epsilon": 1e-5}
"""By this name StarCoder2 has it."""
MORE: list[Counted2] = []
"""Every architecture that is known, of which no bytes are noted."""
for architecture in sorted(KNOWN):
    beside = {**NORM, **VISION.get(architecture, {}), **EXPERTS.get(architecture, {})}
    MORE.append(Counted2(architecture, beside, "Q6", 0, 0, 0, 0))
STRANGER = Counted2("UnheardOfForCausalLM", {}, "FP16", 0, 0, 0, 0)
ALL = (*COUNTED2, *MORE, STRANGER)


@pytest.fixture(scope="module")
def answers(exllama_python: Path) -> list[dict[str, Any]]:
    """What the library allocates for each model, in their order."""
    return answers_of(exllama_python, "tests.exllama2_sums", [one.question for one in ALL])


@pytest.mark.parametrize("place", range(len(ALL) - 1))
def test_what_is_reckoned_is_what_the_library_allocates(answers: list[dict[str, Any]], place: int) -> None:
    counted, answer = ALL[place], answers[place]
    header = header_of(json.dumps(counted.config).encode())
    shape = shape_of_exllama2(header)
    assert shape.unread == ()
    load = Load("m", shape, 1, TOKENS, *MODES[counted.mode], is_paged=True)
    assert cache_bytes(load) == answer["cache"]
    assert reserved_bytes(header, counted.question["chunk"]) == answer["reserved"]
    assert table_bytes(header) * TOKENS == answer["tables"]
    if counted.mode != "FP16":
        assert unpacked_bytes(header) * TOKENS == answer["unpacked"]
    assert shape.vocabulary * shape.embedding * HALF == answer["embeddings"]
    assert answer["knows"]


@pytest.mark.parametrize("place", range(len(COUNTED2)))
def test_what_is_noted_is_what_this_library_allocates(answers: list[dict[str, Any]], place: int) -> None:
    counted, answer = COUNTED2[place], answers[place]
    noted = (counted.cache, counted.unpacked, counted.reserved, counted.tables)
    assert noted == (answer["cache"], answer["unpacked"], answer["reserved"], answer["tables"])


def test_what_the_library_does_not_know_is_not_known_here_either(answers: list[dict[str, Any]]) -> None:
    assert not answers[-1]["knows"]
    header = header_of(json.dumps(STRANGER.config).encode())
    assert shape_of_exllama2(header).unread
