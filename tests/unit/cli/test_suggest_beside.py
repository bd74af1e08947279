"""``suggest`` for the card of a file: what others have on it is not there for what is suggested."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.loads.terms import MIB
from provisioner.services.kokoro import loads_of
from provisioner.values.address import Address
from tests.gguf_bytes import gguf_bytes
from tests.graphics_cards import RTX_3060 as CARD
from tests.unit.cli.conftest import World
from tests.unit.cli.test_suggest import LLAMA, head, ways
from tests.unit.cli.test_suggest_folders import said

USABLE = CARD.memory - 832 * MIB
VOICE = loads_of(Address.of("voice", "kokoro")).total
"""What Kokoro takes by the sum of ``fit``, 1,738 MiB."""
FILE = """\
name: homelab
hosts: { box: { incus: local } }
models:
  one: { source: "file:one.gguf" }
  two: { source: "file:two.gguf" }
containers:
  voice: { gpu: any, services: { kokoro: {} } }
"""
SERVING = "  {name}: {{ gpu: any, services: {{ llama_cpp: {{ model: {model}, context: 4096{more} }} }} }}\n"


@pytest.fixture
def box(world: World, tmp_path: Path) -> World:
    """A host with a card, on which the file has one that speaks."""
    world.host.cards.there = (CARD,)
    for name, layers in (("one", 32), ("two", 16)):
        values = {**LLAMA, "general.file_type": 15, "llama.block_count": layers}
        (tmp_path / f"{name}.gguf").write_bytes(gguf_bytes(values))
    (tmp_path / "homelab.yml").write_text(FILE)
    return world


def serve(name: str, model: str, more: str = "") -> None:
    """Add an engine to the file."""
    file = Path("homelab.yml")
    file.write_text(file.read_text() + SERVING.format(name=name, model=model, more=more))


def total_of(world: World, address: str) -> int:
    """What a service takes by the sum of ``fit``."""
    (result,) = world.command("fit", "--json").of("result")
    (found,) = [one["total"] for card in result["cards"] for one in card["services"] if one["address"] == address]
    return int(found)


def test_what_others_take_of_the_card_is_taken_off_and_said(box: World) -> None:
    result = said(box, "one.gguf")
    assert (result["usable"], result["card"]) == (USABLE, CARD.title)
    assert [(one["service"], one["bytes"]) for one in result["taken"]] == [("voice/kokoro", VOICE)]
    (way,) = result["ways"]
    assert way["usable"] == USABLE - VOICE
    assert way["total"] + way["free"] == USABLE - VOICE
    assert box.command("suggest", "one.gguf").printed == box.snapshot


def test_exclusive_takes_nothing_off_and_says_so(box: World) -> None:
    result = said(box, "one.gguf", "--exclusive")
    assert [way["usable"] for way in result["ways"]] == [USABLE]
    assert result["taken"] == []
    assert box.command("suggest", "one.gguf", "--exclusive").printed == box.snapshot


def test_of_a_card_that_is_named_nothing_is_taken_off(box: World) -> None:
    result = said(box, "one.gguf", "--gpu", "12GiB")
    assert (result["card"], result["taken"]) == (None, [])
    assert [way["usable"] for way in result["ways"]] == [12 * 1024 * MIB - 832 * MIB]
    assert "take of" not in box.command("suggest", "one.gguf", "--gpu", "12GiB").out
    assert box.command("suggest", "one.gguf", "--gpu", "12GiB", "--exclusive").code == 64


def test_who_serves_the_very_model_does_not_count_against_it(box: World) -> None:
    serve("llama", "one")
    engine = total_of(box, "llama/llama_cpp")
    assert engine > 0
    result = said(box, "one.gguf", "two.gguf")
    rooms = {way["file"]: way["usable"] for way in result["ways"]}
    assert rooms == {"one": USABLE - VOICE, "two": USABLE - VOICE - engine}
    taken = {one["service"]: one["not_beside"] for one in result["taken"]}
    assert taken == {"voice/kokoro": [], "llama/llama_cpp": ["one"]}
    assert box.command("suggest", "one.gguf", "two.gguf").printed == box.snapshot
    (by_name,) = said(box, "one")["ways"]
    assert by_name["usable"] == USABLE - VOICE, "the same model, as the file calls it"


def test_of_those_that_take_turns_the_largest_counts_and_none_beside_one_of_them(box: World) -> None:
    serve("large", "one")
    serve("small", "two")
    file = Path("homelab.yml")
    shared = "incus: local, share: [[large/llama_cpp, small/llama_cpp]]"
    file.write_text(file.read_text().replace("incus: local", shared))
    large = total_of(box, "large/llama_cpp")
    Path("three.gguf").write_bytes(head(17))
    (other,) = said(box, "three.gguf")["ways"]
    assert other["usable"] == USABLE - VOICE - large
    (own,) = said(box, "two.gguf")["ways"]
    assert own["usable"] == USABLE - VOICE


def test_what_nobody_knows_is_said(box: World) -> None:
    file = Path("homelab.yml")
    options = '{ pull: [{ name: small, model: "qwen3:0.6b" }], api_key: !secret engine_key }'
    pulled = f"  pulls: {{ gpu: any, services: {{ ollama: {options} }} }}\n"
    file.write_text(file.read_text() + pulled)
    result = said(box, "one.gguf")
    (unknown,) = [one["unknown"] for one in result["taken"] if one["service"] == "pulls/ollama"]
    assert unknown
    assert "pulls/ollama: at least " in box.command("suggest", "one.gguf").out


def test_where_too_little_is_left_nothing_fits(box: World) -> None:
    box.host.cards.there = (replace(CARD, memory=2700 * MIB),)
    assert box.command("suggest", "one.gguf").ended(4) == box.snapshot
    assert len(ways(box, "one.gguf", "--exclusive")) == 1


def test_vllm_is_given_what_is_left(box: World, tmp_path: Path) -> None:
    from tests.unit.cli.test_suggest_folders import AWQ, write_model

    folder = write_model(tmp_path / "models/Eight", 5500, **AWQ)
    text = box.command("suggest", str(folder)).out
    share = float(re.search(r"gpu_memory_utilization: ([\d.]+)", text)[1])  # type: ignore[index]
    assert share * CARD.memory <= USABLE - VOICE < (share + 0.01) * CARD.memory
