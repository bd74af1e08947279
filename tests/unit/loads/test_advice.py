"""What is advised: all on the card, else all on the CPU, and what lies between only where it pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.loads.advice import Advice, advice_on
from provisioner.loads.budgets import Budget
from provisioner.loads.engines import EngineLoads
from provisioner.loads.layers import Attention, Placing, shape_of
from provisioner.loads.terms import MIB, Load, total_of
from provisioner.models.header import Header
from provisioner.values.address import Address
from tests.unit.loads.models import NINE, USABLE, mixture


def advised(load: Load, usable: int | None, **values: Any) -> tuple[Advice, ...]:
    header = Header("a", values={name.replace("__", "."): one for name, one in values.items()})
    return advice_on(Budget("llama", (EngineLoads(Address("llama"), (load,), headers={load.name: header}),), usable))


def writes(found: tuple[Advice, ...]) -> dict[str, tuple[float | None, bool | None]]:
    """What each advice that is an option makes of the card, in MiB."""
    return {one.write: (one.total and one.total / MIB, one.fits) for one in found if one.write}


def test_what_fits_is_left_where_it_is() -> None:
    (one,) = advised(replace(NINE, context=16_384), USABLE)
    assert one.text == "all of it lies in the card's memory, the fastest place: leave it there"


def test_a_hybrid_of_9b_on_8_gib_gets_every_way_with_its_figure() -> None:
    found = advised(NINE, USABLE, general__file_type=17)
    assert writes(found) == {
        "kv_cache: { k: q8_0, v: q8_0 }": (6852.25, True),
        "kv_cache: { k: q8_0, v: q4_0 }": (6695.25, True),
        "context: 37376": (7353, True),
        "kv_offload: false": (5984, True),
        "gpu_layers: 0": (0, True),
    }
    (smaller,) = [one for one in found if one.text.startswith("the same model at Q4_K_M")]
    assert smaller.text == "the same model at Q4_K_M, about 4,804 MiB"
    assert (smaller.total, smaller.fits) == (7441 * MIB - round(5491 * MIB * (1 - 0.63 / 0.72)), True)


def test_keys_never_go_below_q8_0() -> None:
    found = advised(replace(NINE, keys="q8_0", values="q8_0"), 6000 * MIB)
    assert [one for one in writes(found) if "k:" in one and "context" not in one] == ["kv_cache: { k: q8_0, v: q4_0 }"]
    assert not any("k: q4" in one for one in writes(found))
    tiny_keys = advised(replace(NINE, keys="q4_0", values="f16"), 6000 * MIB)
    assert not any("kv_cache" in one for one in writes(tiny_keys))


@pytest.mark.parametrize(
    ("usable", "write", "total", "fits"),
    [
        (1800, "n_cpu_moe: 1", 1616.76, True),
        (1600, "n_cpu_moe: 2", 1316.76, True),
        (1300, "n_cpu_moe: 3", 1016.76, True),
        (1000, "cpu_moe: true", 716.76, True),
        (700, "cpu_moe: true", 716.76, False),
    ],
)
def test_a_mixture_gives_up_as_few_experts_as_it_must(usable: int, write: str, total: float, fits: bool) -> None:
    found = writes(advised(mixture(), usable * MIB))
    ((way, (size, enough)),) = ((name, one) for name, one in found.items() if "moe" in name)
    assert (way, enough) == (write, fits)
    assert size == pytest.approx(total, abs=0.01)


def test_a_dense_model_is_never_split() -> None:
    load = replace(NINE, placing=Placing(16))
    fits = advised(load, 8 * 2**30)
    assert writes(fits) == {"gpu_layers: all": (7441, True)}
    assert "never split layers between card and CPU" in fits[0].text
    does_not = writes(advised(load, 7000 * MIB))
    assert does_not["gpu_layers: 0"] == (None, False)
    assert not any("gpu_layers: 1" in one for one in does_not)


def test_experts_that_have_room_come_back() -> None:
    (one,) = advised(mixture(placing=Placing(cpu_experts=4)), 8 * 2**30)
    assert (one.text, one.fits) == ("all of it would fit: leave out cpu_moe, n_cpu_moe and kv_offload", True)


def test_an_engine_that_decides_itself_is_told_to_use_the_card_it_has() -> None:
    tight = advised(replace(NINE, adapts=True), 7500 * MIB)
    assert writes(tight) == {"gpu_layers: all": (7441, True)}
    assert "keeps 1,024 MiB free" in tight[0].text
    assert writes(advised(replace(NINE, adapts=True), (7441 + 1024) * MIB)) == {}
    assert writes(advised(NINE, 7500 * MIB)) == {}


def test_the_floor_of_quality_is_q4_k_m() -> None:
    below = advised(replace(NINE, context=4096), USABLE, general__file_type=12)
    assert any(one.text.startswith("Q3_K_M is below Q4_K_M, the floor of quality") for one in below)
    at_it = advised(NINE, USABLE, general__file_type=15)
    assert any("a smaller model at Q4_K_M: below that quality breaks" in one.text for one in at_it)
    unknown = advised(NINE, USABLE)
    assert any("a smaller model, or Q4_K_M" in one.text for one in unknown)


def test_no_types_of_values_are_advised_where_none_are_kept() -> None:
    latent = replace(
        NINE, shape=replace(NINE.shape, layers=tuple(Attention(576, 0) for _ in range(32))), context=400_000
    )
    written = [one.write for one in advised(latent, USABLE) if "kv_cache" in one.write]
    assert written[0] == "kv_cache: { k: q8_0 }"
    assert not any("v:" in one for one in written)


def test_nothing_is_advised_for_a_card_that_is_not_known() -> None:
    assert advised(NINE, None) == ()


def test_a_guessed_model_gets_no_figures_for_its_context() -> None:
    load = Load("a", shape_of({}), 8000 * MIB, 40_192)
    assert set(writes(advised(load, USABLE))) == {"gpu_layers: 0"}


def test_advice_names_the_model_where_several_share_a_card() -> None:
    other = replace(NINE, name="other", context=4096)
    engines = (EngineLoads(Address("a"), (NINE,)), EngineLoads(Address("b"), (other,)))
    found = advice_on(Budget("a, b", engines, 12_000 * MIB))
    assert {one.text.partition(":")[0] for one in found} == {"nine", "other"}
    (away,) = [one for one in found if one.write == "gpu_layers: 0" and one.text.startswith("nine")]
    assert away.total == total_of(other)
