"""``fit``: what engines need on a card, from their models' own files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.gpus.cards import Card
from provisioner.loads.measured import remember
from provisioner.loads.terms import MIB
from provisioner.models import hashes
from provisioner.models.tiny import EMBEDDING, FEED_FORWARD, TOKENS, ensure_tiny_model, tiny_model
from provisioner.reconcile import configure
from provisioner.reconcile.configure import prove as proved
from provisioner.values.address import Address
from provisioner.values.facts import DeviceMemory, Proof, ProofStep
from tests.doubles.ollama.model_registry import Registry, model_registry
from tests.gguf_bytes import gguf_bytes, model_bytes
from tests.lab_files import files_of
from tests.snapshots import case_name
from tests.unit.cli.conftest import World
from tests.unit.loads.models import QWEN

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


@pytest.mark.parametrize("line", ["validate", "show", "fit --memory 48GiB"])
def test_of_a_large_file_no_more_than_its_head_is_read(
    world: World, nine: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    os.truncate(nine.parent / "nine.gguf", 32 << 30)
    monkeypatch.setattr(hashes, "sha256_of", lambda *_: pytest.fail("all of it was read"))
    assert world.command(*line.split()).code == 0


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("line", ["fit", "fit --memory 2GiB", "fit --memory 4GiB"])
def test_every_term_is_told_and_what_fits_with_the_largest_context(world: World, line: str) -> None:
    assert world.command(*line.split()).ended(0) == world.snapshot


def test_what_does_not_fit_is_refused_with_advice(world: World, nine: Path) -> None:
    assert world.command("fit", str(nine), "--memory", "1GiB").ended(4) == world.snapshot
    found = card(world, str(nine), "--memory", "1GiB")
    assert found["total"] - found["missing"] == found["usable"] == 2**30
    assert found["contexts"] == [{"model": "nine", "largest": 10_240, "asked": 40_192}]
    assert all(one["total"] <= 2**30 for one in found["advice"] if one["fits"])


@pytest.mark.parametrize("source", ["file:tiny.gguf", "builtin:tiny"], ids=case_name)
def test_a_real_model_is_added_up_to_the_byte(world: World, lab: Path, source: str) -> None:
    ensure_tiny_model(lab.parent)
    lab.write_text(TINY.replace("SOURCE", source), encoding="utf-8")
    embeddings, whole = TOKENS * EMBEDDING * 4, len(tiny_model())
    found = card(world, str(lab), "--memory", "1MiB")
    terms = {one["name"]: one["bytes"] for one in found["terms"]}
    assert terms["cache"] == 2 * 512 * 2 * (64 + 64) * 2
    widths = 3 * FEED_FORWARD + 2 * EMBEDDING + 64  # and queries: two heads of 32 numbers
    assert terms["compute buffers"] == 512 * (widths * 4 + 512 * 2)
    if source == "builtin:tiny":  # its list of tensors is not looked at
        assert terms["weights"] == whole
    else:
        assert 0 < whole - embeddings - terms["weights"] < 20_000  # the head
    assert found["missing"] == sum(terms.values()) - MIB > 0
    assert world.command("fit", str(lab), "--memory", "1MiB").ended(4) == world.snapshot
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
    assert world.command("fit", str(nine), "--memory", "8GiB").ended(3) == world.snapshot


def test_a_broken_head_is_told_without_a_traceback(world: World, nine: Path) -> None:
    model = nine.parent / "nine.gguf"
    model.write_bytes(model.read_bytes()[:1000])
    assert world.command("fit", str(nine)).ended(64) == world.snapshot


def test_what_was_measured_stands_beside_the_sum_until_an_option_changes(world: World, nine: Path) -> None:
    from provisioner.cli.session import Session
    from provisioner.serving.fit import budgets_of

    lab = Session().open_lab(nine)
    (budget,) = budgets_of(lab, files_of(lab), {})
    engine = budget.engines[0]
    remember("homelab", engine, 2000 * MIB, None)
    assert world.command("fit", str(nine)).printed == world.snapshot
    (service,) = card(world, str(nine))["services"]
    assert (service["measured"], service["error"]) == (2000 * MIB, engine.total - 2000 * MIB)
    nine.write_text(FILE.replace("OPTIONS", "ubatch: 256"), encoding="utf-8")
    assert "measured" not in world.command("fit", str(nine)).out


CARD = Card("0000:01:00.0", "nvidia", "NVIDIA GeForce RTX 4060", driver="nvidia", memory=8 * 2**30, capability="8.9")
ON_CARD = """\
name: homelab
hosts: { box: { incus: local } }
models: { nine: { source: "file:nine.gguf" } }
containers:
  llama: { gpu: any, services: { llama_cpp: { model: nine, context: CONTEXT } } }
  small: { gpu: any, services: { llama_cpp: { model: nine, context: 4096 } } }
