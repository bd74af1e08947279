"""Engines are held against their cards before anything is made, and what they took is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.gpus.cards import Card
from provisioner.lab.opening import Lab, open_lab
from provisioner.loads.measured import measured
from provisioner.loads.terms import needed_bytes
from provisioner.measuring.probe import BESIDE_WEIGHTS, LEAST_LEFT, estimated_contexts
from provisioner.models.tiny_hf import tiny_folder
from provisioner.report.messages import diagnostic_text, error_text
from provisioner.serving.fit import budgets_of, check_fit, remember_use
from provisioner.values.address import Address
from provisioner.values.errors import ExitCode, PreflightError
from provisioner.values.events import Diagnostic, Event
from provisioner.values.facts import ContainerFact, DeviceMemory, UnitState
from tests.gguf_bytes import gguf_bytes
from tests.lab_files import files_of
from tests.unit.loads.models import QWEN

MIB = 2**20
FILE = """\
name: homelab
hosts: { box: { incus: local } }
models: { nine: { source: "file:nine.gguf", context: 40192 } }
containers:
  llama: { services: { llama_cpp: { model: nine } } }
  other: { services: { llama_cpp: { model: nine, context: 8192 } } }
"""
SMALL = Card("0000:01:00.0", "nvidia", "NVIDIA small", memory=2 * 2**30)
LARGE = Card("0000:02:00.0", "nvidia", "NVIDIA large", memory=24 * 2**30)
BLIND = Card("0000:03:00.0", "intel", "Intel of no size")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab of two engines that need 1,799 and 799 MiB beside their weights."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = gguf_bytes({**QWEN, "qwen35.vocab_size": 248_320, "tokenizer.ggml.tokens": ["a"]})
    (tmp_path / "nine.gguf").write_bytes(model)
    path = tmp_path / "homelab.yml"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.fixture
def lab(file: Path) -> Lab:
    """It, opened."""
    return open_lab(file)


def said(lab: Lab, cards: dict[str, Card], *targets: str) -> list[Diagnostic]:
    events: list[Event] = []
    check_fit(lab, files_of(lab), cards, events.append, targets)
    assert all(isinstance(one, Diagnostic) for one in events)
    return [one for one in events if isinstance(one, Diagnostic)]


def test_without_a_card_nothing_is_looked_at(lab: Lab) -> None:
    assert said(lab, {}) == []


TINY = Card("0000:04:00.0", "nvidia", "NVIDIA tiny", memory=2**30)
BOTH = Card("0000:01:00.0", "nvidia", "NVIDIA", memory=(2000 + 832) * MIB)
TOO_SMALL = {
    "one engine": {"llama": SMALL},
    "two that fit alone": {"llama": BOTH, "other": BOTH},
    "two cards": {"llama": SMALL, "other": TINY},
}


@pytest.mark.parametrize("cards", TOO_SMALL.values(), ids=TOO_SMALL)
def test_what_does_not_fit_is_refused_by_exit_code_4(
    lab: Lab, cards: dict[str, Card], snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(PreflightError) as caught:
        said(lab, cards)
    assert caught.value.exit_code == ExitCode.REFUSED
    assert error_text(caught.value) == snapshot


def test_what_only_warns(lab: Lab, file: Path, snapshot: SnapshotAssertion) -> None:
    file.write_text(f"fit_check: warn\n{FILE}", encoding="utf-8")
    warnings = said(lab, {"llama": BLIND}) + said(open_lab(file), {"llama": SMALL})
    assert "\n".join(map(diagnostic_text, warnings)) == snapshot


def test_what_fits_is_not_spoken_of_alone_or_together(lab: Lab) -> None:
    assert said(lab, {"llama": BOTH}) == said(lab, {"other": BOTH}) == []
    assert said(lab, {"llama": LARGE, "other": LARGE}) == []


def test_the_largest_contexts_are_those_that_a_refusal_names(lab: Lab) -> None:
    found = estimated_contexts(lab, files_of(lab), {"llama": SMALL})
    assert found[Address("llama/llama_cpp")] == (21_504,)
    assert Address("llama/llama_cpp") not in estimated_contexts(lab, files_of(lab), {"llama": BLIND})


def test_without_a_card_the_containers_memory_limits_a_context(file: Path) -> None:
    values = {**QWEN, "qwen35.vocab_size": 248_320, "tokenizer.ggml.tokens": ["a"]}
    (file.parent / "nine.gguf").write_bytes(gguf_bytes(values, {"output.weight": (4 * MIB,)}))
    lab = of_memory(file, "1GiB")
    with_weights, without = estimated_contexts(lab, files_of(lab), {})[Address("llama/llama_cpp")]
    (engine,) = [
        one for budget in budgets_of(lab, files_of(lab), {}) for one in budget.engines if one.container == "llama"
    ]
    (load,) = engine.loads
    free = 2**30 - LEAST_LEFT - BESIDE_WEIGHTS
    next_larger = replace(load, context=with_weights + 256)
    assert needed_bytes(replace(load, context=with_weights)) <= free < needed_bytes(next_larger)
    assert needed_bytes(replace(load, context=without)) <= free + load.weights
    assert with_weights < without


def test_where_nothing_is_left_for_a_context_none_is_estimated(file: Path) -> None:
    lab = of_memory(file, "150MiB")
    assert Address("llama/llama_cpp") not in estimated_contexts(lab, files_of(lab), {})


def of_memory(file: Path, memory: str) -> Lab:
    """The lab whose container ``llama`` has so much."""
    text = FILE.replace("llama: { services:", f"llama: {{ memory: {memory}, services:")
    file.write_text(text, encoding="utf-8")
    return open_lab(file)


def test_a_limited_run_is_refused_for_its_own_cards_alone(lab: Lab) -> None:
    cards = {"llama": SMALL, "other": LARGE}
    assert said(lab, cards, "other") == []
    with pytest.raises(PreflightError):
        said(lab, cards, "llama")
    with pytest.raises(PreflightError):
        said(lab, {"llama": SMALL, "other": SMALL}, "other")


def test_what_a_proof_measured_is_kept_with_the_sum(lab: Lab) -> None:
    facts: list[ContainerFact] = [
        DeviceMemory(Address("llama/llama_cpp"), 1700 * MIB),
        UnitState(Address("other/llama_cpp"), "active"),
        DeviceMemory(Address("gone/llama_cpp"), 1),
    ]
    remember_use(lab, files_of(lab), {"llama": LARGE}, facts, lambda event: pytest.fail(str(event)))
    (address, found), *others = measured("homelab").items()
    engine = budgets_of(lab, files_of(lab), {"llama": LARGE})[0].engines[0]
    assert (address, others) == ("llama/llama_cpp", [])
    assert (found.measured, found.estimate) == (1700 * MIB, engine.total)
    assert found.is_of(engine.loads)


def test_what_cannot_be_kept_is_said(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    events: list[Event] = []
    remember_use(lab, files_of(lab), {}, [DeviceMemory(Address("llama/llama_cpp"), 1)], events.append)
    (warning,) = events
    assert isinstance(warning, Diagnostic)
    assert "takes of its card is not kept" in warning.message
    assert "state/provisioner/homelab writable" in warning.resolution


FOLDER = """\
name: homelab
hosts: { box: { incus: local } }
models: { small: { source: builtin:tiny-hf } }
containers:
  hub: { gpu: any, services: { vllm: { model: small, gpu_memory_utilization: 0.5, api_key: !secret key } } }
