"""vLLM in a lab's file: what its stack and its card decide, what is refused before anything is made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.gpus.cards import Card
from provisioner.lab import Known, problems, resolve
from provisioner.lab.opening import open_lab
from provisioner.lab.rules import card_problems, model_option_problems
from provisioner.loads.advice import LARGEST_SHARE, LEAST_SHARE, advice_on, refusals
from provisioner.loads.budgets import RESERVED, Budget, budgets
from provisioner.loads.engines import EngineLoads
from provisioner.loads.layers import Shape
from provisioner.loads.terms import MIB, Load, cache_bytes, state_bytes
from provisioner.models.folders import header_of
from provisioner.report.style import PLAIN
from provisioner.services import knowledge_of
from provisioner.services.base import Limits
from provisioner.services.vllm import DEFAULT_CACHE_GIB
from provisioner.serving.text import fit_text
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.errors import InputError
from provisioner.values.state import Secret
from tests.case_files import read_cases
from tests.folder_files import folder_files, write_folder
from tests.lab_files import spec_of
from tests.unit.lab.test_cards import AMD, NVIDIA
from tests.unit.loads.models import QWEN_FOLDER
from tests.unit.loads.vllm_sums import NEXT

CASES = read_cases("services/vllm")

CATALOG = load_catalog()
ADDRESS = Address.of("hub", "vllm")
CARD = replace(NVIDIA, memory=24 * 2**30)
SIZE = 15_000 * MIB
"""Bytes of the model's files."""
BLOCK = 36 * 16 * 2 * 2 * 8 * 128
"""Bytes of 16 tokens in all its layers: so much of the cache is never given to a request."""
OF_REQUESTS = 16 * 151_936 * (32 + 1) // 8
"""Bytes of the 16 requests of the role's default on the card: a count and a mark for each token that is known."""


def lab(model: str = "dir:/models/qwen", memory: str = "", gpu: str = "", **options: Any) -> dict[str, Any]:
    """The content of a file with a server."""
    service = {"model": "qwen", "api_key": Secret("key", "0123456789abcdef"), **options}
    container: dict[str, Any] = {"services": {"vllm": service}}
    container |= {"memory": memory} if memory else {}
    container |= {"gpu": gpu} if gpu else {}
    source: dict[str, Any] = {"source": model}
    if model.startswith("dir:"):
        source["format"] = "safetensors"
    return {"name": "lab", "models": {"qwen": source}, "containers": {"hub": container}}


def said(content: dict[str, Any]) -> list[str]:
    """What is wrong with the file."""
    return [problem.message for problem in problems(resolve(spec_of(content), CATALOG))]


def test_a_gguf_is_for_another_engine() -> None:
    (problem,) = problems(resolve(spec_of(lab("file:a.gguf")), CATALOG))
    assert problem.message == 'vLLM server reads safetensors, awq, gptq, fp8, and model "qwen" is gguf'
    assert problem.hint == "Role llama_cpp or ollama reads gguf."


@pytest.mark.parametrize(
    ("weights", "readers"), [("exl3", "Role tabbyapi reads exl3."), ("gptq", "Role tabbyapi or vllm reads gptq.")]
)
def test_weights_of_another_engine_are_refused_with_the_role_that_reads_them(weights: str, readers: str) -> None:
    content = lab()
    content["models"]["qwen"]["format"] = weights
    if weights == "gptq":
        content["containers"]["hub"]["services"] = {"llama_cpp": {"model": "qwen"}}
    (problem,) = problems(resolve(spec_of(content), CATALOG))
    assert problem.hint == readers


@pytest.mark.parametrize(("memory", "backend", "needed"), [("2GiB", "cuda", "3GiB"), ("3GiB", "cpu", "4GiB")])
def test_a_container_without_the_memory_of_its_processes_is_refused(memory: str, backend: str, needed: str) -> None:
    (problem,) = problems(resolve(spec_of(lab(memory=memory, gpu="any", backend=backend)), CATALOG))
    assert problem.path == ("containers", "hub", "memory")
    assert "vLLM's three processes take" in problem.message
    assert problem.hint == f"Write {needed} or more."
    assert said(lab(memory=needed, gpu="any", backend=backend)) == []


def test_a_larger_cache_on_the_processor_needs_more() -> None:
    assert said(lab(memory="6GiB", backend="cpu", kv_cache_gib=3)) == []
    (message,) = said(lab(memory="6GiB", backend="cpu", kv_cache_gib=4))
    assert "7GiB" in message


