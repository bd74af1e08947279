"""``fit``: what engines need on a card, from their models' own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gguf_bytes import gguf_bytes
from tests.unit.cli.conftest import World
from tests.unit.fit.test_terms import QWEN

FILE = """\
name: homelab
hosts: { box: { incus: local } }
models: { nine: { source: "file:nine.gguf", context: 40192 } }
containers:
  llama: { services: { llama_cpp: { model: nine, parallel: 4, OPTIONS } } }
"""


@pytest.fixture
def nine(lab: Path) -> Path:
    """The lab's file with a hybrid of 9B whose weights are left out."""
    tokens = [f"t{number}" for number in range(5000)]
    model = gguf_bytes({**QWEN, "qwen35.vocab_size": 248_320, "tokenizer.ggml.tokens": tokens})
    (lab.parent / "nine.gguf").write_bytes(model)
    lab.write_text(FILE.replace(", OPTIONS", ""), encoding="utf-8")
    return lab


def test_every_term_is_told(world: World, nine: Path) -> None:
    answer = world.command("fit", str(nine))
    assert answer.code == 0, answer.err
    told = [line.split() for line in answer.out.splitlines()]
    assert ["cache", "1,256", "MiB"] in told
    assert ["recurrent", "state", "201", "MiB"] in told
    assert ["compute", "buffers", "493", "MiB"] in told
    assert "largest" not in answer.out


def test_what_fits_is_told_with_the_largest_context(world: World, nine: Path) -> None:
    answer = world.command("fit", str(nine), "--memory", "2GiB")
    assert answer.code == 0
    assert "of 2,048 MiB: it fits" in answer.out
    assert "(asked for 40,192)" in answer.out


def test_what_does_not_fit_is_refused(world: World, nine: Path) -> None:
    answer = world.command("fit", str(nine), "--memory", "1GiB")
    assert answer.code == 4
    assert "MiB too much" in answer.out
    (result,) = world.command("fit", str(nine), "--memory", "1GiB", "--json").of("result")
    assert result["engines"][0]["total"] > result["memory"] == 2**30


def test_smaller_types_and_a_cache_elsewhere_take_less(world: World, nine: Path) -> None:
    def total(options: str) -> int:
        nine.write_text(FILE.replace("OPTIONS", options), encoding="utf-8")
        return int(world.command("fit", str(nine), "--json").of("result")[0]["engines"][0]["total"])

    assert total("port: 8080") > total("kv_cache: { k: q8_0, v: q8_0 }") > total("kv_offload: false")


def test_a_size_that_is_none_is_a_usage_error(world: World, nine: Path) -> None:
    answer = world.command("fit", str(nine), "--memory", "8GB")
    assert answer.code == 64
    assert 'write "8GiB"' in answer.err
