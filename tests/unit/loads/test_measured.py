"""What engines took of their cards is kept by what decided their sums."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.gpus.cards import Card
from provisioner.loads.budgets import BARE, RESERVED, Budget, budgets, usable_of
from provisioner.loads.engines import EngineLoads, Way
from provisioner.loads.layers import Placing
from provisioner.loads.measured import Measured, corrected, digest_of, measured, remember
from provisioner.loads.terms import CORRECTION, MIB, Load, largest_context
from provisioner.values import paths
from provisioner.values.address import Address
from tests.unit.loads.models import NINE, mixture

ADDRESS = Address("llama/llama_cpp")
NEWER = {"name", "correction", "told", "told_each", "uncounted", "fewer", "unpacks"}
"""Fields that records of older versions did not know, and those that decide nothing."""
CARD = Card("0000:01:00.0", "nvidia", "NVIDIA GeForce RTX 4060", memory=8 * 2**30)


def engine(*loads: Load, address: Address = ADDRESS, **more: Any) -> EngineLoads:
    """A service of these loads."""
    return EngineLoads(address, loads, host="box", **more)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the lab keeps what it has learned."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "provisioner" / "homelab"


def test_what_is_kept_is_nobody_else_s_to_read(folder: Path) -> None:
    assert measured("homelab") == {}
    first, second = engine(NINE), engine(mixture(), address=Address("other/llama_cpp"))
    remember("homelab", first, first.total - 339 * MIB, CARD)
    remember("homelab", second, second.total + 2, CARD)
    assert (folder.stat().st_mode & 0o777, (folder / "fit.json").stat().st_mode & 0o777) == (0o700, 0o600)
    assert [one.name for one in folder.iterdir()] == ["fit.json"]
    found = measured("homelab")
    assert (found[ADDRESS].estimate, found[ADDRESS].measured) == (first.total, first.total - 339 * MIB)
    assert found[ADDRESS].error == 339 * MIB
    assert found["other/llama_cpp"].error == -2
    assert measured("another") == {}


def test_a_new_run_takes_the_place_of_the_old_one() -> None:
    remember("homelab", engine(NINE), 2, CARD)
    remember("homelab", engine(NINE), 4, CARD)
    assert (measured("homelab")[ADDRESS].measured, len(measured("homelab"))) == (4, 1)


@pytest.mark.parametrize(
    "other",
    [
        replace(NINE, context=4096),
        replace(NINE, keys="q8_0"),
        replace(NINE, weights=1),
        replace(NINE, placing=Placing(3)),
        replace(NINE, cache_on_card=False),
        replace(NINE, shape=replace(NINE.shape, layers=NINE.shape.layers[:4])),
    ],
)
def test_another_sum_is_another_measurement(other: Load) -> None:
    remember("homelab", engine(NINE), 2, CARD)
    found = measured("homelab")[ADDRESS]
    assert found.is_of([NINE])
    assert found.is_of([replace(NINE, name="called otherwise")])
    assert found.is_of([replace(NINE, correction=5)])
    assert not found.is_of([other])
    assert not found.is_of([NINE, NINE])
    assert digest_of([mixture()]) == digest_of([mixture()])


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", '{"llama/llama_cpp": 3}', '{"llama/llama_cpp": {"digest": 1}}']
)
def test_what_cannot_be_read_is_measured_again(folder: Path, content: str) -> None:
    folder.mkdir(parents=True)
    (folder / "fit.json").write_text(content)
    assert measured("homelab") == {}
    remember("homelab", engine(NINE), 2, CARD)
    assert measured("homelab")[ADDRESS].measured == 2


def on_card(one: EngineLoads, took: int, card: Card = CARD) -> Budget:
    """The card with the engine, which took so many bytes more than its sum when it was measured on ``CARD``."""
    remember("homelab", one, one.total + took, CARD)
    record = measured("homelab")[one.address]
    (budget,) = budgets([corrected(one, record, card)], {"llama": card})
    return budget


def card_of(size: int) -> Card:
    """The card with so much usable memory."""
    return replace(CARD, uuid="GPU-1", memory=size + 832 * MIB)


def corrected_on(card: Card, one: EngineLoads, took: int) -> Budget:
    """The card with an engine that was measured on that very card."""
    remember("homelab", one, one.total + took, card)
    (budget,) = budgets([corrected(one, measured("homelab")[one.address], card)], {"llama": card})
    return budget


CONTEXT = RESERVED - BARE
"""What is reserved for an engine's own context, which a measurement holds."""


