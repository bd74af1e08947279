"""Which file of a model a card is best given: the seeds' advice, and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.loads.layers import Placing, shape_of
from provisioner.loads.suggestions import (
    SLOW_PER_S,
    USES,
    Candidate,
    Measured,
    Use,
    bound_per_s,
    measured_of,
    read_bytes,
    speed_of,
    suggested,
    ways_of,
)
from provisioner.loads.terms import MIB, Load, cache_bytes, needed_bytes
from provisioner.loads.weighing import BYTES_PER_WEIGHT, FILE_TYPES
from provisioner.models.header import Header
from tests.unit.loads.models import GEMMA, LLAMA, MIXTURE, NINE, USABLE, mixture_tensors

TYPES = {name: number for number, name in FILE_TYPES.items()}
Q5_MIB = 5491
"""What the seeds' 9B takes at Q5_K_M."""
GB = 10**9


def nine(quant: str) -> Candidate:
    """The seeds' hybrid of 9B as so many bits of it."""
    weights = round(Q5_MIB * MIB * BYTES_PER_WEIGHT[quant] / BYTES_PER_WEIGHT["Q5_K_M"])
    header = Header("qwen35", values={"general.file_type": TYPES[quant]}, parameters=9 * GB)
    return Candidate(f"nine-{quant}.gguf", replace(NINE, weights=weights, slots=1), header)


def mixture() -> Candidate:
    """A mixture of 1,600 MiB, of which a token asks 8 of 128 experts."""
    tensors = mixture_tensors()
    values = {**MIXTURE, "qwen3moe.expert_used_count": 8}
    load = Load("mixture", shape_of(values, vocabulary=100_000), sum(tensors.values()), 32_768, tensors=tensors)
    return Candidate("mixture.gguf", load, Header("qwen3moe", layers=4, experts=128, values=values))


def names(candidates: list[Candidate], usable: int, use: str) -> list[str]:
    ways, _ = suggested(candidates, usable, USES[use])
    return [way.candidate.quant for way in ways]


@pytest.mark.parametrize("use", ["chat", "code"])
def test_a_card_of_8_gb_gets_9b_at_q5(use: str) -> None:
    files = [nine(quant) for quant in ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "F16")]
    ways, left = suggested(files, USABLE, USES[use])
    assert [way.candidate.quant for way in ways] == ["Q5_K_M", "Q4_K_M", "Q6_K"], "Q6_K needs a smaller cache"
    best = ways[0]
    assert (best.keys, best.values, best.experts) == ("f16", "f16", 0)
    assert best.context >= USES[use].context
    assert best.total <= USABLE
    reasons = {one.candidate.quant: one.why for one in left}
    assert reasons["Q2_K"] == reasons["Q3_K_M"] == "below Q4_K_M, and a better one fits"
    assert "a dense model is not split" in reasons["Q8_0"]
    assert set(reasons) == {"Q2_K", "Q3_K_M", "Q8_0", "F16"}


@pytest.mark.parametrize(
    ("label", "bits", "is_below"),
    [
        ("IQ3_XS", 0, True),
        ("UD-Q2_K_XL", 0, True),
        ("", 4.9, False),
        ("IQ4_XS", 0, True),
        ("Q4_K_M", 0, False),
        ("MXFP4", 4.25, True),
        ("MXFP4", 0, False),
        ("Q6_K_L", 6.6, False),
        ("Q5_1", 0, False),
        ("", 3.1, True),
        ("", 0, False),
    ],
)
def test_the_floor_is_known_of_types_that_no_table_has(label: str, bits: float, is_below: bool) -> None:
    """As the head of a file without a type, or with one that is not known here, tells it."""
    tensors = {"blk.0.ffn_up.weight": round(bits * 1000)} if bits else {}
    header = Header("llama", tensors=tensors, parameters=8000 if bits else 0)
    candidate = Candidate("x", NINE, header, label=label)
    assert candidate.is_below_floor == is_below


def test_below_the_floor_is_better_than_nothing_and_said() -> None:
    ways, _ = suggested([nine("Q2_K"), nine("Q4_K_M")], 4500 * MIB, USES["chat"])
    assert [way.candidate.quant for way in ways] == ["Q2_K"]
    assert ways[0].candidate.is_below_floor


