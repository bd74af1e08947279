"""tabbyAPI's models on a card: what is added up of them, and what is said where nobody knows it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.gpus.cards import Card
from provisioner.lab import Known, problems, resolve
from provisioner.lab.rules import card_problems, model_option_problems
from provisioner.loads.advice import advice_on, refusals
from provisioner.loads.budgets import Budget, budgets
from provisioner.loads.terms import MIB, largest_context
from provisioner.models.folders import header_of
from provisioner.report.style import PLAIN
from provisioner.services import knowledge_of
from provisioner.services.tabbyapi import loads as own
from provisioner.services.tabbyapi import older_loads
from provisioner.serving.text import fit_text
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.state import Secret
from tests.case_files import read_cases
from tests.lab_files import spec_of
from tests.unit.lab.test_cards import NVIDIA
from tests.unit.loads.exllama_sums import DELTA
from tests.unit.loads.models import QWEN_FOLDER

CASES = read_cases("services/tabbyapi")

CATALOG = load_catalog()
ADDRESS = Address.of("hub", "tabbyapi")
KEYS = {"api_key": Secret("key", "0123456789abcdef"), "admin_key": Secret("admin", "fedcba9876543210")}
SIZE = 5000 * MIB
"""Bytes of the model's files."""
EMBEDDINGS = 151_936 * 4096 * 2
FOUR_BITS = {"quantization_config": {"quant_method": "exl3", "bits": 4.0}}
MIXTURE = {
    **QWEN_FOLDER,
    "model_type": "qwen3_moe",
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "hidden_size": 2048,
    "num_hidden_layers": 48,
}


def known_model(name: str = "qwen", **keys: Any) -> Known:
    """What is known of a model with these keys in its config.json."""
    return Known(headers={name: header_of(json.dumps({**QWEN_FOLDER, **FOUR_BITS, **keys}).encode())})


def older_model(name: str = "qwen", method: str = "exl2", **keys: Any) -> Known:
    """What is known of a model that exllamav2 reads."""
    quantised = {"quant_method": method, "bits": 4.0}
    usual = {"architectures": ["Qwen3ForCausalLM"], "intermediate_size": 12_288, "quantization_config": quantised}
    return known_model(name, **{**usual, **keys})


def older_budget(known: Known, memory: int = 24 * 1024, **options: Any) -> Budget:
    """What lies on a card with exllamav2."""
    return budget_of(known, memory=memory, backend="exllamav2", **options)


def budget_of(known: Known, size: int = SIZE, memory: int = 24 * 1024, **options: Any) -> Budget:
    """What lies on a card of which so many MiB are usable, with models whose files have ``size`` bytes."""
    service = {"model": "qwen", **KEYS, **options}
    form = "exl2" if options.get("backend") == "exllamav2" else "exl3"
    models = {"qwen": {"source": "dir:/models/qwen", "format": form}}
    models["small"] = {"source": "dir:/models/small", "format": form}
    content = {
        "name": "lab",
        "models": models,
        "containers": {"hub": {"gpu": "any", "services": {"tabbyapi": service}}},
    }
    resolved = resolve(spec_of(content), CATALOG, known).services[ADDRESS]
    loads = knowledge_of(resolved.role).loads(resolved, {"qwen": size, "small": 600 * MIB}, 0)
    assert loads is not None
    (budget,) = budgets([loads], {"hub": Card("0000:01:00.0", "nvidia", NVIDIA.title)}, memory * MIB)
    return budget


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"backend": "exllamav2", "max_batch_size": 257}, 256),
        ({"backend": "exllamav2", "max_batch_size": 65, "chunk_size": 512}, 64),
        ({"backend": "exllamav2", "max_batch_size": 256}, None),
        ({"backend": "exllamav2"}, None),
        ({"backend": "exllamav3", "max_batch_size": 257}, None),
    ],
)
def test_exllamav2_computes_no_more_requests_at_once_than_a_chunk_has_room_for(
    options: dict[str, Any], most: int | None
) -> None:
    content = {
        "name": "lab",
        "models": {"qwen": {"source": "dir:/models/qwen", "format": "exl2"}},
        "containers": {"hub": {"gpu": "any", "services": {"tabbyapi": {"model": "qwen", **KEYS, **options}}}},
    }
    found = [one for one in problems(resolve(spec_of(content), CATALOG)) if one.path[-1] == "max_batch_size"]
    assert [one.hint for one in found] == ([] if most is None else [f"Write {most} or less, or a larger chunk_size."])


