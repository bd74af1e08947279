"""Who computes, from what was measured: the one state that is a GPU, and every one that is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.ansible.modules.provision_engine_verdict import (
    FASTER,
    GPU,
    MIB,
    UNPROVEN,
    Signals,
    grown_before,
    judge,
    keep,
    layers_in,
    on_device,
    signals_in,
)

PROVED = Signals(
    "CUDA0",
    layers=(33, 33),
    cards=["NVIDIA GeForce RTX 3060 (0000:01:00.0)"],
    weights=5491 * MIB,
    used=7300 * MIB,
    grown=6900 * MIB,
    prompt=900.0,
    generated=48.2,
    cpu_prompt=12.1,
    cpu_generated=4.3,
    gpu_info="NVIDIA GeForce RTX 3060",
)
ON_CPU: dict[str, Any] = {"prompt": 12.1, "generated": 4.4}
SAID = """\
load_tensors: offloading 32 repeating layers to GPU
load_tensors: offloaded 33/33 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   281.81 MiB
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
"""
MEMORY = {
    "start": "abc",
    "driver": "580",
    "cards": ["a card"],
    "used": 5000 * MIB,
    "grown": 4900 * MIB,
    "problem": "",
    "weights": 4685 * MIB,
}
ASKED: dict[str, Any] = {
    "device": "CUDA0",
    "devices": {"problem": "", "advice": ""},
    "said": SAID,
    "layers": "all",
    "memory": MEMORY,
    "speed": {"prompt": 12.1, "generated": 4.3, "gpu_info": "a card", "problem": ""},
    "timings": [
        {"prompt_per_second": 700.0, "predicted_per_second": 40.0},
        {"prompt_per_second": 900.0, "predicted_per_second": 39.0},
    ],
    "card": {"uuid": "GPU-1"},
}


def against(**other: Any) -> str:
    """What speaks against the GPU in this state, with the advice."""
    found = judge(replace(PROVED, **other))
    assert found.verdict == UNPROVEN
    assert bool(found.problem) == bool(found.advice)
    return f"{found.problem}. {found.advice}"


def test_all_three_signals_make_a_gpu_and_their_figures_are_said() -> None:
    found = judge(PROVED)
    assert (found.verdict, found.problem) == (GPU, "")
    assert found.why == (
        "CUDA0 has 33 of 33 layers; NVIDIA GeForce RTX 3060 (0000:01:00.0) holds 6,900 MiB for 5,491 MiB; 48.2 tokens/s"
        " where the CPU makes 4.3 tokens/s (prompts 900.0 tokens/s, CPU 12.1 tokens/s)"
    )


def test_a_small_model_is_never_a_gpu() -> None:
    found = judge(replace(PROVED, weights=511 * MIB))
    assert (found.verdict, found.problem) == (UNPROVEN, "")
    assert "511 MiB of weights are too few to measure" in found.why
    assert judge(replace(PROVED, weights=512 * MIB)).verdict == GPU


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"problem": "there is no CUDA0, it finds none", "advice": "Give it one."}, "there is no CUDA0"),
        ({"layers": (0, 0)}, 'the server said "nothing of layers"'),
        ({"layers": (0, 33), "fallback": "offloaded 0/33 layers to GPU"}, 'said "offloaded 0/33 layers to GPU"'),
        (
            {"layers": (32, 33), "wants_all": True},
            "put 32 of 33 layers on it and computes the others on the CPU. Every token waits",
        ),
        ({"fallback": "warning: no usable GPU found"}, "no usable GPU found"),
        ({"grown": 0}, "has grown by 0 MiB since before its start, and 5,491 MiB of weights need 4,393 MiB"),
        ({"grown": 4392 * MIB}, "has grown by 4,392 MiB"),
        ({"used": 900 * MIB}, "has 900 MiB in use, less than 4,393 MiB"),
        ({"grown": -1, "unmeasured": "nvidia-smi: No such file"}, "is not known: nvidia-smi: No such file"),
        (ON_CPU, "it computes 4.4 tokens/s of its answer and 12.1 tokens/s of a prompt, and the CPU alone 4.3"),
        ({"generated": 0.0, "prompt": 0.0}, "the server did not say how fast it is"),
        ({"gpu_info": ""}, "sees no GPU (its gpu_info is empty)"),
        ({"unbenched": "signal 9 ended llama-bench"}, "not known: signal 9 ended llama-bench"),
    ],
)
def test_each_signal_that_is_missing_or_says_otherwise_is_told(state: dict[str, Any], words: str) -> None:
    assert words in against(**state)


def test_layers_on_the_cpu_are_a_finding_unless_they_are_asked_for() -> None:
    part = {**ASKED, "said": SAID + "load_tensors: offloaded 20/33 layers to GPU"}
    for asked in ("", "auto", "all"):
        assert "put 20 of 33 layers on it" in judge(signals_in({**part, "layers": asked}, -1)).problem
    assert not judge(signals_in({**part, "layers": "20"}, -1)).problem
    assert not judge(signals_in({**part, "layers": "auto", "card": {}}, -1)).problem


def test_the_share_of_the_weights_is_a_limit() -> None:
    enough = int(0.8 * 5491 * MIB)
    assert judge(replace(PROVED, grown=enough)).verdict == GPU
    assert judge(replace(PROVED, grown=enough - 1)).verdict == UNPROVEN


def test_an_apu_that_is_faster_in_prompts_only_is_a_gpu() -> None:
    assert judge(replace(PROVED, generated=4.5, prompt=80.0)).verdict == GPU
    assert judge(replace(PROVED, generated=4.5, prompt=FASTER * 12.1)).verdict == UNPROVEN


def test_a_device_by_hand_whose_memory_cannot_be_measured_is_no_gpu_and_no_failure() -> None:
    found = judge(replace(PROVED, grown=-1, must_measure=False, unmeasured="nvidia-smi does not name the card"))
    assert (found.verdict, found.problem) == (UNPROVEN, "")
    assert "its memory could not be measured: nvidia-smi does not name the card" in found.why
    slow = replace(PROVED, grown=-1, must_measure=False, unmeasured="no", **ON_CPU)
    assert "the CPU alone" in judge(slow).problem


def test_a_small_model_without_its_device_is_refused_all_the_same() -> None:
    assert "offloaded 0/3" in against(weights=MIB, layers=(0, 3), fallback="offloaded 0/3 layers to GPU")


def test_layers_and_buffers_are_read_from_what_the_server_said() -> None:
    assert layers_in(SAID) == (33, 33)
    assert layers_in(SAID + "load_tensors: offloaded 20/33 layers to GPU") == (20, 33)
    assert layers_in("offloaded 20/33 layers to GPU\noffloaded 25/25 layers to GPU") == (20, 33)
    assert layers_in("") == (0, 0)
    two = (
        SAID
        + "load_tensors:  CUDA1 model buffer size = 100.00 MiB\nload_tensors:  CUDA0 model buffer size = 4.00 MiB\n"
    )
    assert on_device(two) == 104 * MIB
    hosts = "".join(
        f"load_tensors: {name} model buffer size = 9.00 MiB\n" for name in ("CUDA_Host", "CPU", "CPU_REPACK")
    )
    assert on_device(hosts) == 0


def test_signals_are_taken_from_the_other_modules_answers() -> None:
    seen = signals_in(ASKED, -1)
    assert (seen.prompt, seen.generated, seen.weights, seen.grown) == (700.0, 39.0, 4685 * MIB, 4900 * MIB)
    assert judge(seen).verdict == GPU
    assert not signals_in({**ASKED, "card": {}}, -1).must_measure


def test_what_was_measured_at_the_start_counts_until_the_next_one(tmp_path: Path) -> None:
    """Days later other services may have freed what they had when this one started."""
    file = tmp_path / "proofs" / "llama_cpp.json"
    assert grown_before(file, MEMORY) == -1
    keep(file, {"grown": 4900 * MIB, "start": "abc", "driver": "580", "verdict": GPU, "why": ""})
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert grown_before(file, MEMORY) == 4900 * MIB
    later = {**ASKED, "memory": {**MEMORY, "grown": 100 * MIB}}
    assert judge(signals_in(later, grown_before(file, MEMORY))).verdict == GPU
    assert grown_before(file, {**MEMORY, "start": "abd"}) == -1
    assert grown_before(file, {**MEMORY, "driver": "590"}) == -1
    file.write_text("[]")
    assert grown_before(file, MEMORY) == -1
    unknown = {**ASKED, "memory": {**MEMORY, "grown": -1, "problem": "version mismatch"}}
    assert "version mismatch" in judge(signals_in(unknown, 4900 * MIB)).problem
    assert json.loads(file.read_text()) == []


def test_of_a_model_that_does_not_fit_what_the_server_put_on_the_card_has_to_be_there() -> None:
    large = {**MEMORY, "weights": 9000 * MIB}
    seen = signals_in({**ASKED, "memory": large}, -1)
    assert (seen.weights, seen.whole) == (int(4403.49 * MIB), 9000 * MIB)
    assert "holds 4,900 MiB for 4,403 MiB of 9,000 MiB; " in judge(seen).why
    silent = signals_in({**ASKED, "memory": large, "said": "load_tensors: offloaded 33/33 layers to GPU"}, -1)
    assert silent.weights == 9000 * MIB
    assert "9,000 MiB of weights need 7,200 MiB" in judge(silent).problem
    little = signals_in({**ASKED, "memory": large, "said": SAID.replace("4403.49", "100.00")}, -1)
    assert judge(little).verdict == UNPROVEN


EMBEDS = replace(PROVED, generates=False, generated=0.0)


def test_what_makes_embeddings_is_a_gpu_where_its_texts_are_computed_faster() -> None:
    found = judge(EMBEDS)
    assert found.verdict == GPU
    assert f"prompts {PROVED.prompt:.0f}" in found.why
    assert "where the CPU makes" not in found.why


@pytest.mark.parametrize(
    ("prompt", "words"), [(0.0, "its answers were not timed"), (FASTER * 12.1, "it computes"), (12.0, "it computes")]
)
def test_what_makes_embeddings_no_faster_is_no_gpu(prompt: float, words: str) -> None:
    found = judge(replace(EMBEDS, prompt=prompt))
    assert found.verdict == UNPROVEN
    assert found.problem.startswith(words)


VLLM_SAID = """\
(EngineCore pid=1627) INFO 11-27 19:56:09 [core.py:133] Initializing a V1 LLM engine (v0.33.0) with config: \
model='/srv/m', kv_cache_dtype=auto, device_config=cuda, seed=0, served_model_name=qwen
(Worker_TP0 pid=1719) INFO 19:56:34 [gpu_model_runner.py:471] Model loading took 7.5 GiB memory and 3.100000 seconds
(Worker_TP1 pid=1720) INFO 19:56:34 [gpu_model_runner.py:471] Model loading took 7.5 GiB memory and 3.200000 seconds
"""
"""In the words of vLLM 0.33 (``v1/engine/core.py``, ``config/vllm.py``, ``v1/worker/gpu_model_runner.py``)."""
GIB = 1024 * MIB
OF_VLLM: dict[str, Any] = {
    "tells": "device",
    "device": "cuda",
    "devices": {},
    "said": VLLM_SAID,
    "elsewhere": 0,
    "layers": "",
    "memory": {**MEMORY, "used": 21 * GIB, "grown": 20 * GIB, "weights": 16 * GIB},
    "speed": {"prompt": 90.0, "generated": 4.1},
    "timings": [{"prompt_per_second": 5000.0, "predicted_per_second": 40.0}],
    "card": {"uuid": "GPU-1"},
}


def of_vllm(**other: Any) -> Any:
    """What is judged of a server of vLLM's in this state."""
    return judge(signals_in({**OF_VLLM, **other}, -1))