def test_an_engine_that_took_more_than_its_sum_is_refused_where_the_sum_alone_would_fit() -> None:
    one = engine(NINE)
    card = card_of(one.total + 299 * MIB)
    (alone,) = budgets([one], {"llama": card})
    budget = corrected_on(card, one, CONTEXT + 300 * MIB)
    assert (alone.missing, budget.missing) == (0, MIB)
    assert [term.bytes for term in budget.added.terms if term.name == CORRECTION] == [CONTEXT + 300 * MIB]
    assert budget.added.total == one.total + CONTEXT + 300 * MIB


def test_what_ran_is_not_refused_by_the_context_that_was_measured_with_it() -> None:
    one = engine(NINE)
    card = card_of(one.total)
    assert corrected_on(card, one, CONTEXT).missing == 0
    assert corrected_on(card, one, CONTEXT + MIB).missing == MIB


def test_the_h100_that_ran_is_given_what_it_took() -> None:
    """An engine took 697 MiB beside its sum, and the card kept 480 for itself (docs/gpu.md)."""
    one = engine(NINE)
    card = replace(CARD, uuid="GPU-1", memory=one.total + (697 + 480) * MIB)
    assert corrected_on(card, one, 697 * MIB).missing == 0
    less = replace(card, memory=card.memory - MIB)
    assert corrected_on(less, one, 697 * MIB).missing == MIB
    (alone,) = budgets([one], {"llama": less})
    assert alone.missing == 0  # by its sum alone too much was promised


def test_one_that_was_not_measured_keeps_room_for_its_context() -> None:
    one = engine(NINE)
    other = engine(NINE, address=Address("llama/second"))
    remember("homelab", one, one.total, CARD)
    measured_one = corrected(one, measured("homelab")[ADDRESS], CARD)
    assert [found.reserved for found in budgets([measured_one], {"llama": CARD})] == [BARE]
    assert [found.reserved for found in budgets([measured_one, other], {"llama": CARD})] == [RESERVED]
    assert [found.reserved for found in budgets([other], {"llama": CARD})] == [RESERVED]


def test_an_engine_that_took_less_is_let_in() -> None:
    one = engine(NINE)
    card = card_of(one.total - 100 * MIB)
    (alone,) = budgets([one], {"llama": card})
    assert alone.missing == 100 * MIB
    assert corrected_on(card, one, CONTEXT - 100 * MIB).missing == 0
    assert corrected_on(card, one, CONTEXT - 99 * MIB).missing == MIB
    assert corrected_on(card, one, -100 * MIB).usable == usable_of(card, BARE) == card.memory - BARE


def test_the_largest_context_is_that_of_the_corrected_sum() -> None:
    one = engine(NINE)
    card = card_of(one.total)
    sizes: list[int] = []
    for took in (-300 * MIB, 0, 300 * MIB):
        budget = corrected_on(card, one, CONTEXT + took)
        sizes.append(largest_context(budget.loads[0], budget.free_for(budget.loads[0])))
    assert sizes[0] > sizes[1] >= NINE.context > sizes[2]
    free = one.total - 300 * MIB
    assert sizes[2] == largest_context(NINE, free)


@pytest.mark.parametrize(
    "other",
    [
        replace(CARD, pci="0000:02:00.0"),
        replace(CARD, name="another"),
        replace(CARD, memory=2**30),
        replace(CARD, uuid="GPU-1"),
    ],
)
def test_what_was_measured_on_another_card_corrects_nothing(other: Card) -> None:
    one = engine(NINE)
    assert on_card(one, 300 * MIB).loads[0].correction == 300 * MIB
    assert on_card(one, 300 * MIB, other).loads[0].correction == 0