"""


def test_of_a_folder_the_weights_count_and_what_its_configuration_says(file: Path) -> None:
    file.write_text(FOLDER)
    lab = open_lab(file, needs="none")
    (budget,) = budgets_of(lab, files_of(lab), {"hub": LARGE})
    (load,) = budget.loads
    assert load.weights == len(tiny_folder()["model.safetensors"])
    assert (load.context, len(load.shape.layers)) == (4096, 2)
    assert budget.added.total == LARGE.memory // 2
    assert not budget.unknown


def in_turns(file: Path, *groups: str) -> Lab:
    """The lab with a third engine like the second, whose engines take turns in these groups.

    All of them have a queue that outlasts the turns of two others.
    """
    third = "  third: { services: { llama_cpp: { model: nine, context: 8192 } } }\n"
    share = f", share: [{', '.join(groups)}], share_key: !secret key" if groups else ""
    text = FILE.replace("incus: local", f"incus: local{share}") + third
    file.write_text(text.replace("model: nine", "model: nine, queue: 5m"), encoding="utf-8")
    return open_lab(file, needs="none")


GROUP = "[llama/llama_cpp, other/llama_cpp]"


@pytest.mark.parametrize(
    ("groups", "usable", "missing"),
    [
        ((), 3397, 1),  # 1,800 and twice 799 MiB, rounded up
        ((), 3398, 0),
        ((GROUP,), 2598, 1),  # of the group the first, and the third on top
        ((GROUP,), 2599, 0),
        (("[llama/llama_cpp, other/llama_cpp, third/llama_cpp]",), 1799, 1),
        (("[llama/llama_cpp, other/llama_cpp, third/llama_cpp]",), 1800, 0),
    ],
)
def test_of_those_who_take_turns_the_largest_counts(
    file: Path, groups: tuple[str, ...], usable: int, missing: int
) -> None:
    lab = in_turns(file, *groups)
    card = Card("0000:01:00.0", "nvidia", "NVIDIA", memory=(usable + 832) * MIB)
    cards = dict.fromkeys(("llama", "other", "third"), card)
    (budget,) = budgets_of(lab, files_of(lab), cards)
    assert -(-budget.missing // MIB) == missing
    if not missing:
        assert said(lab, cards) == []
        return
    with pytest.raises(PreflightError) as caught:
        said(lab, cards)
    assert ("in turns: the largest counts" in caught.value.details) == bool(groups)


def test_a_member_may_have_what_the_others_leave_at_its_turn(file: Path) -> None:
    card = Card("0000:01:00.0", "nvidia", "NVIDIA", memory=(2599 + 832) * MIB)
    lab = in_turns(file, GROUP)
    (budget,) = budgets_of(lab, files_of(lab), dict.fromkeys(("llama", "other", "third"), card))
    llama, other, third = budget.engines
    assert budget.uncounted == (other,)
    (own,), (second,), (alone,) = llama.loads, other.loads, third.loads
    left = 2599 * MIB - third.total
    assert (budget.free_for(own), budget.free_for(second)) == (left, left)
    assert budget.free_for(alone) == 2599 * MIB - llama.total
    assert budget.total_with(second, 0) == budget.added.total == llama.total + third.total
    assert budget.total_with(own, 0) == other.total + third.total