def test_what_the_role_takes_as_its_cache_is_what_is_reckoned() -> None:
    written = yaml.safe_load((paths.roles() / "vllm/vars/main.yml").read_text(encoding="utf-8"))["__vllm_cache_gib"]
    assert written.endswith(f"(0 if vllm_backend == 'cuda' else {DEFAULT_CACHE_GIB}) }}}}")


def test_another_card_than_nvidias_is_refused() -> None:
    spec = spec_of(lab(gpu="any"))
    (problem,) = card_problems(resolve(spec, CATALOG, Known(cards={"hub": AMD})))
    assert "knows no CUDA" in problem.message
    assert card_problems(resolve(spec, CATALOG, Known(cards={"hub": NVIDIA}))) == []


def test_clients_are_told_what_a_request_may_hold() -> None:
    service = resolve(spec_of(lab(max_model_len=4096, vision=True)), CATALOG).services[ADDRESS]
    assert knowledge_of(service.role).limits(service, "qwen") == Limits(4096, vision=True)
    service = resolve(spec_of(lab()), CATALOG).services[ADDRESS]
    assert knowledge_of(service.role).limits(service, "qwen") == Limits(None)
    service = resolve(spec_of(lab()), CATALOG, known_model()).services[ADDRESS]
    assert knowledge_of(service.role).limits(service, "qwen") == Limits(40_960)


@pytest.mark.parametrize(
    ("variables", "is_device"), [({"backend": "cpu"}, False), ({"backend": "cuda", "card": {"vendor": "nvidia"}}, True)]
)
def test_status_says_what_it_was_asked_to_compute_on(variables: dict[str, Any], is_device: bool) -> None:
    assert knowledge_of("vllm").processor(variables, has_card=is_device).is_device is is_device


def test_more_cards_than_a_container_can_have_are_refused() -> None:
    (problem,) = problems(resolve(spec_of(lab(gpu="any", tensor_parallel=2)), CATALOG))
    assert problem.path == ("containers", "hub", "services", "vllm", "tensor_parallel")
    assert problem.message == "2 cards are asked for, and a container gets one at most (`gpu`)"
    assert said(lab(tensor_parallel=2)) == [problem.message]
    assert said(lab(gpu="any", tensor_parallel=1)) == []
    assert said(lab(tensor_parallel=2, stack="")) == []  # given by hand: the role counts them


def known_model(**keys: Any) -> Known:
    """What is known of the model with these keys in its config.json, and of a card of 24 GiB."""
    header = header_of(json.dumps({**QWEN_FOLDER, **keys}).encode())
    return Known(headers={"qwen": header}, cards={"hub": CARD})


def test_more_context_than_the_models_is_refused_as_soon_as_that_is_known() -> None:
    spec = spec_of(lab(max_model_len=40_961))
    assert model_option_problems(resolve(spec, CATALOG)) == []
    (problem,) = model_option_problems(resolve(spec, CATALOG, known_model()))
    assert problem.path == ("containers", "hub", "services", "vllm", "max_model_len")
    assert problem.message == "40961 tokens are asked for, and qwen was made for 40960"
    assert problem.hint == "Write 40960 or less, or 0 for all of them."
    for most in (0, 40_960):
        assert model_option_problems(resolve(spec_of(lab(max_model_len=most)), CATALOG, known_model())) == []
    stretched = known_model(rope_scaling={"rope_type": "yarn", "factor": 4.0})
    assert model_option_problems(resolve(spec, CATALOG, stretched)) == []


@pytest.mark.parametrize(
    ("method", "asked", "message"),
    [
        ("awq", "fp8", "fp8 is asked for, and the weights of qwen are awq"),
        ("compressed-tensors", "fp8", "fp8 is asked for, and the weights of qwen are compressed-tensors"),
        ("gptq", "gptq", None),
        ("awq", "", None),
        ("", "fp8", None),
        ("auto-round", "gptq", None),  # vLLM has a name of its own for it
    ],
)
def test_another_quantisation_than_the_weights_have_is_refused(method: str, asked: str, message: str | None) -> None:
    known = known_model(quantization_config={"quant_method": method}) if method else known_model()
    found = model_option_problems(resolve(spec_of(lab(quantization=asked)), CATALOG, known))
    assert [problem.message for problem in found] == ([message] if message else [])


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({}, 6),
        ({"kv_cache_gib": 5}, 6),
        ({"kv_cache_gib": 6}, None),
        ({"max_model_len": 7280}, None),
        ({"max_model_len": 7281}, 2),
        ({"max_model_len": 4096, "dtype": "float32"}, 2),
    ],
)
def test_a_cache_in_the_hosts_memory_has_to_hold_one_request(options: dict[str, Any], needed: int | None) -> None:
    spec = spec_of(lab(memory="32GiB", backend="cpu", **options))
    found = model_option_problems(resolve(spec, CATALOG, known_model()))
    hints = [f"Write {needed} or more, or a smaller max_model_len."] if needed else []
    assert [(problem.path[-1], problem.hint) for problem in found] == [("kv_cache_gib", hint) for hint in hints]
    assert model_option_problems(resolve(spec, CATALOG)) == []