def test_vllm_is_a_gpu_where_it_says_so_and_the_card_holds_it_and_it_is_faster() -> None:
    assert (of_vllm().verdict, of_vllm().problem) == (GPU, "")
    assert of_vllm().why == (
        "cuda has 15,360 MiB of the model by its own word; a card holds 20,480 MiB for 15,360 MiB of 16,384 MiB; 40.0"
        " tokens/s where the CPU makes 4.1 tokens/s (prompts 5000.0 tokens/s, CPU 90.0 tokens/s)"
    )


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            {"said": VLLM_SAID.replace("device_config=cuda", "device_config=cpu")},
            "the server said that it computes on cpu",
        ),
        ({"said": ""}, "the server said nothing of what it computes on"),
        ({"said": VLLM_SAID.replace("took 7.5", "took 1.0")}, "put 2,048 MiB of the model on it, and 16,384 MiB"),
        ({"memory": {**OF_VLLM["memory"], "grown": GIB}}, "has grown by 1,024 MiB since before its start"),
        ({"memory": {**OF_VLLM["memory"], "used": GIB}}, "has 1,024 MiB in use"),
        ({"speed": {"prompt": 6000.0, "generated": 39.0}}, "it computes 40.0 tokens/s of its answer"),
        ({"speed": {"problem": "no module torch"}}, "how fast the CPU would be is not known: no module torch"),
        ({"timings": [], "speed": {**OF_VLLM["speed"], "untimed": "URLError: no"}}, "how fast it is (URLError: no)"),
        ({"speed": {}}, "how fast the CPU would be is not known: nobody measured it"),
    ],
)
def test_each_signal_of_vllm_that_says_otherwise_is_told(state: dict[str, Any], words: str) -> None:
    found = of_vllm(**state)
    assert words in found.problem
    assert found.advice
    assert found.verdict == UNPROVEN