"""


@pytest.fixture
def on_card(world: World, nine: Path) -> Path:
    """A lab of two engines on the one card of the host; 262,144 tokens are too many for it."""
    world.host.cards.there = (CARD,)
    nine.write_text(ON_CARD.replace("CONTEXT", "262144"), encoding="utf-8")
    return nine


def test_the_card_of_the_host_holds_all_engines_that_get_it(world: World, on_card: Path) -> None:
    assert world.command("fit", str(on_card)).ended(4) == world.snapshot
    found = card(world, str(on_card))
    assert (found["card"], found["usable"]) == (CARD.pci, 7360 * MIB)
    assert [one["address"] for one in found["services"]] == ["llama/llama_cpp", "small/llama_cpp"]


def test_a_host_that_tells_no_card_is_no_end_of_the_sum(world: World, on_card: Path) -> None:
    world.host.cards.there = ()
    assert world.command("fit", str(on_card)).ended(0) == world.snapshot
    assert world.command("fit", str(on_card), "--memory", "8GiB").code == 4


@pytest.mark.parametrize("verb", ["plan", "up"])
def test_what_cannot_fit_is_refused_before_anything_is_made(world: World, on_card: Path, verb: str) -> None:
    assert world.command(verb, str(on_card), *(["--yes"] if verb == "up" else [])).ended(4) == world.snapshot
    assert not world.host.containers
    on_card.write_text("fit_check: warn\n" + on_card.read_text(), encoding="utf-8")
    answer = world.done(verb, str(on_card), *(["--yes"] if verb == "up" else []))
    assert answer.after_plan == world.snapshot
    assert bool(world.host.containers) == (verb == "up")


def test_what_a_proof_measures_is_shown_by_the_next_sum(
    world: World, on_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_card.write_text(ON_CARD.replace("CONTEXT", "8192"), encoding="utf-8")
    assert world.command("up", str(on_card), "--yes").code == 0

    def measuring(*arguments: Any, **named: Any) -> tuple[Proof | DeviceMemory | ProofStep, ...]:
        return (*proved(*arguments, **named), DeviceMemory(Address("llama/llama_cpp"), 1000 * MIB))

    monkeypatch.setattr(configure, "prove", measuring)
    world.command("verify", str(on_card))
    assert world.command("fit", str(on_card)).printed == world.snapshot


def test_a_size_that_is_none_is_a_usage_error(world: World, nine: Path) -> None:
    assert world.command("fit", str(nine), "--memory", "8GB").ended(64) == world.snapshot


def test_engines_that_take_turns_fit_where_each_of_them_does(world: World, nine: Path) -> None:
    text = nine.read_text() + "  other: { services: { llama_cpp: { model: nine, context: 8192 } } }\n"
    alike = text.replace("services:", "gpu: any, services:")
    nine.write_text(alike)
    assert world.command("fit", str(nine), "--memory", "2GiB").code == 4
    nine.write_text(alike.replace("incus: local", "incus: local, share: [[llama/llama_cpp, other/llama_cpp]]"))
    assert world.command("fit", str(nine), "--memory", "2GiB").ended(0) == world.snapshot
    found = card(world, str(nine), "--memory", "2GiB")
    assert [one["turns"] for one in found["services"]] == [["llama/llama_cpp", "other/llama_cpp"]] * 2
    assert found["total"] == found["services"][0]["total"]


PULLING = """\
name: homelab
hosts: { box: { incus: local } }
containers:
  local:
    gpu: any
    services:
      ollama:
        api_key: !secret ollama_key
        pull: [{ name: small, model: "HOST/library/small:1b" }]
"""


@pytest.fixture
def registry(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry; the lab's file names a model in it, which the registry does not have yet."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "pve-root-ca.pem"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("PROVISION_SECRET_OLLAMA_KEY", "0123456789abcdef")
    with model_registry(tmp_path) as running:
        lab.write_text(PULLING.replace("HOST", running.host), encoding="utf-8")
        yield running


@pytest.mark.usefixtures("registry")
def test_what_a_registry_does_not_tell_is_unknown_with_its_reason(world: World, lab: Path) -> None:
    assert world.command("fit", str(lab), "--memory", "8GiB").ended(3) == world.snapshot
    world.host.cards.there = (CARD,)
    plan = world.done("plan", str(lab))
    assert plan.after_plan == world.snapshot


def test_what_ollama_fetches_is_added_up_from_what_its_registry_tells(
    world: World, lab: Path, registry: Registry
) -> None:
    parameters = json.dumps({"num_ctx": 2048}).encode()
    registry.publish("library/small:1b", {"model": model_bytes(block_count=8), "params": parameters}, {})
    found = card(world, str(lab), "--memory", "8GiB")
    terms = {term["name"]: term["bytes"] for term in found["terms"]}
    assert terms["cache"] == 2048 * 8 * 2 * 32 * 2  # of each token: 8 layers, keys and values, one head of 32, f16
    assert terms["left free"] == 1024 * MIB
    assert world.command("fit", str(lab), "--memory", "8GiB").code == 0
    assert world.command("fit", str(lab), "--memory", "512MiB").code == 4


def test_a_registry_is_asked_when_a_plan_is_made_and_only_for_what_gets_a_card(
    world: World, lab: Path, registry: Registry
) -> None:
    registry.publish("library/small:1b", {"model": model_bytes()}, {})
    world.host.cards.there = (CARD,)
    for verb in ("validate", "show", "status"):
        world.command(verb, str(lab))
    assert registry.server.seen == []
    assert world.command("plan", str(lab)).code == 0
    asked = len(registry.server.seen)
    assert asked == 3
    assert world.command("up", str(lab), "--yes").code == 0
    assert len(registry.server.seen) == asked
    lab.write_text(lab.read_text(encoding="utf-8").replace("small:1b", "other").replace("    gpu: any\n", ""))
    assert world.command("plan", str(lab)).code == 0
    assert len(registry.server.seen) == asked