def test_a_longer_context_may_cost_bits_of_the_cache_and_then_of_the_weights() -> None:
    files = [nine("Q5_K_M"), nine("Q4_K_M")]
    usable = needed_bytes(replace(nine("Q5_K_M").load, context=20_480))
    (best, other), _ = suggested(files, usable, USES["code"])
    assert (best.candidate.quant, best.keys) == ("Q4_K_M", "f16")
    assert (other.candidate.quant, other.keys) == ("Q5_K_M", "q8_0")
    tight = needed_bytes(replace(nine("Q5_K_M").load, context=8192))
    assert names(files, tight, "code") == ["Q4_K_M", "Q5_K_M"], "the better one is too short for code"


def test_all_that_is_told_fits() -> None:
    for usable in range(3000, 12_000, 500):
        for candidate in (nine("Q4_K_M"), nine("Q8_0"), mixture()):
            for way in ways_of(candidate, usable * MIB):
                placed = replace(candidate.load, keys=way.keys, values=way.values, placing=Placing(None, way.experts))
                assert needed_bytes(replace(placed, context=way.context)) == way.total <= usable * MIB
                assert way.free >= 0


def test_a_mixture_keeps_as_few_experts_off_the_card_as_it_has_to() -> None:
    candidate = mixture()
    whole = needed_bytes(replace(candidate.load, context=24_576))
    (way,), _ = suggested([candidate], whole, USES["chat"])
    assert way.experts == 0
    (way,), _ = suggested([candidate], whole - 200 * MIB, USES["chat"])
    assert way.experts == 1
    assert way.context >= USES["chat"].context
    ways, left = suggested([candidate], 300 * MIB, USES["chat"])
    assert ways == []
    assert "with all experts in the host's memory" in left[0].why


def test_a_dense_model_is_never_split() -> None:
    for usable in range(500, 8000, 500):
        assert all(way.experts == 0 for way in ways_of(nine("Q5_K_M"), usable * MIB))


def test_what_has_to_see_has_a_projector() -> None:
    blind = nine("Q4_K_M")
    ways, left = suggested(
        [blind, replace(blind, name="sees", eye={"source": "file:eye.gguf"})], USABLE, USES["vision"]
    )
    assert [way.candidate.name for way in ways] == ["sees"]
    assert [one.why for one in left] == ["it has no projector, and sees nothing"]


def test_a_file_of_which_too_little_is_known_is_said_and_not_suggested() -> None:
    unknown = Candidate("x", Load("x", shape_of({}), 1000 * MIB, 4096), Header(""))
    ways, left = suggested([unknown], USABLE, USES["chat"])
    assert ways == []
    assert left[0].why


def test_the_order_does_not_depend_on_that_of_the_files() -> None:
    files = [nine(quant) for quant in ("Q4_K_M", "Q5_K_M", "Q6_K")]
    assert names(files, USABLE, "chat") == names(files[::-1], USABLE, "chat")