@pytest.mark.parametrize(("keys", "options", "hints"), CASES["what exllamav3 refuses because of its model's file"])
def test_what_exllamav3_refuses_because_of_its_models_file_is_a_problem(
    keys: dict[str, Any], options: dict[str, Any], hints: dict[str, str]
) -> None:
    models = {name: {"source": f"dir:/models/{name}"} for name in ("qwen", "small")}
    services = {"tabbyapi": {"model": "qwen", **KEYS, **options}}
    content = {"name": "lab", "models": models, "containers": {"hub": {"gpu": "any", "services": services}}}
    small = known_model("small", model_type="qwen3_5_text", num_hidden_layers=8, **DELTA).headers
    known = Known(headers={**known_model(**{**DELTA, **keys}).headers, **small})
    found = model_option_problems(resolve(spec_of(content), CATALOG, known))
    assert {str(problem.path[-1]): problem.hint for problem in found} == hints
    assert model_option_problems(resolve(spec_of(content), CATALOG)) == [
        one for one in found if "max_seq_len" in options
    ]


def terms(budget: Budget) -> dict[str, int]:
    """The terms in MiB, rounded up."""
    return {term.name: -(-term.bytes // MIB) for term in budget.added.terms}


def test_the_model_its_cache_and_what_is_computed_with_are_added_up() -> None:
    budget = budget_of(known_model())
    found = terms(budget)
    # The embeddings of tokens stay in the host's memory.
    assert found["weights"] == -(-(SIZE - EMBEDDINGS) // MIB)
    assert found["cache"] == 5760
    assert budget.unknown == ()
    (guess,) = budget.engines[0].unread
    assert f"{found['compute buffers']:,} MiB stand for" in guess
    assert "reckoned, measured on no card" in guess
    assert "all that was added up" not in fit_text(budget, {}, PLAIN)


@pytest.mark.parametrize(("options", "cache"), CASES["the cache is as long and as wide as is written"])
def test_the_cache_is_as_long_and_as_wide_as_is_written(options: dict[str, Any], cache: int) -> None:
    assert terms(budget_of(known_model(), **options))["cache"] == cache


def test_the_tokens_that_the_model_was_trained_with_count_and_no_stretched_ones() -> None:
    stretched = known_model(rope_scaling={"rope_type": "yarn", "factor": 4.0})
    assert terms(budget_of(stretched))["cache"] == 5760
    assert terms(budget_of(known_model(max_position_embeddings=None)))["cache"] == 576


@pytest.mark.parametrize(("options", "slots"), [({}, 4), ({"max_batch_size": 1}, 1), ({"max_batch_size": 16}, 16)])
def test_the_state_of_a_hybrid_counts_for_each_request(options: dict[str, Any], slots: int) -> None:
    hybrid = known_model(model_type="qwen3_5_text", **DELTA)
    budget = budget_of(hybrid, **options)
    # 27 of 36 layers: 32 heads of 128 by 128 numbers of four bytes, and 8,192 by 4 of two.
    state = 27 * slots * (32 * 128 * 128 * 4 + 8192 * 4 * 2)
    assert {term.name: term.bytes for term in budget.added.terms}["recurrent state"] == state
    assert terms(budget)["cache"] == 5760 // 4


@pytest.mark.parametrize("mode", ["ngram", "mtp"])
def test_what_drafts_has_a_hybrid_keep_its_states(mode: str) -> None:
    hybrid = known_model(model_type="qwen3_5_text", **DELTA)
    budget = budget_of(hybrid, draft_mode=mode)
    state = 27 * 4 * (5 * 32 * 128 * 128 * 4 + 8192 * 8 * 2)
    assert {term.name: term.bytes for term in budget.added.terms}["recurrent state"] == state
    assert ("what its component for drafts keeps" in budget.engines[0].unknown) is (mode == "mtp")


def test_a_model_that_drafts_lies_beside_with_a_cache_of_its_own() -> None:
    small = header_of(json.dumps({**QWEN_FOLDER, "num_hidden_layers": 9, "hidden_size": 1024}).encode())
    known = Known(headers={**known_model().headers, "small": small})
    found = terms(budget_of(known, draft_mode="model", draft_model="small", cache_mode="Q4"))
    assert found["qwen: cache"] == 1620
    assert found["small: cache"] == 5760 // 4  # never packed, and as long
    assert found["small: weights"] == -(-(600 * MIB - EMBEDDINGS // 4) // MIB)
    assert "small: cache" not in terms(budget_of(known, draft_model="small"))


def test_a_draft_for_another_vocabulary_is_counted_by_its_own() -> None:
    keys = {**QWEN_FOLDER, "num_hidden_layers": 9, "hidden_size": 1024, "vocab_size": 1000}
    known = Known(headers={**known_model().headers, "small": header_of(json.dumps(keys).encode())})
    found = terms(budget_of(known, draft_mode="model", draft_model="small"))
    assert found["small: weights"] == -(-(600 * MIB - 1000 * 1024 * 2) // MIB)
    assert found["qwen: weights"] == terms(budget_of(known))["weights"]


def test_experts_in_the_hosts_memory_are_not_on_the_card() -> None:
    mixture = known_model(**MIXTURE)
    whole = terms(budget_of(mixture, 16_000 * MIB))["weights"]
    of_layer = 3 * 128 * 768 * 2048 * 4 / 8 / MIB
    budget = budget_of(mixture, 16_000 * MIB, cpu_moe_offload_layers=10)
    assert terms(budget)["weights"] == pytest.approx(whole - 10 * of_layer, abs=1)
    assert any("codebook mul1" in guess for guess in budget.engines[0].unread)
    assert terms(budget_of(mixture, 16_000 * MIB, cpu_moe_offload_layers=999))["weights"] == pytest.approx(
        whole - 48 * of_layer, abs=1
    )
    assert terms(budget_of(known_model(), cpu_moe_offload_layers=10)) == terms(budget_of(known_model()))


@pytest.mark.parametrize(
    ("known", "size", "reason"),
    [
        (Known(), SIZE, "its config.json is not known"),
        (known_model(), 0, "nobody tells how large its files are"),
        (known_model(model_type="deepseek_v3"), SIZE, 'of model_type "deepseek_v3" is not known here'),
    ],
)
def test_what_is_not_known_is_said_and_never_part_of_the_sum(known: Known, size: int, reason: str) -> None:
    budget = budget_of(known, size)
    (engine,) = budget.unknown
    assert engine.unknown.startswith("what qwen takes of a card is not known: ")
    assert engine.unknown.count(reason) == 1
    assert budget.is_undecided
    assert "cache" not in terms(budget)
    assert "margin" not in terms(budget)
    assert "whether it fits is not known" in fit_text(budget, {}, PLAIN)


def test_weights_that_are_too_large_alone_are_refused_all_the_same() -> None:
    budget = budget_of(Known(), 30 * 2**30)
    assert budget.missing > 0
    assert "largest context" not in refusals([budget])[0].details
    assert [advice.write for advice in advice_on(budget)] == [""]


def test_the_older_backend_is_added_up_as_well() -> None:
    budget = older_budget(older_model())
    found = terms(budget)
    assert budget.unknown == ()
    assert found["weights"] == -(-(SIZE - EMBEDDINGS) // MIB)
    assert found["cache"] == 5760
    assert "recurrent state" not in found
    # The output unpacked in parts; a chunk passes through; logits of 256 requests; tables of 40,960 positions.
    passing = 2048 * (4 * 4096 + 4 * 4096 + 4 * 1024 + 4 * 32) + 256 * 151_936 * 2
    assert found["compute buffers"] == -(-(2**30 + passing + 40_960 * 512) // MIB)
    (guess,) = budget.engines[0].unread
    assert "reckoned, measured on no card" in guess


@pytest.mark.parametrize(
    ("options", "cache"),
    [
        ({"max_seq_len": 4000}, 576),
        ({"cache_size": 8192}, 1152),
        ({"cache_mode": "Q8"}, 3060),
        ({"cache_mode": "Q6"}, 2340),
        ({"cache_mode": "Q4"}, 1620),
    ],
)
def test_the_older_cache_is_as_long_and_as_wide_as_is_written(options: dict[str, Any], cache: int) -> None:
    assert terms(older_budget(older_model(), **options))["cache"] == cache


def test_an_older_cache_that_is_packed_has_a_layer_unpacked_besides() -> None:
    whole, packed = terms(older_budget(older_model())), terms(older_budget(older_model(), cache_mode="Q8"))
    assert packed["compute buffers"] - whole["compute buffers"] == 160  # 40,960 tokens, 1,024 numbers twice


def test_fewer_requests_and_shorter_chunks_take_less_to_compute_with() -> None:
    long, short = (terms(older_budget(older_model(), chunk_size=size))["compute buffers"] for size in (2048, 512))
    assert long - short == pytest.approx((1536 * 36_992 + 192 * 151_936 * 2) / MIB, abs=1)
    # No chunk is longer than what a request may have.
    fitting = older_budget(older_model(), chunk_size=2048, max_seq_len=512, cache_size=40_960)
    assert terms(fitting)["compute buffers"] == short
    one = terms(older_budget(older_model(), max_batch_size=1))["compute buffers"]
    assert long - one == pytest.approx(255 * 151_936 * 2 / MIB, abs=1)


def test_an_output_that_is_the_embeddings_lies_on_the_card() -> None:
    tied = older_model(method="gptq", tie_word_embeddings=True)
    assert terms(older_budget(tied))["weights"] == -(-SIZE // MIB)
    assert terms(older_budget(older_model(method="gptq")))["weights"] == -(-(SIZE - EMBEDDINGS) // MIB)


def test_a_model_that_drafts_for_the_older_backend_has_a_cache_that_is_not_packed() -> None:
    small = older_model("small", num_hidden_layers=9, hidden_size=1024).headers
    known = Known(headers={**older_model().headers, **small})
    drafting = older_budget(known, draft_mode="model", draft_model="small", cache_mode="Q4")
    found = terms(drafting)
    assert found["qwen: cache"] == 1620
    assert found["small: cache"] == 5760 // 4
    alone = terms(older_budget(known, cache_mode="Q4"))["compute buffers"]
    more_logits = 4 * 256 * 151_936 * 2 / MIB
    assert found["qwen: compute buffers"] - alone == pytest.approx(more_logits, abs=1)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"architectures": ["DeepseekV3ForCausalLM"]}, 'architecture "DeepseekV3ForCausalLM" is not known here'),
        ({"intermediate_size": None}, "how wide it is"),
    ],
)
def test_what_is_not_known_of_the_older_backend_is_said(keys: dict[str, Any], reason: str) -> None:
    budget = older_budget(older_model(**keys))
    (engine,) = budget.unknown
    assert reason in engine.unknown
    assert set(terms(budget)) == {"weights"}
    assert budget.is_undecided


@pytest.mark.parametrize(("capability", "is_old"), [("7.5", True), ("8.0", False), ("12.0", False), ("", False)])
def test_cards_that_are_too_old_are_not_added_up_for_either_backend(capability: str, is_old: bool) -> None:
    card = Card("0000:01:00.0", "nvidia", NVIDIA.title, capability=capability)
    assert bool(older_loads.too_old(card)) is is_old
    serving = knowledge_of("tabbyapi").folder_serving("exl2", card, 8 * 2**30)
    assert serving is not None
    assert bool(serving.unknown) is is_old
    newer = knowledge_of("tabbyapi").folder_serving("exl3", card, 8 * 2**30)
    assert newer is not None
    assert ("exllamav3 computes from compute capability 8.0 on" in newer.unknown) is is_old


def test_a_model_that_the_newer_backend_cannot_read_is_added_up_for_the_older_one() -> None:
    for method in ("exl2", "gptq"):
        known = older_model(method=method)
        # The wheels of a stack, from which the backend follows, may not be locked yet.
        assert budget_of(known, stack="exllamav2-cu12").added == older_budget(known).added, method
        assert budget_of(known).added == older_budget(known).added, method
        assert budget_of(known, backend="exllamav3").added != older_budget(known).added, method
    assert budget_of(known_model()).added == budget_of(known_model(), backend="exllamav3").added
    written = (paths.roles() / "tabbyapi/vars/main.yml").read_text(encoding="utf-8")
    assert f"{{{{ {[*own.OLDER_FORMATS]} if tabbyapi_backend == 'exllamav3'" in written


@pytest.mark.parametrize(
    ("capability", "backend", "count"), [("7.5", "exllamav3", 1), ("8.0", "exllamav3", 0), ("7.5", "exllamav2", 0)]
)
def test_a_card_on_which_exllamav3_does_not_start_is_refused(capability: str, backend: str, count: int) -> None:
    content = {
        "name": "lab",
        "models": {"qwen": {"source": "dir:/models/qwen"}},
        "containers": {"hub": {"gpu": "any", "services": {"tabbyapi": {"model": "qwen", "backend": backend, **KEYS}}}},
    }
    card = Card("0000:01:00.0", "nvidia", NVIDIA.title, capability=capability)
    found = card_problems(resolve(spec_of(content), CATALOG, replace(known_model(), cards={"hub": card})))
    assert [problem.message.partition(": ")[2] for problem in found] == [
        "exllamav3 computes from compute capability 8.0 on, and this is 7.5"
    ] * count


def test_a_card_that_is_too_old_is_said_where_its_engine_is_added_up() -> None:
    old = Card("0000:01:00.0", "nvidia", NVIDIA.title, capability="7.5")
    known = replace(older_model(), cards={"hub": old})
    (engine,) = older_budget(known).unknown
    assert "without flash-attn on cards of compute capability 7.5" in engine.unknown
    assert budget_of(replace(known_model(), cards={"hub": old})).unknown == ()


def test_what_is_advised_for_the_older_backend_is_written_in_its_own_words_and_fits() -> None:
    budget = older_budget(older_model(), memory=9000)
    assert budget.missing > 0
    ways = {advice.write: advice.fits for advice in advice_on(budget)}
    assert not [write for write in ways if "8,8" in write or "max_batch_size" in write]
    for mode in ("Q8", "Q6"):
        assert ways[f"cache_mode: {mode}"] == (older_budget(older_model(), memory=9000, cache_mode=mode).missing == 0)
    largest = largest_context(budget.loads[0], budget.usable or 0)
    assert f"max_seq_len: {largest}, cache_size: {largest}" in ways
    assert older_budget(older_model(), memory=9000, max_seq_len=largest, cache_size=largest).missing == 0
    more = largest + 256
    assert older_budget(older_model(), memory=9000, max_seq_len=more, cache_size=more).missing > 0


def test_what_is_advised_is_written_in_its_own_words_and_fits() -> None:
    budget = budget_of(known_model(), memory=8000)
    assert budget.missing > 0
    written: dict[str, dict[str, Any]] = {
        'cache_mode: "8,8"': {"cache_mode": "8,8"},
        'cache_mode: "8,4"': {"cache_mode": "8,4"},
    }
    ways = {advice.write: advice.fits for advice in advice_on(budget)}
    assert not [write for write in ways if "gpu_layers" in write or "kv_cache" in write]
    for write, options in written.items():
        assert ways[write] == (budget_of(known_model(), memory=8000, **options).missing == 0)
    largest = largest_context(budget.loads[0], budget.usable or 0)
    assert f"max_seq_len: {largest}, cache_size: {largest}" in ways
    assert budget_of(known_model(), memory=8000, max_seq_len=largest, cache_size=largest).missing == 0
    more = largest + 256
    assert budget_of(known_model(), memory=8000, max_seq_len=more, cache_size=more).missing > 0
    assert advice_on(budget_of(known_model())) == ()


def test_a_hybrid_that_misses_a_little_is_told_to_answer_one_at_a_time() -> None:
    hybrid = known_model(model_type="qwen3_5_text", **DELTA)
    needed = budget_of(hybrid).added.total // MIB
    budget = budget_of(hybrid, memory=needed - 100)
    (one,) = [advice for advice in advice_on(budget) if advice.write == "max_batch_size: 1"]
    assert one.fits
    assert budget_of(hybrid, memory=needed - 100, max_batch_size=1).missing == 0


def test_its_modes_are_those_that_the_role_takes() -> None:
    written = (paths.roles() / "tabbyapi/vars/main.yml").read_text(encoding="utf-8")
    assert "^(FP16|Q[468]|[2-8],[2-8])" in written
    assert [*own.MODES] == ["FP16", "Q8", "Q6", "Q4"]
    assert [*older_loads.MODES] == ["FP16", "Q8", "Q6", "Q4"]
