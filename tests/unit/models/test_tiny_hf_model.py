"""The built-in folder: the same bytes for ever, tensors and tokens that fit each other, one volume with its copy."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Template

from provisioner.catalog import load_catalog
from provisioner.lab import desired_fleet, problems, resolve
from provisioner.lab.opening.model_files import missing_files, read_headers
from provisioner.labfile.spec import Model
from provisioner.models.folders import NO_METHOD, method_in, selected
from provisioner.models.tiny_hf import (
    CONSTANT,
    CONTEXT,
    FOLDER,
    HASHES,
    LAYERS,
    RULED_OUT,
    TOKENS,
    ensure_tiny_folder,
    tiny_folder,
)
from provisioner.values.state import Artifact
from tests.folder_files import CONFIG, write_catalog, write_folder
from tests.lab_files import hashed_models, spec_of

WEIGHTS = "model.safetensors"
SOURCE = "builtin:tiny-hf"
SHAPES = {
    "input_layernorm": [64],
    "post_attention_layernorm": [64],
    "self_attn.q_proj": [64, 64],
    "self_attn.k_proj": [32, 64],
    "self_attn.v_proj": [32, 64],
    "self_attn.o_proj": [64, 64],
    "self_attn.q_norm": [32],
    "self_attn.k_norm": [32],
    "mlp.gate_proj": [128, 64],
    "mlp.up_proj": [128, 64],
    "mlp.down_proj": [64, 128],
}


@pytest.fixture(scope="module")
def contents() -> dict[str, bytes]:
    return tiny_folder()


@pytest.fixture(scope="module")
def table(contents: dict[str, bytes]) -> dict[str, Any]:
    """The table of contents of the weights; without what it says of the whole."""
    (length,) = struct.unpack("<Q", contents[WEIGHTS][:8])
    found: dict[str, Any] = json.loads(contents[WEIGHTS][8 : 8 + length])
    assert found.pop("__metadata__") == {"format": "pt"}
    return found


@pytest.fixture(scope="module")
def tokenizer(contents: dict[str, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(contents["tokenizer.json"])
    return found


def numbers_of(content: bytes, entry: dict[str, Any]) -> list[float]:
    """The weights of one tensor of the file."""
    (length,) = struct.unpack("<Q", content[:8])
    begin, end = entry["data_offsets"]
    halves = struct.iter_unpack("2s", content[8 + length + begin : 8 + length + end])
    whole = b"".join(b"\0\0" + half for (half,) in halves)
    return [number for (number,) in struct.iter_unpack("<f", whole)]


def test_its_bytes_are_the_promised_ones(contents: dict[str, bytes]) -> None:
    assert {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()} == HASHES
    assert sum(map(len, contents.values())) < 1_000_000


def test_engines_of_folders_read_all_of_its_files_in_that_order(contents: dict[str, bytes]) -> None:
    assert selected(HASHES) == list(HASHES)
    assert method_in({CONFIG: contents[CONFIG]}, list(HASHES)) == NO_METHOD


def test_the_tensors_lie_one_behind_the_other_to_the_end(contents: dict[str, bytes], table: dict[str, Any]) -> None:
    (length,) = struct.unpack("<Q", contents[WEIGHTS][:8])
    assert length % 8 == 0
    end = 0
    for entry in table.values():
        assert entry["dtype"] == "BF16"
        assert entry["data_offsets"] == [end, end + 2 * math.prod(entry["shape"])]
        end = entry["data_offsets"][1]
    assert 8 + length + end == len(contents[WEIGHTS])


def test_the_tensors_are_those_of_qwen3_and_of_its_configuration(
    contents: dict[str, bytes], table: dict[str, Any]
) -> None:
    config = json.loads(contents[CONFIG])
    layers = range(config["num_hidden_layers"])
    expected = {f"model.layers.{layer}.{name}.weight": shape for layer in layers for name, shape in SHAPES.items()}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        expected[name] = [config["vocab_size"], config["hidden_size"]]
    expected["model.norm.weight"] = [config["hidden_size"]]
    assert {name: entry["shape"] for name, entry in table.items()} == expected
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["num_attention_heads"] * config["head_dim"] == SHAPES["self_attn.q_proj"][0]
    assert config["num_key_value_heads"] * config["head_dim"] == SHAPES["self_attn.k_proj"][0]
    assert (config["max_position_embeddings"], config["vocab_size"]) == (CONTEXT, TOKENS)
    assert config["tie_word_embeddings"] is False


def test_every_number_is_a_token_and_every_byte_is_one(tokenizer: dict[str, Any]) -> None:
    known = tokenizer["model"]["vocab"]
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    assert sorted([*known.values(), *added.values()]) == list(range(TOKENS))
    assert len({*known, *added}) == TOKENS
    by_number = sorted(known, key=known.__getitem__)
    assert all(len(token) == 1 for token in by_number[:256])
    assert [by_number[byte] for byte in b" \n\0a"] == ["\u0120", "\u010a", "\u0100", "a"]


def test_every_merge_makes_a_token_of_two(tokenizer: dict[str, Any]) -> None:
    known = tokenizer["model"]["vocab"]
    made = [merge.split(" ") for merge in tokenizer["model"]["merges"]]
    assert all(left in known and right in known for left, right in made)
    assert sorted(known[left + right] for left, right in made) == list(range(256, len(known)))
    assert {"\u0120hello", "\u0120world"} <= known.keys()


def test_an_answer_ends_where_all_files_say_so(contents: dict[str, bytes], tokenizer: dict[str, Any]) -> None:
    added = {token["content"]: token for token in tokenizer["added_tokens"]}
    assert list(added) == ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    assert [token["special"] for token in added.values()] == [True, True, True, False, False]
    end_of_turn, end_of_text = added["<|im_end|>"]["id"], added["<|endoftext|>"]["id"]
    assert json.loads(contents[CONFIG])["eos_token_id"] == end_of_turn
    assert json.loads(contents["generation_config.json"])["eos_token_id"] == [end_of_turn, end_of_text]
    assert json.loads(contents["tokenizer_config.json"])["eos_token"] == "<|im_end|>"


def test_only_visible_words_can_be_said(
    contents: dict[str, bytes], table: dict[str, Any], tokenizer: dict[str, Any]
) -> None:
    assert set(numbers_of(contents[WEIGHTS], table["model.embed_tokens.weight"])[::64]) == {CONSTANT}
    column = numbers_of(contents[WEIGHTS], table["lm_head.weight"])[::64]
    assert set(column) == {0.0, RULED_OUT}
    tokens = {number: token for token, number in tokenizer["model"]["vocab"].items()}
    sayable = {tokens.get(number) for number, weight in enumerate(column) if weight == 0}
    assert {"a", "~", "\u0120hello", "\u0120world"} <= sayable
    # Neither what is added (None here), nor a bare space, a line's end or a byte of a longer letter.
    assert sayable.isdisjoint({None, "\u0120", "\u010a", "\u00e4"})


@pytest.mark.parametrize("said", [{}, {"enable_thinking": True}, {"enable_thinking": False}])
def test_the_template_is_chatml_with_thoughts_that_can_be_left_out(
    contents: dict[str, bytes], said: dict[str, bool]
) -> None:
    template = Template(contents["chat_template.jinja"].decode(), trim_blocks=True, lstrip_blocks=True)
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": None}]
    turns = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
    assert template.render(messages=messages) == turns
    thoughts = "<think>\n\n</think>\n\n" if said == {"enable_thinking": False} else ""
    asked = template.render(messages=messages, add_generation_prompt=True, **said)
    assert asked == f"{turns}<|im_start|>assistant\n{thoughts}"


def test_it_is_written_whole_and_readable_by_all(tmp_path: Path, contents: dict[str, bytes]) -> None:
    folder = ensure_tiny_folder(tmp_path / "models")
    assert folder == tmp_path / "models" / FOLDER
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == contents
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o644}


def test_what_is_whole_is_kept_and_only_the_rest_is_written(tmp_path: Path, contents: dict[str, bytes]) -> None:
    folder = ensure_tiny_folder(tmp_path)
    kept = {file.name: file.stat().st_ino for file in folder.iterdir()}
    (folder / WEIGHTS).write_bytes(contents[WEIGHTS][:-1])
    (folder / "tokenizer.json").unlink()
    ensure_tiny_folder(tmp_path)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == contents
    for name in kept.keys() - {WEIGHTS, "tokenizer.json"}:
        assert (folder / name).stat().st_ino == kept[name]


def test_several_may_write_it_at_once(tmp_path: Path, contents: dict[str, bytes]) -> None:
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(ensure_tiny_folder, [tmp_path] * 4))
    (folder,) = folders
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == contents


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog whose engine reads folders of safetensors."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    roles = write_catalog(tmp_path / "roles")
    page = roles / "tabbyapi/meta/service.yml"
    page.write_text(page.read_text().replace("[exl3, exl2]", "[safetensors]"))
    return roles


def artifact_of(source: str, roles: Path) -> tuple[Artifact, str]:
    """What is stored for a model of that source, and what its engine is given."""
    catalog = load_catalog(roles)
    containers = {"a": {"services": {"tabbyapi": {"model": "m"}}}}
    written = {"name": "lab", "models": {"m": {"source": source, "format": "safetensors"}}, "containers": containers}
    spec = spec_of(written, catalog)
    lab = resolve(spec, catalog)
    assert problems(lab) == []
    assert list(missing_files(spec.models)) == []
    headers, broken = read_headers(spec.models)
    assert (headers["m"].context, headers["m"].layers, broken) == (CONTEXT, LAYERS, [])
    fleet = desired_fleet(lab, hashed_models(spec.models, {}))
    return fleet.artifacts[0], fleet.instances[0].services[-1].variables["tabbyapi_model"]


def test_it_is_stored_and_given_as_a_copy_of_it_is(tmp_path: Path, engine: Path) -> None:
    made, given = artifact_of(SOURCE, engine)
    assert given == made.mounted_at
    folder = tmp_path / "cache/provisioner/models" / FOLDER
    variables = made.variables
    stored = [variables["model_store_source"], *(part["source"] for part in variables["model_store_rest"])]
    assert stored == [str(folder / name) for name in HASHES]
    assert variables["model_store_sha256"] == HASHES[CONFIG]
    assert made.resumable is False
    copied = shutil.copytree(folder, tmp_path / "copied")
    copy, given_copy = artifact_of(f"dir:{copied}", engine)
    assert (copy.volume, given_copy) == (made.volume, given)


def test_what_lies_beside_its_files_is_no_part_of_it(tmp_path: Path, engine: Path) -> None:
    before, _ = artifact_of(SOURCE, engine)
    write_folder(tmp_path / "cache/provisioner/models" / FOLDER, {"vocab.json": b"{}", ".config.json-x": b""})
    assert artifact_of(SOURCE, engine)[0].volume == before.volume


def test_its_format_is_known() -> None:
    assert Model(source=SOURCE).format == "safetensors"
