"""``suggest`` of models that are folders: EXL3 and EXL2 for tabbyAPI, AWQ, FP8 and whole weights for vLLM."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.lab.artifacts import manifest_digest
from provisioner.loads.terms import MIB
from provisioner.measuring.history import Result, Series, Setting, Trial, keep
from provisioner.measuring.history import file_of as history_of
from provisioner.services.tabbyapi import IMAGE, STACKS
from provisioner.values import paths
from provisioner.values.address import Address
from tests.documented import secrets_of
from tests.file_server import FileServer, Page, Seen, serving
from tests.folder_files import blob_id
from tests.unit.cli.conftest import World
from tests.unit.loads.models import QWEN_FOLDER

REPOSITORY = "acme/Eight-exl3"
COMMIT = "5f" * 20
EXL3 = {"quantization_config": {"quant_method": "exl3", "bits": 4.0}}
EXL2: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "intermediate_size": 12_288,
    "quantization_config": {"quant_method": "exl2", "bits": 4.0},
}
AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4}}
FP8 = {"quantization_config": {"quant_method": "fp8"}}
SMALL = {**EXL3, "vocab_size": 64}
"""Few embeddings, so that files of 64 MiB are a model: they are hashed here."""
CARD = ("--gpu", "12GiB")


def config(**keys: Any) -> bytes:
    return json.dumps({**QWEN_FOLDER, **keys}).encode()


def write_model(folder: Path, mib: int, **keys: Any) -> Path:
    """A folder with weights of so many MiB, none of which take room on the disk."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(config(**keys))
    with (folder / "model.safetensors").open("wb") as stream:
        stream.truncate(mib * MIB)
    return folder


def said(world: World, *words: str) -> dict[str, Any]:
    answer = world.command("suggest", *words, "--json")
    (result,) = answer.of("result")
    assert answer.code == (0 if result["ways"] else 4), answer.err
    return dict(result)


def block(world: World, *words: str) -> str:
    out = world.command("suggest", *words).out
    return out[out.index("models:") :]


def check_loads(world: World, monkeypatch: pytest.MonkeyPatch, text: str) -> dict[str, Any]:
    """The only service of a block, once the real loader has taken all of it."""
    whole = f"name: suggested\n{text}"
    Path("homelab.yml").write_text(whole)
    for name, value in secrets_of(whole).items():
        monkeypatch.setenv(name, value)
    world.done("validate")
    shown = yaml.safe_load(whole.replace("!secret ", ""))
    ((container, content),) = shown["containers"].items()
    assert list(shown["models"]) == [container]
    return dict(content["services"])


FOLDERS: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "exl3": (EXL3, 5000, "tabbyapi", "max_seq_len"),
    "exl2": (EXL2, 5000, "tabbyapi", "max_seq_len"),
    "awq": (AWQ, 5500, "vllm", "max_model_len"),
    "gptq": ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, 5500, "vllm", "max_model_len"),
    "fp8": (FP8, 8500, "vllm", "max_model_len"),
    "whole": ({"num_hidden_layers": 12}, 6000, "vllm", "max_model_len"),
}
"""What stands in a config.json besides, MiB of weights, the engine, and its option for the context."""


@pytest.mark.parametrize("form", FOLDERS)
def test_a_folder_is_suggested_for_the_engine_that_reads_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    keys, mib, engine, option = FOLDERS[form]
    folder = write_model(tmp_path / "models/Eight", mib, **keys)
    (best,) = said(world, str(folder), *CARD)["ways"]
    assert best["engine"] == engine
    assert best["context"] >= 4096
    assert best["total"] <= 12_288 * MIB - 832 * MIB
    services = check_loads(world, monkeypatch, block(world, str(folder), *CARD))
    assert list(services) == [engine]
    assert services[engine][option] == best["context"]


