"""``suggest``: which file of a model a card is best given, asked of a stand-in for the hub, of folders, of the file."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.lab.artifacts import manifest_digest
from provisioner.loads.terms import MIB
from provisioner.measuring.history import Result, Series, Setting, Trial, keep
from provisioner.measuring.history import file_of as history_of
from provisioner.values.address import Address
from tests.file_server import FileServer, Seen, serving
from tests.gguf_bytes import gguf_bytes, projector_bytes
from tests.unit.cli.conftest import World
from tests.unit.models.test_hub import COMMIT, PAGE, REPOSITORY, page_of, sibling

TOKEN = "hf_CANARY0b1c2d"
LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 32,
    "llama.context_length": 131_072,
    "llama.embedding_length": 4096,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
}
"""128 KiB of cache for a token."""
SIZES = {"Q2_K": (10, 3000), "Q4_K_M": (15, 4900), "Q5_K_M": (17, 5700), "Q8_0": (7, 8500), "BF16": (32, 16_000)}
"""The number of each type in a file's head, and MiB of a model of 8B."""


def head(number: int) -> bytes:
    """The head of a model of that type."""
    return gguf_bytes({**LLAMA, "general.file_type": number})


def file_of(name: str, size: int) -> dict[str, Any]:
    lfs = {"sha256": "c" * 64, "size": size, "pointerSize": 135}
    return sibling(name, size=size, lfs=lfs)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A repository of a model of 8B in five sizes, the largest in two files."""
    names = {f"Eight-{quant}.gguf": (head(number), mib) for quant, (number, mib) in SIZES.items() if quant != "BF16"}
    parts = [f"BF16/Eight-BF16-0000{number}-of-00002.gguf" for number in (1, 2)]
    names |= {part: (head(32), 8000) for part in parts}
    files = [file_of(name, mib * MIB) for name, (_, mib) in names.items()]
    with serving(FileServer(b"")) as server:
        page = json.dumps(page_of(*files, sibling("README.md"))).encode()
        server.pages[PAGE] = lambda _seen: (200, {}, page)
        for name, (content, _) in names.items():
            server.pages[f"/{REPOSITORY}/resolve/{COMMIT}/{name}"] = answer_of(content)
        monkeypatch.setenv("HF_ENDPOINT", server.address.rpartition("/models")[0])
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("no_proxy", "*")
        yield server


def answer_of(content: bytes) -> Any:
    def answered(_seen: Seen) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, content

    return answered


def test_a_repository_is_looked_through_for_what_a_card_is_best_given(world: World, hub: FileServer) -> None:
    answer = world.done("suggest", REPOSITORY, "--gpu", "12GiB")
    assert answer.printed == world.snapshot
    assert TOKEN not in answer.out + answer.err
    assert len([one for one in hub.seen if "/resolve/" in one.path]) == 5, "of one in two files the first head"


@pytest.mark.usefixtures("hub")
def test_what_it_prints_is_a_file_that_is_valid(world: World, tmp_path: Path) -> None:
    (result,) = world.command("suggest", REPOSITORY, "--gpu", "8GiB", "--json").of("result")
    best = result["ways"][0]
    assert (result["memory_bytes_per_s"], result["source"], best["bound_per_s"]) == (None, None, None)
    assert (best["quant"], best["written"]) == ("Q4_K_M", {"source": f"hf:{REPOSITORY}:Q4_K_M"})
    assert (best["keys"], best["values"]) == ("q8_0", "q8_0"), "with f16 none has 24,576 tokens"
    assert best["total"] <= result["usable"] == 8192 * MIB - 832 * MIB
    text = world.command("suggest", REPOSITORY, "--gpu", "8GiB").out
    block = text[text.index("models:") :]
    (tmp_path / "homelab.yml").write_text(f"name: suggested\n{block}")
    world.done("validate")
    said = yaml.safe_load(block)
    (service,) = [one["services"]["llama_cpp"] for one in said["containers"].values()]
    assert service["context"] == best["context"]


@pytest.mark.usefixtures("hub")
def test_a_card_that_is_named_has_a_bound_of_its_speed(world: World) -> None:
    (result,) = world.command("suggest", REPOSITORY, "--gpu", "RTX 3060 12GB", "--json").of("result")
    assert result["usable"] == 12_288 * MIB - 832 * MIB
    assert result["memory_bytes_per_s"] == 360 * 10**9
    assert result["source"].startswith("https://")
    best = result["ways"][0]
    size = SIZES[best["quant"]][1] * MIB
    cache = best["context"] // 2 * 131_072
    assert 360e9 / (size + cache) <= best["bound_per_s"] <= 360e9 / size
    assert world.command("suggest", REPOSITORY, "--gpu", "RTX 3060 12GB").printed == world.snapshot


@pytest.mark.usefixtures("hub")
def test_a_bound_says_of_which_of_several_cards_of_one_name_it_is(world: World) -> None:
    assert world.command("suggest", REPOSITORY, "--gpu", "RTX 3060 Ti").printed == world.snapshot
    assert "That is one" not in world.command("suggest", REPOSITORY, "--gpu", "RTX 4060").out


def test_of_two_files_with_one_label_the_address_says_which_is_meant(world: World, hub: FileServer) -> None:
    files = [file_of(name, 4900 * MIB) for name in ("Eight-Q4_K_M.gguf", "Nine-Q4_K_M.gguf")]
    page = json.dumps(page_of(*files)).encode()
    hub.pages[PAGE] = lambda _seen: (200, {}, page)
    hub.pages[f"/{REPOSITORY}/resolve/{COMMIT}/Nine-Q4_K_M.gguf"] = answer_of(head(15))
    (result,) = world.command("suggest", REPOSITORY, "--gpu", "12GiB", "--json").of("result")
    assert {one["written"]["source"].rpartition("/")[2] for one in result["ways"]} == {
        "Eight-Q4_K_M.gguf",
        "Nine-Q4_K_M.gguf",
    }
    assert {one["written"]["sha256"] for one in result["ways"]} == {"c" * 64}


@pytest.mark.parametrize("size", ["many", -1, True, None, 1 << 60])
def test_a_size_that_is_none_is_no_size(world: World, hub: FileServer, size: Any) -> None:
    lfs = {"sha256": "c" * 64, "size": size, "pointerSize": 135}
    page = json.dumps(page_of(sibling("Eight-Q4_K_M.gguf", size=size, lfs=lfs))).encode()
    hub.pages[PAGE] = lambda _seen: (200, {}, page)
    told = world.command("suggest", REPOSITORY, "--gpu", "8GiB").ended(64)
    assert "does not say what Eight-Q4_K_M.gguf of acme/Small-GGUF hashes to" in told


def test_a_path_may_hold_what_yaml_does_not_like(world: World, tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s: "mine" #1'
    folder.mkdir()
    (folder / "one.gguf").write_bytes(head(15))
    answer = world.done("suggest", str(folder), "--gpu", "8GiB")
    said = yaml.safe_load(answer.out[answer.out.index("models:") :])
    assert said["models"]["one"]["source"] == f"file:{folder}/one.gguf"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with a model, its projector, and what is none."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "one.gguf").write_bytes(head(15))
    (folder / "mmproj-one.gguf").write_bytes(projector_bytes(4096))
    (folder / "README.md").write_text("no model")
    return folder


@pytest.mark.parametrize("name", ["", "one.gguf"], ids=["folder", "file"])
def test_a_folder_and_a_file_of_this_machine_are_read(world: World, models: Path, name: str) -> None:
    assert world.command("suggest", str(models / name), "--gpu", "8GiB").ended(0) == world.snapshot


@pytest.mark.parametrize(("name", "code"), [("", 0), ("one.gguf", 4)], ids=["folder", "file"])
def test_who_is_to_see_needs_a_projector(world: World, models: Path, name: str, code: int) -> None:
    answer = world.command("suggest", str(models / name), "--gpu", "8GiB", "--use", "vision")
    assert answer.ended(code) == world.snapshot


def test_a_model_of_the_file_is_looked_at(world: World) -> None:
    assert world.command("suggest", "tiny", "--gpu", "8GiB").ended(0) == world.snapshot


@pytest.mark.usefixtures("hub")
def test_the_head_of_a_model_of_the_file_elsewhere_is_read(world: World, tmp_path: Path) -> None:
    block = f'models: {{ eight: {{ source: "hf:{REPOSITORY}:Q4_K_M" }} }}'
    services = "containers: { llama: { services: { llama_cpp: { model: eight } } } }"
    (tmp_path / "homelab.yml").write_text(f"name: homelab\nhosts: {{ box: {{ incus: local }} }}\n{block}\n{services}\n")
    (result,) = world.command("suggest", "eight", "--gpu", "12GiB", "--json").of("result")
    assert [one["quant"] for one in result["ways"]][:1] == ["Q4_K_M"]


@pytest.mark.parametrize(
    "line",
    [
        *("", "nobody", "tiny", "tiny --gpu none", "tiny --gpu 8GB", "tiny --gpu 'RTX 3060'", "tiny --gpu 'RTX 4000'"),
        "tiny --gpu 8GiB --use fun",
    ],
)
def test_what_cannot_be_asked_is_refused(world: World, line: str) -> None:
    assert world.command("suggest", *shlex.split(line)).ended(64) == world.snapshot


def test_a_repository_without_a_model_is_said(world: World, hub: FileServer) -> None:
    page = json.dumps(page_of(sibling("README.md"), sibling("imatrix.gguf"))).encode()
    hub.pages[PAGE] = lambda _seen: (200, {}, page)
    hub.pages[f"/api/models/{REPOSITORY}/refs"] = lambda _seen: (200, {}, b'{"branches": [{"name": "main"}]}')
    assert world.command("suggest", REPOSITORY, "--gpu", "8GiB").ended(64) == world.snapshot


def test_a_hub_that_does_not_answer_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert world.command("suggest", REPOSITORY, "--gpu", "8GiB").ended(4) == world.snapshot


def test_a_file_that_is_no_model_is_said(world: World, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"no model at all")
    assert world.command("suggest", str(tmp_path / "x.gguf"), "--gpu", "8GiB").ended(64) == world.snapshot


@pytest.mark.usefixtures("hub")
def test_nothing_that_fits_is_a_refusal(world: World) -> None:
    assert world.command("suggest", REPOSITORY, "--gpu", "2GiB").ended(4) == world.snapshot


AT = "2026-11-20T08:00:00+00:00"
RTX_3060_TI = "NVIDIA GeForce RTX 3060 Ti"


def measured(model: str, card: str = RTX_3060_TI, service: str = "llama", **options: str) -> None:
    """Keep that a model wrote 41.2 tokens in a second on a card."""
    address = Address.of(service, "llama_cpp")
    setting = Setting("box", "EPYC, 4 of them", card, "580.95", "b" * 64, model, options)
    trials = (Trial(41.0), Trial(41.2), Trial(44.0))
    keep(history_of("homelab", address), Result(AT, "engine", str(address), setting, (Series("tg128", "t/s", trials),)))


def ways(world: World, *words: str) -> list[dict[str, Any]]:
    answer = world.done("suggest", *words, "--json")
    (result,) = answer.of("result")
    return list(result["ways"])


@pytest.mark.usefixtures("hub")
def test_what_was_measured_on_that_card_stands_in_the_place_of_the_bound(world: World) -> None:
    measured(manifest_digest([("c" * 64, "Eight-Q4_K_M.gguf")]), ctk="q8_0", ctv="q8_0", ngl="-1")
    assert world.command("suggest", REPOSITORY, "--gpu", "RTX 3060 Ti").printed == world.snapshot
    by_quant = {way["quant"]: way for way in ways(world, REPOSITORY, "--gpu", "RTX 3060 Ti")}
    four, five = by_quant["Q4_K_M"], by_quant["Q5_K_M"]
    assert (four["measured_per_s"], four["measured_at"], four["measured_depth"]) == (41.2, AT, 0)
    assert four["bound_per_s"] > 41.2
    assert (five["measured_per_s"], five["measured_at"]) == (None, None)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("card", ["", "NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 4060"])
def test_what_was_measured_elsewhere_does_not_count(world: World, card: str) -> None:
    measured(manifest_digest([("c" * 64, "Eight-Q4_K_M.gguf")]), card, ctk="q8_0", ctv="q8_0")
    assert {way["measured_per_s"] for way in ways(world, REPOSITORY, "--gpu", "RTX 3060 Ti")} == {None}
    assert {way["measured_per_s"] for way in ways(world, REPOSITORY, "--gpu", "8GiB")} == {None}


def test_a_file_here_is_known_by_its_hash(world: World, tmp_path: Path) -> None:
    content = head(15)
    (tmp_path / "one.gguf").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    measured(manifest_digest([(digest, "one.gguf")]))
    (way,) = ways(world, str(tmp_path / "one.gguf"), "--gpu", "RTX 3060 Ti")
    assert way["measured_per_s"] == 41.2
    (tmp_path / "two.gguf").write_bytes(content)
    (way,) = ways(world, str(tmp_path / "two.gguf"), "--gpu", "RTX 3060 Ti")
    assert way["measured_per_s"] is None, "units know a model by its hash and its name"


def test_nothing_is_hashed_where_nothing_was_measured(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_hash(file: Path) -> str:
        raise AssertionError(file)

    monkeypatch.setattr("provisioner.suggest.speeds.sha256_of", no_hash)
    (tmp_path / "one.gguf").write_bytes(head(15))
    measured("e" * 64, "NVIDIA GeForce RTX 4090")
    (way,) = ways(world, str(tmp_path / "one.gguf"), "--gpu", "RTX 3060 Ti")
    assert way["measured_per_s"] is None


def test_what_a_service_measured_that_computes_on_the_cpu_does_not_count(world: World, tmp_path: Path) -> None:
    (tmp_path / "one.gguf").write_bytes(head(15))
    digest = manifest_digest([(hashlib.sha256(head(15)).hexdigest(), "one.gguf")])
    file = Path("homelab.yml")
    measured(digest)
    for backend, speed in (("", 41.2), (", backend: cpu", None)):
        written = f"{{ model: tiny{backend}, api_key: !secret engine_key }}"
        file.write_text(
            f"name: homelab\nmodels: {{ tiny: {{ source: 'builtin:tiny' }} }}\n"
            f"containers: {{ llama: {{ services: {{ llama_cpp: {written} }} }} }}\n"
        )
        (way,) = ways(world, str(tmp_path / "one.gguf"), "--gpu", "RTX 3060 Ti")
        assert way["measured_per_s"] == speed


def test_a_result_that_is_damaged_is_said(world: World, tmp_path: Path) -> None:
    (tmp_path / "one.gguf").write_bytes(head(15))
    measured("e" * 64)
    file = history_of("homelab", Address.of("llama", "llama_cpp"))
    file.write_text(file.read_text() + "no result\n")
    assert world.command("suggest", str(tmp_path / "one.gguf"), "--gpu", "RTX 3060 Ti").ended(64) == world.snapshot