def eight(**head: Any) -> Candidate:
    """A dense model of 8B at Q4_K_M: 4.9 GB are computed with, 0.3 GB of embeddings are looked up."""
    tensors = {"token_embd.weight": 3 * GB // 10, "output.weight": 4 * GB // 10, "blk.0.ffn_up.weight": 45 * GB // 10}
    load = Load("eight", shape_of(LLAMA, vocabulary=32_000), 52 * GB // 10, 8192, tensors=tensors)
    header = Header("llama", tensors=tensors, values={"general.file_type": TYPES["Q4_K_M"]}, parameters=8 * GB, **head)
    return Candidate("eight.gguf", load, header)


def test_a_dense_model_writes_no_faster_than_its_weights_are_read() -> None:
    (way, *_) = ways_of(eight(), USABLE)
    short = replace(way, context=0)
    assert read_bytes(short) == (4.9 * GB, 0), "embeddings of their own are looked up"
    assert bound_per_s(short, 272 * GB) == pytest.approx(55.5, rel=0.01)
    assert way.context == 8192
    half = 4096 * 131_072
    assert read_bytes(way) == (4.9 * GB + half, 0)
    assert bound_per_s(way, 272 * GB) == pytest.approx(272 * GB / (4.9 * GB + half))
    for unknown in (None, 0):
        assert bound_per_s(way, unknown) is None


def test_tied_embeddings_are_computed_with() -> None:
    candidate = eight()
    tensors = {name: size for name, size in candidate.load.tensors.items() if name != "output.weight"}
    tied = replace(candidate, load=replace(candidate.load, tensors=tensors, weights=48 * GB // 10))
    (way, *_) = ways_of(tied, USABLE)
    assert read_bytes(replace(way, context=0)) == (4.8 * GB, 0)


def test_of_a_model_in_several_files_what_the_first_one_looks_up_is_not_read() -> None:
    candidate = eight(parts=2)
    (way, *_) = ways_of(replace(candidate, load=replace(candidate.load, tensors={})), USABLE)
    assert read_bytes(replace(way, context=0)) == (4.9 * GB, 0)


def test_of_a_window_no_more_than_it_holds_is_read() -> None:
    load = Load("gemma", shape_of(GEMMA, vocabulary=32_000), 1000 * MIB, 32_768)
    (way, *_) = ways_of(Candidate("gemma.gguf", load, Header("gemma3")), USABLE)
    on_card, _ = read_bytes(way) or (0, 0)
    whole = cache_bytes(replace(load, keys=way.keys, values=way.values, context=way.context))
    assert on_card - 1000 * MIB > whole / 2, "a window is full when half of the context is"


def test_a_mixture_reads_only_the_experts_that_a_token_asks_for() -> None:
    candidate = mixture()
    whole = needed_bytes(replace(candidate.load, context=24_576))
    (way,), _ = suggested([candidate], whole, USES["chat"])
    cache = cache_bytes(replace(candidate.load, keys=way.keys, values=way.values, context=way.context // 512 * 256))
    always = 4 * 21 * MIB + 200 * MIB + 8192
    assert read_bytes(way) == (always + 4 * 300 * MIB // 16 + cache, 0)


def test_experts_in_the_hosts_memory_are_read_there() -> None:
    candidate = mixture()
    whole = needed_bytes(replace(candidate.load, context=24_576))
    (way,), _ = suggested([candidate], whole - 200 * MIB, USES["chat"])
    of_card, of_host = read_bytes(way) or (0, 0)
    assert way.experts == 1
    assert of_host == 300 * MIB // 16
    alone = bound_per_s(way, 272 * GB)
    both = bound_per_s(way, 272 * GB, 50 * GB)
    assert alone == pytest.approx(272 * GB / of_card), "the card's part is a bound as well"
    assert both == pytest.approx(1 / (of_card / (272 * GB) + of_host / (50 * GB)))


@pytest.mark.parametrize("lacks", ["share", "tensors"])
def test_of_a_mixture_of_which_too_little_is_known_there_is_no_bound(lacks: str) -> None:
    candidate = mixture()
    if lacks == "share":
        header = replace(candidate.header, values=MIXTURE)
        candidate = replace(candidate, header=header)
    else:
        candidate = replace(candidate, load=replace(candidate.load, tensors={}))
    (way, *_) = ways_of(candidate, USABLE)
    assert read_bytes(way) is None
    assert bound_per_s(way, 272 * GB) is None


def test_what_is_slower_than_people_read_comes_after_what_is_not() -> None:
    files = [nine("Q4_K_M"), nine("Q5_K_M")]
    (five, four), _ = suggested(files, USABLE, USES["chat"])
    assert (five.candidate.quant, four.candidate.quant) == ("Q5_K_M", "Q4_K_M")
    read, _ = read_bytes(five) or (0, 0)
    for tokens_per_s, best in ((5.1, "Q5_K_M"), (4.9, "Q4_K_M"), (1.0, "Q5_K_M")):
        ways, _ = suggested(files, USABLE, USES["chat"], read * tokens_per_s)
        assert ways[0].candidate.quant == best, tokens_per_s
        assert len(ways) == 2
    assert (bound_per_s(five, read * 4.9) or 0) < SLOW_PER_S


def test_of_equals_the_one_that_is_read_faster_comes_first() -> None:
    whole, looked_up = eight(), eight()
    tensors = {**looked_up.load.tensors, "token_embd.weight": 6 * GB // 10, "output.weight": GB // 10}
    looked_up = replace(looked_up, name="z.gguf", load=replace(looked_up.load, tensors=tensors))
    for speed, best in ((272 * GB, "z.gguf"), (None, "eight.gguf")):
        ways, _ = suggested([whole, looked_up], USABLE, Use(4096), speed)
        assert ways[0].candidate.name == best


AT = "2026-11-20T08:00:00+00:00"


def test_what_was_measured_counts_instead_of_the_bound() -> None:
    candidate = eight()
    (way, *_) = ways_of(replace(candidate, measured=(Measured(41.2, AT),)), USABLE)
    assert (way.keys, way.values) == ("f16", "f16")
    assert speed_of(way, 272 * GB) == 41.2
    assert speed_of(way, None) == 41.2, "it needs no table of cards"
    (unmeasured, *_) = ways_of(candidate, USABLE)
    assert measured_of(unmeasured) is None
    assert speed_of(unmeasured, 272 * GB) == bound_per_s(unmeasured, 272 * GB)


def test_what_was_measured_to_be_slow_comes_after_what_was_not() -> None:
    four, five = nine("Q4_K_M"), nine("Q5_K_M")
    slow = replace(five, measured=(Measured(4.2, AT),))
    for files, best in (([four, five], "Q5_K_M"), ([four, slow], "Q4_K_M")):
        ways, _ = suggested(files, USABLE, USES["chat"], 272 * GB)
        assert ways[0].candidate.quant == best
    quick = replace(five, measured=(Measured(9.1, AT),))
    read, _ = read_bytes(ways_of(five, USABLE)[0]) or (0, 0)
    ways, _ = suggested([four, quick], USABLE, USES["chat"], read * 4.9)
    assert ways[0].candidate.quant == "Q5_K_M", "its bound of 4.9 does not count any more"


def test_of_equals_the_one_that_was_measured_to_be_faster_comes_first() -> None:
    one, other = eight(), replace(eight(), name="z.gguf", measured=(Measured(80.0, AT),))
    for speed, best in ((60.0, "z.gguf"), (90.0, "eight.gguf")):
        ways, _ = suggested([replace(one, measured=(Measured(speed, AT),)), other], USABLE, Use(4096), None)
        assert ways[0].candidate.name == best


@pytest.mark.parametrize(
    ("measured", "counts"),
    [
        (Measured(50.0, AT), True),
        (Measured(50.0, AT, gpu_layers=99), True),
        (Measured(50.0, AT, gpu_layers=33), True),
        (Measured(50.0, AT, gpu_layers=32), False),
        (Measured(50.0, AT, gpu_layers=0), False),
        (Measured(50.0, AT, keys="q8_0", values="q8_0"), False),
        (Measured(50.0, AT, experts=7), True),
        (Measured(50.0, AT, is_told=False), True),
    ],
)
def test_only_what_was_served_so_counts(measured: Measured, counts: bool) -> None:
    (way, *_) = ways_of(replace(eight(), measured=(measured,)), USABLE)
    assert way.candidate.load.count == 32
    assert (measured_of(way) is not None) == counts


@pytest.mark.parametrize(
    ("measured", "counts"),
    [
        (Measured(50.0, AT, experts=1), True),
        (Measured(50.0, AT, experts=0), False),
        (Measured(50.0, AT, experts=999), False),
        (Measured(50.0, AT, is_told=False), False),
    ],
)
def test_of_a_mixture_only_what_was_measured_with_its_experts_there_counts(measured: Measured, counts: bool) -> None:
    candidate = mixture()
    whole = needed_bytes(replace(candidate.load, context=24_576))
    (way,), _ = suggested([replace(candidate, measured=(measured,))], whole - 200 * MIB, USES["chat"])
    assert way.experts == 1
    assert (measured_of(way) is not None) == counts


def test_what_was_measured_nearest_to_half_of_the_context_counts_and_then_the_newest() -> None:
    kept = (Measured(50.0, AT, 0), Measured(40.0, AT, 4000), Measured(39.0, AT, 4000), Measured(30.0, AT, 8000))
    (way, *_) = ways_of(replace(eight(), measured=kept), USABLE)
    assert way.context == 8192
    assert speed_of(way, None) == 39.0
    unsure = (Measured(20.0, AT, 4096, is_told=False), Measured(50.0, AT, 0))
    (way, *_) = ways_of(replace(eight(), measured=unsure), USABLE)
    assert speed_of(way, None) == 50.0, "what is known to have been served so comes first"


@pytest.mark.parametrize(
    ("label", "quant"),
    [
        ("Q5_K_M", "Q5_K_M"),
        ("UD-Q4_K_XL", "UD-Q4_K_XL"),
        ("bf16", "bf16"),
        ("MXFP4", "MXFP4"),
        ("hybrid", ""),
        ("", ""),
    ],
)
def test_a_name_that_says_no_type_is_not_taken_for_one(label: str, quant: str) -> None:
    plain = nine("Q5_K_M")
    untold = replace(plain, label=label, header=Header("llama"))
    assert untold.quant == quant


@pytest.mark.parametrize("asked", [-8, 0, 129, 2**40, "8"])
def test_a_mixture_that_says_nonsense_of_its_experts_has_no_bound(asked: Any) -> None:
    odd = mixture()
    values = {**odd.header.values, "qwen3moe.expert_used_count": asked}
    (way, *_) = ways_of(replace(odd, header=replace(odd.header, values=values)), USABLE)
    assert read_bytes(way) is None
    assert bound_per_s(way, 272 * GB) is None