def test_what_is_suggested_is_what_fit_says(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, keys in (("exl3", EXL3), ("exl2", EXL2), ("awq", AWQ)):
        folder = write_model(tmp_path / f"models/{name}", 64, **keys, vocab_size=64)
        (best,) = said(world, str(folder), *CARD)["ways"]
        check_loads(world, monkeypatch, block(world, str(folder), *CARD))
        fit = world.done("fit", "--memory", "12GiB", "--json")
        (result,) = fit.of("result")
        assert best["total"] == sum(term["bytes"] for term in result["cards"][0]["terms"]), name


def test_a_cache_is_made_smaller_before_a_context_is(world: World, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "models/Eight", 5000, **EXL3)
    chosen = {}
    for mib in (12_000, 8192, 6656):
        (best,) = said(world, str(folder), "--gpu", f"{mib}MiB")["ways"]
        chosen[mib] = best["cache"]
        assert best["context"] >= 24_576
    assert chosen == {12_000: "FP16", 8192: "8,8", 6656: "8,4"}
    assert 'cache_mode: "8,4"' in block(world, str(folder), "--gpu", "6656MiB")


def test_a_folder_of_exl2_is_given_its_own_caches_and_the_stack_that_reads_it(world: World, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "models/Eight", 5000, **EXL2)
    chosen = {}
    for mib in (12_000, 8704, 7600):
        (best,) = said(world, str(folder), "--gpu", f"{mib}MiB")["ways"]
        chosen[mib] = best["cache"]
        assert best["context"] >= 24_576
    assert chosen == {12_000: "FP16", 8704: "Q8", 7600: "Q6"}
    assert world.command("suggest", str(folder), "--gpu", "7600MiB").printed == world.snapshot
    other = write_model(tmp_path / "models/Other", 5000, **EXL3)
    assert world.command("suggest", str(other), *CARD).printed == world.snapshot


def test_vllm_is_given_what_is_usable_of_the_card(world: World, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "models/Eight", 5500, **AWQ)
    for gib, share in ((8, 0.89), (12, 0.93), (24, 0.96), (80, 0.98)):
        text = block(world, str(folder), "--gpu", f"{gib}GiB", "--use", "chat")
        assert f"gpu_memory_utilization: {share}" in text


def test_fp8_is_a_cache_of_cards_that_know_it(world: World, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "models/Eight", 5500, **AWQ)
    (best,) = said(world, str(folder), "--gpu", "9GiB")["ways"]
    assert best["cache"] == "fp8"
    assert world.command("suggest", str(folder), "--gpu", "9GiB").printed == world.snapshot


def test_what_nobody_can_add_up_is_left_with_its_reason(world: World, tmp_path: Path) -> None:
    unknown: dict[str, tuple[int, dict[str, Any]]] = {
        "other": (1000, {**EXL3, "model_type": "unheard_of"}),
        "layers": (1000, {"model_type": "mamba"}),
        "architecture": (1000, {**EXL2, "architectures": ["UnheardOf"]}),
        "method": (1000, {"quantization_config": {"quant_method": "bitnet"}}),
        "large-exl3": (13_000, EXL3),
        "large-exl2": (13_000, EXL2),
        "large-awq": (13_000, AWQ),
    }
    folders = [write_model(tmp_path / f"models/{name}", mib, **keys) for name, (mib, keys) in unknown.items()]
    assert world.command("suggest", *map(str, folders), *CARD).ended(4) == world.snapshot


@pytest.mark.parametrize("line", ["--gpu 'RX 7900 XTX'", "--gpu 12GiB --use vision"])
def test_what_a_card_or_an_engine_does_not_know_is_said(world: World, tmp_path: Path, line: str) -> None:
    """Cards of another maker know none of these engines; what images take with a folder is not added up."""
    folder = write_model(tmp_path / "models/Eight", 5000, **EXL3)
    assert world.command("suggest", str(folder), *shlex.split(line)).ended(4) == world.snapshot


def test_a_bound_of_a_folder_leaves_out_what_no_token_reads(world: World, tmp_path: Path) -> None:
    embeddings = 151_936 * 4096 * 2
    for name, keys, away in (("exl3", EXL3, embeddings), ("awq", AWQ, embeddings)):
        folder = write_model(tmp_path / f"models/{name}", 5000, **keys)
        (best,) = said(world, str(folder), "--gpu", "RTX 4070")["ways"]
        cache = best["context"] // 2 * 36 * 2 * 1024 * 2
        assert best["cache"] in ("FP16", "auto")
        assert best["bound_per_s"] == pytest.approx(504e9 / (5000 * MIB - away + cache), rel=0.01), name
    seeing = write_model(tmp_path / "models/seeing", 5000, **EXL3, vision_config={})
    (best,) = said(world, str(seeing), "--gpu", "RTX 4070")["ways"]
    assert best["bound_per_s"] is None, "nobody tells how large its encoder is"


def test_fewer_than_four_bits_come_after_what_is_better(world: World, tmp_path: Path) -> None:
    three = {"quantization_config": {"quant_method": "exl3", "bits": 3.0}}
    low = write_model(tmp_path / "models/three", 4000, **three)
    result = said(world, str(low), *CARD)
    assert [way["bits"] for way in result["ways"]] == [3.0]
    four = write_model(tmp_path / "models/four", 5000, **EXL3)
    result = said(world, str(low), str(four), *CARD)
    assert [way["bits"] for way in result["ways"]] == [4.0]
    assert result["left"] == [{"file": "three", "why": "below Q4_K_M, and a better one fits"}]


def test_a_broken_folder_is_said(world: World, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "models/Eight", 100, **EXL3)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"t": "not-there.safetensors"}}))
    assert world.command("suggest", str(folder), *CARD).ended(64) == world.snapshot