def test_only_who_computes_elsewhere_is_told_to_take_another_stack() -> None:
    silent, on_cpu = of_vllm(said=""), of_vllm(said="device_config=cpu")
    assert ("journal reach back to its start" in silent.advice, "Another stack" in silent.advice) == (True, False)
    assert "Another stack" in on_cpu.advice


def test_what_stays_in_the_hosts_memory_need_not_be_on_the_card() -> None:
    little = {"said": VLLM_SAID.replace("took 7.5", "took 1.5"), "memory": {**OF_VLLM["memory"], "grown": 5 * GIB}}
    assert of_vllm(**little).problem
    assert of_vllm(**little, elsewhere=13 * GIB).verdict == GPU


def test_a_small_model_whose_numbers_become_wider_is_still_small() -> None:
    """Of 300 MiB in 16 bits 600 become in 32, and no speed was measured."""
    wide = {"said": VLLM_SAID.replace("took 7.5", "took 0.3"), "memory": {**OF_VLLM["memory"], "weights": 300 * MIB}}
    found = of_vllm(**wide, timings=[], speed={})
    assert (found.verdict, found.problem) == (UNPROVEN, "")


def test_a_small_model_of_vllm_is_no_gpu_and_no_failure_but_for_another_device() -> None:
    small = {"said": VLLM_SAID.replace("took 7.5", "took 0.1"), "memory": {**OF_VLLM["memory"], "weights": 200 * MIB}}
    found = of_vllm(**small)
    assert (found.verdict, found.problem) == (UNPROVEN, "")
    assert "205 MiB of weights are too few to measure" in found.why
    on_cpu = {**small, "said": "device_config=cpu"}
    assert "computes on cpu" in of_vllm(**on_cpu).problem