@pytest.mark.parametrize(
    ("capability", "dtype", "count"), [("7.5", "bfloat16", 1), ("8.0", "bfloat16", 0), ("7.5", "auto", 0)]
)
def test_numbers_that_a_card_does_not_know_are_refused(capability: str, dtype: str, count: int) -> None:
    card = replace(CARD, capability=capability)
    found = card_problems(resolve(spec_of(lab(gpu="any", dtype=dtype)), CATALOG, Known(cards={"hub": card})))
    assert [problem.hint for problem in found] == ["Write dtype: auto, or float16."] * count


def test_a_folder_here_is_held_against_its_context_by_who_opens_the_file(tmp_path: Path) -> None:
    write_folder(tmp_path / "qwen", {**folder_files(None), "config.json": json.dumps(QWEN_FOLDER).encode()})
    file = tmp_path / "homelab.yml"
    text = """\
name: lab
models: { qwen: { source: "dir:qwen" } }
containers:
  hub: { services: { vllm: { model: qwen, max_model_len: LENGTH, api_key: !secret key } } }
"""
    file.write_text(text.replace("LENGTH", "40961"))
    with pytest.raises(InputError) as caught:
        open_lab(file, needs="none")
    assert "homelab.yml:4:43: containers.hub.services.vllm.max_model_len: 40961 tokens" in caught.value.details
    file.write_text(text.replace("LENGTH", "40960"))
    assert open_lab(file, needs="none").resolved.known.headers["qwen"].layers == 36


def budget_of(known: Known, size: int = SIZE, card: Card = CARD, others: int = 0, **options: Any) -> Budget:
    """What lies on the card with a model whose files have so many bytes; ``others``: bytes of another engine."""
    service = resolve(spec_of(lab(gpu="any", **options)), CATALOG, known).services[ADDRESS]
    loads = knowledge_of(service.role).loads(service, {"qwen": size}, card.memory)
    assert loads is not None
    beside = EngineLoads(Address.of("hub", "llama_cpp"), (Load("other", Shape("a"), others, 0, buffers=1),))
    (budget,) = budgets([loads, *([beside] if others else [])], {"hub": card})
    return budget