def test_a_folder_of_the_file_is_looked_at(world: World, tmp_path: Path) -> None:
    write_model(tmp_path / "models/Eight", 64, **SMALL)
    Path("homelab.yml").write_text(
        "name: homelab\nmodels: { eight: { source: 'dir:models/Eight' } }\n"
        "containers: { tabby: { gpu: any, services: { tabbyapi: { model: eight, "
        "api_key: !secret engine_key, admin_key: !secret gateway_key } } } }\n"
    )
    (best,) = said(world, "eight", *CARD)["ways"]
    assert best["engine"] == "tabbyapi"
    assert best["written"] == {"source": f"dir:{tmp_path}/models/Eight", "format": "exl3"}


def whole(content: bytes, _seen: Seen) -> Page:
    return 200, {}, content


def page_of(mib: int, content: bytes) -> bytes:
    """A revision as the hub lists it: weights of so many MiB, its config.json, and what is no model."""
    lfs = {"sha256": "c" * 64, "size": mib * MIB, "pointerSize": 135}
    files: list[dict[str, Any]] = [{"rfilename": "README.md", "size": 10}]
    if mib:
        files.append({"rfilename": "model.safetensors", "size": mib * MIB, "lfs": lfs})
        files.append({"rfilename": "config.json", "size": len(content), "blobId": blob_id(content)})
    return json.dumps({"sha": COMMIT, "siblings": files}).encode()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A repository that keeps each size in a branch of its own, and none in ``main``."""
    branches = {"main": 0, "3.00bpw": 4000, "4.00bpw": 5000, "6.00bpw": 7200}
    content = config(**EXL3)
    with serving(FileServer(b"")) as server:
        for branch, mib in branches.items():
            page = partial(whole, page_of(mib, content))
            server.pages[f"/api/models/{REPOSITORY}/revision/{branch}"] = page
        named = {"branches": [{"name": name} for name in (*branches, "measurement")], "tags": []}
        server.pages[f"/api/models/{REPOSITORY}/refs"] = partial(whole, json.dumps(named).encode())
        server.pages[f"/{REPOSITORY}/resolve/{COMMIT}/config.json"] = partial(whole, content)
        lacking = {"X-Error-Code": "RevisionNotFound"}
        server.pages[f"/api/models/{REPOSITORY}/revision/5.00bpw"] = lambda _seen: (404, lacking, b"")
        monkeypatch.setenv("HF_ENDPOINT", server.address.rpartition("/models")[0])
        monkeypatch.setenv("no_proxy", "*")
        yield server


def test_each_size_that_is_a_revision_is_looked_at(
    world: World, hub: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = said(world, REPOSITORY, *CARD)
    assert [way["written"] for way in result["ways"]] == [
        {"source": f"hf:{REPOSITORY}@{size}"} for size in ("6.00bpw", "4.00bpw", "3.00bpw")
    ]
    services = check_loads(world, monkeypatch, block(world, REPOSITORY, *CARD))
    assert list(services) == ["tabbyapi"]
    assert not [one for one in hub.seen if "safetensors" in one.path], "nothing is downloaded"


@pytest.mark.usefixtures("hub")
def test_one_revision_can_be_named(world: World) -> None:
    (best,) = said(world, f"{REPOSITORY}@4.00bpw", *CARD)["ways"]
    assert best["file"] == "Eight-exl3@4.00bpw"
    assert world.command("suggest", f"{REPOSITORY}@5.00bpw", *CARD).ended(64) == world.snapshot


def test_a_hub_that_stops_answering_is_no_repository_without_a_model(world: World, hub: FileServer) -> None:
    hub.pages[f"/api/models/{REPOSITORY}/refs"] = lambda _seen: (503, {}, b"")
    answer = world.command("suggest", REPOSITORY, *CARD)
    assert answer.code == 4, answer.err
    assert "holds no GGUF" not in answer.err
    hub.pages[f"/api/models/{REPOSITORY}/refs"] = lambda _seen: (404, {}, b"")
    assert world.command("suggest", REPOSITORY, *CARD).ended(64) == world.snapshot


def test_weights_beside_files_of_gguf_are_both_looked_at(world: World, tmp_path: Path) -> None:
    from tests.unit.cli.test_suggest import head

    folder = write_model(tmp_path / "models/Eight", 5000, **EXL3)
    (folder / "eight-Q4_K_M.gguf").write_bytes(head(15))
    assert {way["engine"] for way in said(world, str(folder), *CARD)["ways"]} == {"tabbyapi", "llama_cpp"}


def unknown_hashes(stack: str) -> list[str]:
    """The packages of a stack that have a wheel without a hash for the Python of the image that is written."""
    assert IMAGE == "ubuntu/24.04", "its Python is 3.12"
    page = yaml.safe_load((paths.data() / f"stacks/{stack}.yml").read_text(encoding="utf-8"))
    found = []
    for name, package in page["packages"].items():
        fitting = [one for one in package["wheels"] if "-cp312-" in one["url"] or "-py3-none-any" in one["url"]]
        assert fitting, name
        if not all(len(one["sha256"]) == 64 for one in fitting):
            found.append(name)
    return found


def test_the_stacks_that_are_written_have_a_hash_of_each_wheel_but_of_exllamav2() -> None:
    assert {form: unknown_hashes(stack) for form, stack in STACKS.items()} == {"exl3": [], "exl2": ["exllamav2"]}


AT = "2026-11-20T08:00:00+00:00"
NAMED = ("--gpu", "RTX 4070")


def seen_by_clients(model: str, engine: str, cache: str, *, card: str = "NVIDIA GeForce RTX 4070", **more: str) -> None:
    """Keep that clients saw an engine write 41.2 tokens in a second."""
    options = {"model": "m", "p": "512", "n": "128", "d": "0", "engine": engine, "cache": cache, **more}
    setting = Setting("box", "EPYC, 4 of them", card, "580.95", "", model, options)
    series = Series("tg128", "tokens/s", (Trial(41.0), Trial(41.2), Trial(44.0)))
    address = Address.of("served", engine)
    keep(history_of("homelab", address), Result(AT, "llm", str(address), setting, (series,)))


def digest_of(folder: Path) -> str:
    """Under which SHA-256 the container's unit names a folder's files: that of the list beside them."""
    files = [folder / name for name in ("config.json", "model.safetensors")]
    return manifest_digest((hashlib.sha256(one.read_bytes()).hexdigest(), one.name) for one in files)


def test_what_clients_saw_of_a_folder_counts_as_it_was_served(world: World, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "models/Eight", 64, **SMALL)
    seen_by_clients(digest_of(folder), "tabbyapi", "FP16")
    (best,) = said(world, str(folder), *NAMED)["ways"]
    assert (best["cache"], best["measured_per_s"], best["measured_by"]) == ("FP16", 41.2, "llm")
    assert world.command("suggest", str(folder), *NAMED).printed == world.snapshot


@pytest.mark.parametrize(
    ("engine", "cache", "more"),
    [
        ("vllm", "FP16", {}),
        ("tabbyapi", "8,8", {}),
        ("tabbyapi", "FP16", {"draft_mode": "ngram"}),
        ("tabbyapi", "FP16", {"card": "NVIDIA GeForce RTX 4060"}),
    ],
)
def test_what_was_served_otherwise_does_not_count(
    world: World, tmp_path: Path, engine: str, cache: str, more: dict[str, str]
) -> None:
    folder = write_model(tmp_path / "models/Eight", 64, **SMALL)
    seen_by_clients(digest_of(folder), engine, cache, **more)
    (best,) = said(world, str(folder), *NAMED)["ways"]
    assert (best["cache"], best["measured_per_s"], best["measured_by"]) == ("FP16", None, None)


def test_a_folder_of_the_file_is_known_by_all_its_files(world: World, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "models/Eight", 64, **SMALL)
    Path("homelab.yml").write_text(
        "name: homelab\nmodels: { eight: { source: 'dir:models/Eight' } }\n"
        "containers: { tabby: { gpu: any, services: { tabbyapi: { model: eight, "
        "api_key: !secret engine_key, admin_key: !secret gateway_key } } } }\n"
    )
    seen_by_clients(digest_of(folder), "tabbyapi", "FP16")
    assert [way["measured_per_s"] for way in said(world, "eight", *NAMED)["ways"]] == [41.2]
    (folder / "tokenizer.json").write_text("{}")
    assert [way["measured_per_s"] for way in said(world, "eight", *NAMED)["ways"]] == [None], "other files"


def test_a_revision_of_a_hub_is_known_by_all_its_files(world: World, hub: FileServer) -> None:
    content = hashlib.sha256(config(**EXL3)).hexdigest()
    seen_by_clients(manifest_digest([(content, "config.json"), ("c" * 64, "model.safetensors")]), "tabbyapi", "FP16")
    (best,) = said(world, f"{REPOSITORY}@4.00bpw", *NAMED)["ways"]
    assert (best["measured_per_s"], best["measured_by"]) == (41.2, "llm")
    assert not [one for one in hub.seen if "safetensors" in one.path], "nothing is downloaded"


def test_figures_of_engines_and_of_clients_are_told_apart(world: World, tmp_path: Path) -> None:
    from tests.unit.cli.test_suggest import head, measured

    folder = write_model(tmp_path / "models/Eight", 64, **SMALL)
    (folder / "eight-Q4_K_M.gguf").write_bytes(head(15))
    seen_by_clients(digest_of(folder), "tabbyapi", "FP16")
    gguf = hashlib.sha256(head(15)).hexdigest()
    measured(manifest_digest([(gguf, "eight-Q4_K_M.gguf")]), "NVIDIA GeForce RTX 4070")
    assert {way["measured_by"] for way in said(world, str(folder), *NAMED)["ways"]} == {"llm", "engine"}
    assert world.command("suggest", str(folder), *NAMED).printed == world.snapshot


def test_a_folder_is_not_hashed_where_none_was_measured(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.cli.test_suggest import measured

    def no_hash(file: Path) -> str:
        raise AssertionError(file)

    monkeypatch.setattr("provisioner.suggest.speeds.sha256_of", no_hash)
    measured("e" * 64, "NVIDIA GeForce RTX 4070")
    folder = write_model(tmp_path / "models/Eight", 64, **SMALL)
    (best,) = said(world, str(folder), *NAMED)["ways"]
    assert best["measured_per_s"] is None
