"""Which engines lie on which card, what is usable of it, and how a card that is too small is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.gpus.cards import Card
from provisioner.lab import Known, resolve
from provisioner.loads.advice import refusals
from provisioner.loads.budgets import Budget, budgets, usable_of
from provisioner.loads.engines import EngineLoads
from provisioner.loads.layers import Placing
from provisioner.loads.terms import MIB
from provisioner.models.header import Header
from provisioner.services import knowledge_of
from provisioner.values.address import Address
from tests.unit.loads.models import MIXTURE, NINE, QWEN, USABLE, mixture_tensors
from tests.unit.loads.specs import spec_of

GIB = 2**30
EIGHT = Card("0000:01:00.0", "nvidia", "NVIDIA GeForce RTX 4060", memory=8 * GIB)
NINES = Header("qwen35", 32, values=QWEN, tokens=248_320)
NOVEL = Header("novel", values={"general.architecture": "novel"})
MIXED = Header("qwen3moe", 4, experts=128, values=MIXTURE, tokens=151_936, tensors=mixture_tensors())
EYE = Header(
    "clip",
    values={
        "clip.projector_type": "gemma3",
        "clip.vision.image_size": 896,
        "clip.vision.patch_size": 14,
        "clip.vision.embedding_length": 1152,
        "clip.vision.feed_forward_length": 4304,
    },
)
SIZES = {"nine": 5491 * MIB, "mixed": sum(mixture_tensors().values()), "eye": 800 * MIB}


def engines(
    containers: Mapping[str, Any], memory: Mapping[str, int] | None = None, **headers: Header
) -> list[EngineLoads]:
    known = {"nine": NINES, "mixed": MIXED, "eye": EYE} | headers
    return engines_of(containers, known, SIZES, memory or {})


def engines_of(
    containers: Mapping[str, Any],
    headers: Mapping[str, Header],
    sizes: Mapping[str, int],
    memory: Mapping[str, int] | None = None,
) -> list[EngineLoads]:
    lab = resolve(spec_of(containers), load_catalog(), Known(headers=headers))
    found = []
    for service in lab.services.values():
        loads = knowledge_of(service.role).loads(service, sizes, (memory or {}).get(service.container, 0))
        found += [] if loads is None else [loads]
    return found


def llama(**options: Any) -> dict[str, Any]:
    return {"services": {"llama_cpp": options}}


@pytest.mark.parametrize(
    ("card", "usable"),
    [
        (EIGHT, 7360 * MIB),
        (Card("a", "nvidia", "x", memory=143_771 * MIB), 142_939 * MIB),
        (Card("a", "amd", "discrete", memory=16 * GIB, shared_memory=32 * GIB), 16 * GIB - 832 * MIB),
        (Card("a", "amd", "part of a processor", memory=512 * MIB, shared_memory=32 * GIB), 32 * GIB - 320 * MIB),
        (Card("a", "intel", "nobody tells"), None),
        (Card("a", "nvidia", "tiny", memory=GIB // 2), 0),
    ],
)
def test_what_is_usable_of_a_card(card: Card, usable: int | None) -> None:
    assert usable_of(card) == usable


def test_engines_of_one_card_are_summed() -> None:
    containers = {"a": llama(model="nine", context=4096), "b": llama(model="mixed"), "c": llama(model="nine")}
    found = engines(containers)
    shared, alone = budgets(found, {"a": EIGHT, "b": EIGHT})
    assert (shared.title, [one.container for one in shared.engines]) == (f"a, b on {EIGHT.title}", ["a", "b"])
    assert (shared.usable, alone.usable, alone.title) == (USABLE, None, "c")
    assert shared.added.total == found[0].total + found[1].total
    assert [one.usable for one in budgets(found, {}, memory=GIB)] == [GIB, GIB, GIB]
    other = Card("0000:02:00.0", "nvidia", "other", memory=24 * GIB)
    assert [one.usable for one in budgets(found, {"a": EIGHT, "b": other, "c": other})] == [
        USABLE,
        24 * GIB - 832 * MIB,
    ]


def test_options_that_keep_things_off_the_card_are_read() -> None:
    def placing(**options: Any) -> Placing:
        return engines({"a": llama(model="mixed", **options)})[0].loads[0].placing

    assert placing() == Placing()
    assert placing(cpu_moe=True) == Placing(None, 4)
    assert placing(n_cpu_moe=2) == Placing(None, 2)
    assert placing(gpu_layers=3) == Placing(3)
    assert placing(gpu_layers="all") == placing(gpu_layers="auto") == Placing()
    assert engines({"a": llama(model="mixed", gpu_layers=0)}) == []
    assert engines({"a": llama(model="mixed", backend="cpu")}) == []


def test_a_server_with_an_encoder_computes_less_at_once_on_a_small_card() -> None:
    def load(memory: int, **options: Any) -> tuple[int, int, int]:
        found = engines({"a": llama(model="nine", mmproj="eye", **options)}, {"a": memory})[0]
        assert found.unread == ()
        (one,) = found.loads
        return one.ubatch, one.encoder, one.image_buffer

    buffer = 4096 * (4304 + 2 * 1152 + 3 * 14**2) * 4
    assert load(8 * GIB) == (64, 800 * MIB, buffer)
    assert load(24 * GIB) == load(0) == (512, 800 * MIB, buffer)
    assert load(8 * GIB, ubatch=128)[0] == 128
    assert load(24 * GIB, batch=256)[0] == 256


def test_of_several_models_the_largest_count_that_lie_there_at_once() -> None:
    def names(**options: Any) -> list[str]:
        return [one.name for one in engines({"a": llama(models=["mixed", "nine"], **options)})[0].loads]

    assert names() == ["nine"]
    assert names(models_max=0) == names(models_max=2) == ["nine", "mixed"]


def test_what_is_guessed_is_said() -> None:
    def unread(name: str, header: Header | None, **options: Any) -> str:
        headers = {} if header is None else {name: header}
        (engine,) = engines_of({"a": llama(model=name, **options)}, headers, {})
        return "; ".join(engine.unread)

    assert "its tensors are not known" in unread("nine", NINES, cpu_moe=True)
    blind = Header("clip", values={"clip.projector_type": "pixtral"})
    found = engines({"a": llama(model="nine", mmproj="eye")}, eye=blind)[0]
    assert found.unread == ("eye: how large images may be is not known; 500 MiB stand for one",)
    parts = Header("qwen3moe", 4, parts=3, values=MIXTURE, tokens=1, tensors={"blk.0.ffn_up_exps.weight": MIB})
    (only,) = engines({"a": llama(model="mixed", cpu_moe=True)}, mixed=parts)
    assert only.unread == ("mixed: only the tensors of its first file are known; all others are counted",)


@pytest.mark.parametrize(
    ("name", "header", "size", "why", "certain"),
    [
        ("nine", NINES, 0, "nine: nobody tells how large its file is", 0),
        ("nine", None, 5000 * MIB, "nine: nothing is known of it but its size", 5000 * MIB),
        ("nine", None, 0, "nine: nothing is known of it", 0),
        ("hub", None, 0, "hub: nothing is known of it but its name: 9B weights of 0.72 B (Q5_K_M), 6,179 MiB", 0),
        ("nine", NOVEL, 5000 * MIB, 'nine: architecture "novel" is not known here; it does not say', 5000 * MIB),
    ],
)
def test_what_no_file_tells_is_unknown_and_no_number_stands_for_it(
    name: str, header: Header | None, size: int, why: str, certain: int
) -> None:
    headers = {} if header is None else {name: header}
    (engine,) = engines_of({"a": llama(model=name)}, headers, {name: size})
    assert engine.unknown.startswith(why)
    (load,) = engine.loads
    assert load.weights == certain
    if header is not NINES:
        assert engine.total == certain


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"extra_arguments": ["--spec-type", "draft-mtp"]}, ["--spec-type"]),
        (
            {"extra_arguments": ["-md", "draft.gguf", "--lora", "a.gguf", "--swa-full"]},
            ["-md", "--lora", "--swa-full"],
        ),
        ({"extra_arguments": ["-ot", "exps=CPU", "--kv_unified"]}, ["-ot", "--kv-unified"]),
        ({"extra_arguments": ["--not-there-yet", "-1"]}, ["--not-there-yet"]),
        ({"extra_arguments": ["--temp=0.5", "--cache-reuse", "256"]}, ["--temp=0.5", "--cache-reuse"]),
        ({"extra_arguments": ["--temp", "-0.5", "--top_k", "40", "--chat-template-kwargs", "{}"]}, []),
        ({"environment": {"LLAMA_ARG_SPEC_TYPE": "draft-mtp", "LLAMA_ARG_TOP_K": "40"}}, ["LLAMA_ARG_SPEC_TYPE"]),
        ({"environment": {"GGML_CUDA_ENABLE_UNIFIED_MEMORY": "1"}}, ["GGML_CUDA_ENABLE_UNIFIED_MEMORY"]),
        ({"environment": {"TZ": "UTC", "GGML_VK_VISIBLE_DEVICES": "1", "LLAMA_LOG_COLORS": "0"}}, []),
    ],
)
def test_what_may_change_the_sum_and_is_not_counted_is_unknown(options: dict[str, Any], names: list[str]) -> None:
    (engine,) = engines({"a": llama(model="nine", **options)})
    where = "among extra_arguments" if "extra_arguments" in options else "in environment"
    assert engine.unknown == "; ".join(f"what {name} {where} changes of it is not counted" for name in names)


def test_of_several_models_the_one_that_nobody_knows_may_be_the_largest() -> None:
    (engine,) = engines({"a": llama(models=["nine", "mixed"], models_max=1)}, mixed=NOVEL)
    assert [load.name for load in engine.loads] == ["nine"]
    assert engine.unknown.startswith('mixed: architecture "novel" is not known here')


def test_a_card_that_is_too_small_is_refused_in_words() -> None:
    (refused,) = refusals(
        [
            Budget(
                f"llama on {EIGHT.title}", (EngineLoads(Address("llama"), (NINE,), ("it was guessed",)),), USABLE, EIGHT
            ),
            Budget("fits", (EngineLoads(Address("other"), (NINE,)),), 8 * GIB),
            Budget("nobody tells", (EngineLoads(Address("third"), (NINE,)),), None),
        ]
    )
    assert refused.message == "Unable to fit llama on NVIDIA GeForce RTX 4060 (0000:01:00.0): 81 MiB too much"
    terms = "weights 5,491 MiB, cache 1,256 MiB, recurrent state 201 MiB, compute buffers 493 MiB"
    assert refused.details.splitlines() == [
        f"{terms}; 7,441 MiB of 7,360 MiB that are usable",
        "largest context of nine that fits: 37,376 tokens (asked for 40,192)",
        "guessed: it was guessed",
    ]
    assert refused.resolution == (
        "Write kv_cache: { k: q8_0, v: q8_0 } (smaller types of the cache). All ways: provision fit. "
        "To start it all the same, write `fit_check: warn` in the file."
    )
