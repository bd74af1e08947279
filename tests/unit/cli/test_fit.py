"""``fit``: what engines need on a card, from their models' own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner.fit.measured import remember
from provisioner.fit.terms import MIB
from provisioner.tiny_model import EMBEDDING, TOKENS, ensure_tiny_model, tiny_model
from tests.gguf_bytes import gguf_bytes
from tests.unit.cli.conftest import World
from tests.unit.fit.models import QWEN

FILE = """\
name: homelab
hosts: { box: { incus: local } }
models: { nine: { source: "file:nine.gguf", context: 40192 } }
containers:
  llama: { services: { llama_cpp: { model: nine, parallel: 4, OPTIONS } } }
"""
TINY = """\
name: homelab
hosts: { box: { incus: local } }
models: { tiny: { source: "SOURCE" } }
containers:
  llama: { services: { llama_cpp: { model: tiny, context: 1000, parallel: 2 } } }
"""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def nine(lab: Path) -> Path:
    """The lab's file with a hybrid of 9B whose weights are left out."""
    tokens = [f"t{number}" for number in range(5000)]
    model = gguf_bytes({**QWEN, "qwen35.vocab_size": 248_320, "tokenizer.ggml.tokens": tokens})
    (lab.parent / "nine.gguf").write_bytes(model)
    lab.write_text(FILE.replace(", OPTIONS", ""), encoding="utf-8")
    return lab


def card(world: World, *arguments: str) -> dict[str, Any]:
    """The first card of the answer."""
    (result,) = world.command("fit", *arguments, "--json").of("result")
    return dict(result["cards"][0])


def test_every_term_is_told(world: World, nine: Path) -> None:
    answer = world.command("fit", str(nine))
    assert answer.code == 0, answer.err
    told = [line.split() for line in answer.out.splitlines()]
    assert ["cache", "1,280", "MiB"] in told  # 40,192 tokens for four slots are four times 10,240
    assert ["recurrent", "state", "201", "MiB"] in told
    assert ["compute", "buffers", "493", "MiB"] in told
    assert "largest" not in answer.out
    assert "advice" not in answer.out


def test_what_fits_is_told_with_the_largest_context(world: World, nine: Path) -> None:
    answer = world.command("fit", str(nine), "--memory", "2GiB")
    assert answer.code == 0
    assert "of 2,048 MiB usable: it fits" in answer.out
    assert "largest context of nine: 43,008 tokens (asked for 40,192)" in answer.out
    assert "advice: gpu_layers: all (left to itself the engine keeps 1,024 MiB free" in answer.out
    answer = world.command("fit", str(nine), "--memory", "4GiB")
    assert "advice: all of it lies in the card's memory, the fastest place: leave it there" in answer.out


def test_what_does_not_fit_is_refused_with_advice(world: World, nine: Path) -> None:
    answer = world.command("fit", str(nine), "--memory", "1GiB")
    assert answer.code == 4
    assert "of 1,024 MiB usable: 951 MiB too much" in answer.out
    assert "advice: context: 19456, kv_cache: { k: q8_0, v: q8_0 }" in answer.out
    assert "advice: gpu_layers: 0 (last: all of it on the CPU" in answer.out
    found = card(world, str(nine), "--memory", "1GiB")
    assert found["total"] - found["missing"] == found["usable"] == 2**30
    assert found["contexts"] == [{"model": "nine", "largest": 10_240, "asked": 40_192}]
    assert all(one["total"] <= 2**30 for one in found["advice"] if one["fits"])


@pytest.mark.parametrize("source", ["file:tiny.gguf", "builtin:tiny"])
def test_a_real_model_is_added_up_to_the_byte(world: World, lab: Path, source: str) -> None:
    ensure_tiny_model(lab.parent)
    lab.write_text(TINY.replace("SOURCE", source), encoding="utf-8")
    embeddings, whole = TOKENS * EMBEDDING * 4, len(tiny_model())
    found = card(world, str(lab), "--memory", "1MiB")
    terms = {one["name"]: one["bytes"] for one in found["terms"]}
    assert terms["cache"] == 2 * 512 * 2 * (64 + 64) * 2
    assert terms["compute buffers"] == (TOKENS + EMBEDDING) * 512 * 4
    if source == "builtin:tiny":  # its list of tensors is not looked at
        assert terms["weights"] == whole
    else:
        assert 0 < whole - embeddings - terms["weights"] < 20_000  # the head
    assert found["missing"] == sum(terms.values()) - MIB > 0
    answer = world.command("fit", str(lab), "--memory", "1MiB")
    assert answer.code == 4
    assert "too much" in answer.out
    assert world.command("fit", str(lab), "--memory", "8GiB").code == 0


def test_options_that_move_things_off_the_card_take_less(world: World, nine: Path) -> None:
    def total(options: str) -> int:
        nine.write_text(FILE.replace("OPTIONS", options), encoding="utf-8")
        return int(card(world, str(nine))["total"])

    assert total("port: 8080") > total("kv_cache: { k: q8_0, v: q8_0 }") > total("kv_offload: false")


def test_what_computes_on_the_cpu_is_no_matter_of_a_card(world: World, nine: Path) -> None:
    nine.write_text(FILE.replace("OPTIONS", "gpu_layers: 0"), encoding="utf-8")
    answer = world.command("fit", str(nine), "--memory", "1MiB")
    assert (answer.code, answer.out.strip()) == (0, "No engine of the file computes on a card.")


def test_an_architecture_that_is_not_known_falls_back_and_says_so(world: World, nine: Path) -> None:
    (nine.parent / "nine.gguf").write_bytes(gguf_bytes({"general.architecture": "no\x1bvel"}))
    answer = world.command("fit", str(nine), "--memory", "8GiB")
    assert answer.code == 0
    assert 'guessed: nine: architecture "no\\x1bvel" is not known here' in answer.out
    assert "36% of its weights, at least 500 MiB, stand for cache, state and buffers" in answer.out
    assert "largest context of nine: not known" in answer.out
    assert ["margin", "500", "MiB"] in [line.split() for line in answer.out.splitlines()]


def test_a_broken_head_is_told_without_a_traceback(world: World, nine: Path) -> None:
    model = nine.parent / "nine.gguf"
    model.write_bytes(model.read_bytes()[:1000])
    answer = world.command("fit", str(nine))
    assert answer.code == 64
    assert "is no usable GGUF file: it ends after 1000 bytes, in the middle of its head" in answer.err
    assert "Traceback" not in answer.err


def test_what_was_measured_stands_beside_the_sum_until_an_option_changes(world: World, nine: Path) -> None:
    from provisioner.cli.session import Session
    from provisioner.workflow.fitting import budgets_of

    (budget,) = budgets_of(Session().open_lab(nine), {})
    engine = budget.engines[0]
    remember("homelab", engine.address, engine.loads, engine.total, 2000 * MIB)
    answer = world.command("fit", str(nine))
    assert "measured of llama/llama_cpp: 2,000 MiB, 26 MiB more than the sum of then, 1,975 MiB (1.3%)" in answer.out
    (service,) = card(world, str(nine))["services"]
    assert (service["measured"], service["error"]) == (2000 * MIB, engine.total - 2000 * MIB)
    nine.write_text(FILE.replace("OPTIONS", "ubatch: 256"), encoding="utf-8")
    assert "measured" not in world.command("fit", str(nine)).out


def test_a_size_that_is_none_is_a_usage_error(world: World, nine: Path) -> None:
    answer = world.command("fit", str(nine), "--memory", "8GB")
    assert answer.code == 64
    assert 'write "8GiB"' in answer.err