def terms(budget: Budget) -> dict[str, int]:
    """The terms in MiB, rounded up."""
    return {term.name: -(-term.bytes // MIB) for term in budget.added.terms}


def test_its_share_of_the_card_counts_whatever_its_model_needs() -> None:
    budget = budget_of(known_model(), max_model_len=4096)
    assert terms(budget) == {"weights": 15_000, "cache": 579, "compute buffers": 1034, "rest of its share": 5507}
    assert budget.added.total == int(0.9 * CARD.memory)
    assert (budget.missing, budget.unknown) == (0, ())
    assert advice_on(budget) == ()
    assert terms(budget_of(known_model(), max_model_len=4096, enforce_eager=True))["compute buffers"] == 522
    (guess,) = budget.engines[0].unread
    assert "reckoned, measured on no card" in guess


@pytest.mark.parametrize(
    ("requests", "eager", "buffers"),
    [(1, False, 1025), (256, False, 1178), (256, True, 666), (1000, False, 512 + 870 + 598)],
)
def test_what_all_requests_have_on_the_card_from_the_start_counts(requests: int, eager: bool, buffers: int) -> None:
    budget = budget_of(known_model(), max_model_len=4096, max_num_seqs=requests, enforce_eager=eager)
    assert terms(budget)["compute buffers"] == buffers
    assert f"and what {requests} requests have there from the start" in budget.engines[0].unread[0]


@pytest.mark.parametrize(("gib", "step"), [(24, 2048), (80, 8192), (180, 16_384), (0, 8192)])
def test_beside_a_window_lie_the_tokens_of_two_batches_of_the_card(gib: int, step: int) -> None:
    kinds = ["sliding_attention", "full_attention"] * 18
    known = known_model(sliding_window=1024, layer_types=kinds)
    (load,) = budget_of(known, card=replace(CARD, memory=gib * 2**30)).engines[0].loads
    of_window = (1023 + 2 * step + 15) // 16 + 1
    assert cache_bytes(load) == (of_window + 40_960 // 16 + 1) * BLOCK // 2


def test_a_cache_of_so_many_gib_holds_states_as_well() -> None:
    known = known_model(**{**NEXT, "model_type": "qwen3_next", "max_position_embeddings": 16_384})
    budget = budget_of(known, kv_cache_gib=1)
    assert budget.missing == 0
    assert terms(budget)["recurrent state"] == 77
    assert budget.added.total == SIZE + 2 * 2**30 + OF_REQUESTS


@pytest.mark.parametrize(
    ("options", "tokens"), [({}, 0), ({"speculative_tokens": 9}, 0), ({"speculative": "ngram"}, 3)]
)
def test_each_token_that_is_drafted_at_once_has_a_state_of_its_own(options: dict[str, Any], tokens: int) -> None:
    known = known_model(**{**NEXT, "model_type": "qwen3_next", "max_position_embeddings": 16_384})
    (load,) = budget_of(known, **options).engines[0].loads
    of_layer = 32 * 128 * 128 * 2 + (3 + tokens) * (2 * 16 * 128 + 32 * 128) * 2
    assert state_bytes(load) >= 36 * of_layer * (2 + tokens)
    assert state_bytes(load) == pytest.approx(36 * of_layer * (2 + tokens), rel=0.02)


def test_who_shares_the_card_has_what_its_share_leaves() -> None:
    left = CARD.memory - RESERVED - int(0.9 * CARD.memory)
    assert budget_of(known_model(), max_model_len=4096, others=left - 1).missing == 0
    budget = budget_of(known_model(), max_model_len=4096, others=left)
    assert budget.missing == 1
    (advice,) = [advice for advice in advice_on(budget) if advice.text.startswith("qwen: ")]
    # What the model needs has room: nothing of it has to be smaller.
    assert advice.write == "gpu_memory_utilization: 0.89"
    assert budget_of(known_model(), max_model_len=4096, others=left, gpu_memory_utilization=0.89).missing == 0


def test_one_request_that_does_not_fit_into_the_share_is_a_finding_with_what_to_write() -> None:
    budget = budget_of(known_model(), gpu_memory_utilization=0.8)  # 0 tokens: the model's own 40,960
    assert budget.added.missing == 0  # on the card there is room
    assert budget.missing == (15_000 + 5760 + 1024) * MIB + OF_REQUESTS + BLOCK - int(0.8 * CARD.memory)
    (refusal,) = refusals([budget])
    assert "qwen needs 21,796 MiB, and its share of the card is 19,661 MiB: 2,136 MiB too much" in refusal.details
    assert refusal.resolution.startswith("Write gpu_memory_utilization: 0.89 ")
    ways = {advice.write: advice.fits for advice in advice_on(budget)}
    assert ways == {
        "gpu_memory_utilization: 0.89": True,
        "kv_cache_dtype: fp8": True,
        "max_model_len: 25600": True,
        "cpu_offload: 3": True,
        "": None,
    }
    text = fit_text(budget, {}, PLAIN)
    assert "23,744 MiB usable (832 MiB of the card are not): a share of it is too small" in text
    assert "largest context of qwen: 25,600 tokens (asked for 40,960)" in text


@pytest.mark.parametrize(
    ("options", "ways"),
    [
        ({"max_num_seqs": 1000}, ["max_num_seqs: 500"]),
        ({"max_num_seqs": 1000, "gpu_memory_utilization": 0.89}, ["max_num_seqs: 125"]),
        ({"max_num_seqs": 1000, "gpu_memory_utilization": 0.8}, []),
        ({"max_num_seqs": 1000, "kv_cache_gib": 6, "max_model_len": 4096}, []),
        ({"max_num_seqs": 1000, "kv_cache_gib": 7}, ["max_num_seqs: 500"]),
        ({"max_num_seqs": 1, "gpu_memory_utilization": 0.8}, []),
    ],
)
def test_fewer_requests_at_once_are_advised_where_they_are_enough(options: dict[str, Any], ways: list[str]) -> None:
    advised = [advice for advice in advice_on(budget_of(known_model(), **options)) if "seqs" in advice.write]
    assert [advice.write for advice in advised] == ways
    for advice in advised:
        name, number = advice.write.split(": ")
        budget = budget_of(known_model(), **{**options, name: int(number)})
        assert (budget.missing, budget.added.total) == (0, advice.total)


def test_what_leaves_the_share_too_small_is_told_as_not_enough() -> None:
    budget = budget_of(known_model(), gpu_memory_utilization=0.6)
    ways = {advice.write: advice.fits for advice in advice_on(budget)}
    assert ways["kv_cache_dtype: fp8"] is False
    assert "kv_cache_dtype: fp8 (a cache of one byte a number): 18,915 MiB, not enough" in fit_text(budget, {}, PLAIN)


@pytest.mark.parametrize(
    "options",
    [
        {"gpu_memory_utilization": 0.89},
        {"gpu_memory_utilization": 0.8, "kv_cache_dtype": "fp8"},
        {"gpu_memory_utilization": 0.8, "max_model_len": 25_600},
        {"gpu_memory_utilization": 0.8, "cpu_offload": 3},
    ],
)
def test_what_is_advised_fits_when_it_is_written(options: dict[str, Any]) -> None:
    assert budget_of(known_model(), **options).missing == 0


def test_a_cache_of_so_many_gib_has_to_hold_one_request() -> None:
    budget = budget_of(known_model(), kv_cache_gib=5)
    assert budget.missing == (5760 - 5 * 1024) * MIB + BLOCK
    assert "kv_cache_gib: 6" in [advice.write for advice in advice_on(budget)]
    budget = budget_of(known_model(), kv_cache_gib=6)
    assert budget.missing == 0
    assert budget.added.total == SIZE + (6 + 1) * 2**30 + OF_REQUESTS


@pytest.mark.parametrize(("keys", "options", "weights"), CASES["weights count as they are computed with"])
def test_weights_count_as_they_are_computed_with(keys: dict[str, Any], options: dict[str, Any], weights: int) -> None:
    assert terms(budget_of(known_model(**keys), max_model_len=256, **options))["weights"] == weights


@pytest.mark.parametrize(
    ("known", "size", "reason"),
    [
        (Known(), SIZE, "its config.json is not known"),
        (known_model(), 0, "nobody tells how large its files are"),
        (known_model(max_position_embeddings=None), SIZE, "its config.json does not say what context it has"),
        (known_model(model_type="deepseek_v32"), SIZE, 'what layers of model_type "deepseek_v32" keep of a token'),
    ],
)
def test_fit_says_what_it_does_not_know_and_counts_the_share(known: Known, size: int, reason: str) -> None:
    budget = budget_of(known, size, gpu_memory_utilization=0.8)
    (engine,) = budget.unknown
    assert "vLLM takes 80% of a card at its start, and whether qwen fits into that is not known: " in engine.unknown
    assert engine.unknown.count(reason) == 1
    assert budget.is_undecided
    assert budget.added.total == int(0.8 * CARD.memory)
    assert "whether it fits is not known" in fit_text(budget, {}, PLAIN)


def test_weights_that_are_too_large_alone_are_a_finding_all_the_same() -> None:
    budget = budget_of(Known(), 30 * 2**30)
    assert budget.missing > 0
    assert refusals([budget])[0].details.count("largest context") == 0


def test_without_a_cards_memory_what_the_model_needs_is_told() -> None:
    nobody = Card("0000:01:00.0", "nvidia", "NVIDIA of no size")
    budget = budget_of(known_model(), card=nobody, max_model_len=4096)
    assert terms(budget) == {"weights": 15_000, "cache": 579, "compute buffers": 1034}
    assert "vLLM takes 90% of the card, whose memory is not known" in budget.engines[0].unread[1]
    assert advice_on(budget) == ()


def test_what_is_left_out_of_the_sum_is_told() -> None:
    seeing = known_model(vision_config={"depth": 27})
    (_, encoder) = budget_of(seeing).engines[0].unread
    assert "its encoder of images, which is not loaded" in encoder
    unknown = budget_of(seeing, vision=True, speculative="mtp").engines[0].unknown
    assert "what images take while they are computed is not counted" in unknown
    assert "what its component for drafts keeps is not counted" in unknown
    (_, half) = budget_of(known_model(), quantization="fp8").engines[0].unread
    assert "halves its weights but for embeddings" in half


def test_on_the_processor_nothing_lies_on_a_card() -> None:
    for content in (lab(), lab(gpu="any", backend="cpu")):
        service = resolve(spec_of(content), CATALOG).services[ADDRESS]
        assert knowledge_of(service.role).loads(service, {}, 0) is None


def test_no_share_is_advised_that_the_roles_page_refuses() -> None:
    limit = CATALOG.services["vllm"].options["gpu_memory_utilization"].limit
    assert limit is not None
    assert (limit.min, limit.max) == (LEAST_SHARE / 100, LARGEST_SHARE / 100)
