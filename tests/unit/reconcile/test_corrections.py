"""What was measured on a card changes the next verdict on it: in fit's sums, in checks, in the largest contexts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.gpus.cards import Card
from provisioner.lab.opening import Lab, open_lab
from provisioner.loads.measured import measured
from provisioner.loads.terms import CORRECTION
from provisioner.measuring.probe import estimated_contexts
from provisioner.serving.fit import budgets_of, check_fit, remember_use
from provisioner.values.address import Address
from provisioner.values.errors import PreflightError
from provisioner.values.facts import DeviceMemory
from tests.gguf_bytes import gguf_bytes
from tests.lab_files import files_of
from tests.unit.loads.models import QWEN

MIB = 2**20
ADDRESS = Address("llama/llama_cpp")
FILE = """\
name: homelab
hosts: { box: { incus: local } }
models: { nine: { source: "file:nine.gguf", context: 40192 } }
containers: { llama: { gpu: any, services: { llama_cpp: { model: nine } } } }
"""
CARD = Card("0000:01:00.0", "nvidia", "NVIDIA", memory=(1800 + 832) * MIB)
"""One on which the sum of the engine, 1,799.x MiB, just fits."""
MEASURED_FITS = (1800 + 832 - 480) * MIB
"""What it may take there when it was measured, its own context included."""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A lab of one engine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = gguf_bytes({**QWEN, "qwen35.vocab_size": 248_320, "tokenizer.ggml.tokens": ["a"]})
    (tmp_path / "nine.gguf").write_bytes(model)
    (tmp_path / "homelab.yml").write_text(FILE, encoding="utf-8")
    return open_lab(tmp_path / "homelab.yml")


def proved(lab: Lab, card: Card, size: int) -> None:
    """Have a proof measure so many bytes of the engine on the card."""
    remember_use(
        lab, files_of(lab), {"llama": card}, [DeviceMemory(ADDRESS, size)], lambda event: pytest.fail(str(event))
    )


def check(lab: Lab, card: Card) -> None:
    """Hold the lab against the card, as ``plan`` does."""
    check_fit(lab, files_of(lab), {"llama": card}, lambda event: pytest.fail(str(event)))


def test_what_took_more_is_refused_where_its_sum_alone_was_let_in(lab: Lab) -> None:
    check(lab, CARD)
    before = estimated_contexts(lab, files_of(lab), {"llama": CARD})[ADDRESS]
    proved(lab, CARD, MEASURED_FITS)
    check(lab, CARD)
    proved(lab, CARD, MEASURED_FITS + 300 * MIB)
    with pytest.raises(PreflightError) as caught:
        check(lab, CARD)
    assert "300 MiB too much" in caught.value.message
    assert f"{CORRECTION} 65" in caught.value.details
    assert estimated_contexts(lab, files_of(lab), {"llama": CARD})[ADDRESS] < before


def test_what_took_less_is_let_in_where_its_sum_was_refused(lab: Lab) -> None:
    small = replace(CARD, memory=CARD.memory - 100 * MIB)
    with pytest.raises(PreflightError):
        check(lab, small)
    proved(lab, small, MEASURED_FITS - 100 * MIB)
    check(lab, small)
    proved(lab, small, MEASURED_FITS - 99 * MIB)
    with pytest.raises(PreflightError):
        check(lab, small)


def test_another_card_is_judged_by_the_sum(lab: Lab) -> None:
    proved(lab, CARD, 2100 * MIB)
    check(lab, replace(CARD, pci="0000:02:00.0"))
    (budget,) = budgets_of(lab, files_of(lab), {}, memory=1800 * MIB)
    assert budget.missing == 0


def test_the_sum_that_is_kept_is_never_a_corrected_one(lab: Lab) -> None:
    proved(lab, CARD, 2100 * MIB)
    first = measured("homelab")[ADDRESS]
    proved(lab, CARD, 2200 * MIB)
    second = measured("homelab")[ADDRESS]
    assert (second.digest, second.estimate) == (first.digest, first.estimate)
    (budget,) = budgets_of(lab, files_of(lab), {"llama": CARD})
    assert budget.added.total == 2200 * MIB