def test_the_same_place_on_another_host_is_another_card() -> None:
    one = engine(NINE)
    remember("homelab", one, one.total + 1, CARD)
    record = measured("homelab")[ADDRESS]
    assert corrected(replace(one, host="other"), record, CARD).total == one.total
    assert corrected(one, record, CARD).total == one.total + 1


def test_what_was_measured_with_other_options_corrects_nothing() -> None:
    remember("homelab", engine(NINE), 1, CARD)
    other = engine(replace(NINE, context=4096))
    assert corrected(other, measured("homelab")[ADDRESS], CARD) is other
    assert corrected(other, None, CARD) is other
    assert corrected(other, measured("homelab")[ADDRESS], None) is other


def test_what_an_older_version_wrote_corrects_nothing(folder: Path) -> None:
    one = engine(NINE)
    remember("homelab", one, one.total + 1, CARD)
    content = json.loads((folder / "fit.json").read_text())
    del content[ADDRESS]["card"]
    (folder / "fit.json").write_text(json.dumps(content))
    record = measured("homelab")[ADDRESS]
    assert record.is_of(one.loads)
    assert corrected(one, record, CARD) is one


@pytest.mark.parametrize(
    "one",
    [
        engine(replace(NINE, adapts=True)),
        engine(replace(NINE, image_buffer=500 * MIB)),
        engine(NINE, mixture()),
        engine(NINE, grows=True),
    ],
)
def test_what_may_take_more_later_is_corrected_upwards_alone(one: EngineLoads) -> None:
    less = Measured(digest_of(one.loads), one.total, one.total - MIB, f"box {CARD.pci} {CARD.name} {CARD.memory}")
    assert corrected(one, less, CARD) is one
    more = replace(less, measured=one.total + MIB)
    assert corrected(one, more, CARD).total == one.total + MIB


def test_what_was_unknown_is_known_once_it_was_measured_with_the_same_words() -> None:
    drafting = replace(NINE, uncounted=("--spec-type", "draft-mtp"))
    one = engine(drafting, unknown="what --spec-type changes of it is not counted")
    taken = one.total + 900 * MIB
    remember("homelab", one, taken, CARD)
    record = measured("homelab")[ADDRESS]
    known = corrected(one, record, CARD)
    assert (known.unknown, known.total) == ("", taken)
    for other in (NINE, replace(NINE, uncounted=("--swa-full",))):
        assert corrected(engine(other, unknown="x"), record, CARD).unknown == "x"
    assert corrected(replace(one, grows=True), record, CARD).unknown, "an image takes more than was measured"


def test_records_of_versions_that_knew_no_free_words_are_of_the_same_loads() -> None:
    content = {name: value for name, value in asdict(NINE).items() if name not in NEWER}
    assert digest_of([NINE]) == hashlib.sha256(json.dumps([content], sort_keys=True).encode()).hexdigest()


def test_what_is_left_free_is_no_part_of_what_was_measured() -> None:
    one = engine(replace(NINE, kept_free=1024 * MIB))
    took = one.total - 1024 * MIB + 10
    remember("homelab", one, took, CARD)
    found = corrected(one, measured("homelab")[ADDRESS], CARD)
    assert (found.loads[0].correction, found.total) == (10, one.total + 10)


def test_what_the_engine_itself_advises_is_corrected_too() -> None:
    one = engine(NINE, ways=(Way("less", "context: 4096", (replace(NINE, context=4096),)), Way("another model", "")))
    remember("homelab", one, one.total + 5, CARD)
    found = corrected(one, measured("homelab")[ADDRESS], CARD)
    assert found.ways is not None
    assert [load.correction for way in found.ways for load in way.loads] == [5]


def test_a_share_of_the_card_stays_what_it_is_and_the_correction_counts_beside_it() -> None:
    one = engine(replace(NINE, share=NINE.weights + 4096 * MIB, card=CARD.memory))
    remember("homelab", one, one.total + 100 * MIB, CARD)
    found = corrected(one, measured("homelab")[ADDRESS], CARD)
    assert found.total == one.total + 100 * MIB
    (load,) = found.loads
    assert largest_context(load, found.total) == largest_context(one.loads[0], one.total)


def test_without_a_variable_it_lies_below_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    assert paths.state("homelab") == Path.home() / ".local" / "state" / "provisioner" / "homelab"
