"""A GGUF file's head is read, and whatever is wrong with one is told in words, wherever the file ends or is damaged."""

from __future__ import annotations

import os
import random
import struct
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from provisioner.lab.opening.model_files import read_headers
from provisioner.labfile.spec import Model
from provisioner.models.gguf import read_header
from provisioner.models.header import GgufError, Header
from provisioner.models.tiny import EMBEDDING, TOKENS, tiny_model
from tests.gguf_bytes import gguf_bytes, model_bytes, projector_bytes


def read(folder: Path, content: bytes) -> Header:
    file = folder / "model.gguf"
    file.write_bytes(content)
    return read_header(file)


def refused(folder: Path, content: bytes) -> str:
    with pytest.raises(GgufError) as caught:
        read(folder, content)
    return str(caught.value)


def test_the_built_in_model_is_what_its_module_says(tmp_path: Path) -> None:
    known, broken = read_headers({"tiny": Model(source="builtin:tiny")})
    assert broken == []
    found = read(tmp_path, tiny_model())
    assert found == known["tiny"] == Header("llama", 2, 4096, 32, 32)
    assert found.tokens == known["tiny"].tokens == TOKENS
    assert found.tensors["output.weight"] == TOKENS * EMBEDDING * 4
    assert sum(found.tensors.values()) == found.parameters * 4


def test_head_sizes_are_written_or_follow_from_the_heads(tmp_path: Path) -> None:
    assert read(tmp_path, model_bytes()).key_size == 32
    written = read(tmp_path, model_bytes(attention__key_length=192, attention__value_length=128, expert_count=8))
    assert (written.key_size, written.value_size, written.experts) == (192, 128, 8)


def test_layers_that_differ_are_read_by_the_first_that_has_heads(tmp_path: Path) -> None:
    assert read(tmp_path, model_bytes(attention__head_count=[0, 4, 4])).key_size == 16


def test_a_model_without_heads_has_no_head_size(tmp_path: Path) -> None:
    found = read(tmp_path, gguf_bytes({"general.architecture": "mamba", "mamba.embedding_length": 64}))
    assert found == Header("mamba")


def test_a_projector_is_told_from_a_model(tmp_path: Path) -> None:
    assert read(tmp_path, projector_bytes(64)).is_projector
    assert not read(tmp_path, model_bytes()).is_projector


def test_a_part_of_a_model_knows_of_the_others(tmp_path: Path) -> None:
    assert read(tmp_path, gguf_bytes({"general.architecture": "llama", "split.count": 3})).parts == 3


def test_tensors_of_all_parts_are_those_of_the_model(tmp_path: Path) -> None:
    for part in (1, 2):
        content = gguf_bytes({"general.architecture": "llama", "split.count": 2}, {f"blk.{part}.a": (4, 8 * part)})
        (tmp_path / f"a-0000{part}-of-00002.gguf").write_bytes(content)
    found = read_headers({"m": Model(source=f"file:{tmp_path}/a-00001-of-00002.gguf")})[0]["m"]
    assert (dict(found.tensors), found.parameters) == ({"blk.1.a": 128, "blk.2.a": 256}, 96)


def test_a_list_of_tensors_that_no_model_has_is_not_read(tmp_path: Path) -> None:
    whole = bytearray(gguf_bytes({"general.architecture": "llama"}))
    struct.pack_into("<Q", whole, 8, 2**40)
    assert refused(tmp_path, bytes(whole)) == f"its head counts {2**40} tensors, more than any model has"


def test_gguf_files_of_the_librarys_writer_are_read(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the library gguf is not installed")
    numpy = pytest.importorskip("numpy", reason="the library numpy is not installed")
    writer = gguf.GGUFWriter(tmp_path / "written.gguf", "qwen3")
    writer.add_context_length(32768)
    writer.add_block_count(4)
    writer.add_key_length(80)
    writer.add_token_list([f"token {number}" for number in range(5000)])
    writer.add_token_scores([0.0] * 5000)
    writer.add_tensor("token_embd.weight", numpy.zeros((8, 8), dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert read_header(tmp_path / "written.gguf") == Header("qwen3", 4, 32768, 80)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"PK\x03\x04 a zip", "begins with b'PK\\x03\\x04'"),
        (b"GG", "begins with b'GG'"),
        (b"GGUF", "ends after 4 bytes"),
        (gguf_bytes({}, version=1), "version 1"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "version 50331648"),
        (gguf_bytes({}), "does not name its architecture"),
        (gguf_bytes({"general.architecture": 7}), "does not name its architecture"),
        (gguf_bytes({"general.architecture": "llama", "general.alignment": 0}), "alignment is 0"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**63), "more than any model has"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**15), "in the middle of its head"),
        (struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 2**64 - 1), "in the middle of its head"),
        (struct.pack("<4sIQQQ1sI", b"GGUF", 3, 0, 1, 1, b"x", 99), "type 99"),
        (struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"x", 9, 9, 1), "no list can hold"),
        (struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"x", 9, 4, 2**62), "in the middle of its head"),
        (struct.pack("<4sIQQQ1s", b"GGUF", 3, 0, 1, 1, b"\xff"), "no UTF-8"),
    ],
)
def test_what_is_no_gguf_is_told_in_words(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in refused(tmp_path, content)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**60), "counts 1152921504606846976 keys"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 2**60, 0), "counts 1152921504606846976 tensors"),
        (struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"x", 9, 8, 2**60), "counts more texts than any model"),
        (struct.pack("<4sIQQQ1sIQ", b"GGUF", 3, 0, 1, 1, b"x", 8, 2**39), "its head does not end within"),
        (struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"x", 9, 4, 2**38), "its head does not end within"),
    ],
    ids=["keys", "tensors", "texts", "a text", "numbers"],
)
def test_a_file_that_claims_more_than_any_model_has_is_left_at_once(tmp_path: Path, head: bytes, words: str) -> None:
    file = tmp_path / "sparse.gguf"
    file.write_bytes(head)
    os.truncate(file, 2**42)  # holes are zeros, and each is a text of no length
    began = time.process_time()
    with pytest.raises(GgufError, match=words):
        read_header(file)
    assert time.process_time() - began < 5


LISTS = struct.pack("<Q1sIIQ4096x", 1, b"x", 9, 0, 4096) * 60_000
"""Keys with lists of as many small numbers as are kept: each is a byte in the file, and more in memory."""


@pytest.mark.parametrize(
    "head",
    [
        struct.pack("<4sIQQQ1sIQ", b"GGUF", 3, 0, 1, 1, b"x", 8, 200 << 20),
        struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 200 << 20),
        struct.pack("<4sIQQQ", b"GGUF", 3, 1, 0, 200 << 20),
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 60_000) + LISTS,
    ],
    ids=["a text", "a key", "a tensor's name", "lists"],
)
def test_a_head_costs_no_more_memory_than_a_model_s_can(tmp_path: Path, head: bytes) -> None:
    """The fuzz found one of 148 kB that took 645 MiB: a text of 215 MiB, of which nearly all was a hole."""
    file = tmp_path / "sparse.gguf"
    file.write_bytes(head)
    os.truncate(file, 2**42)
    tracemalloc.start()
    try:
        with pytest.raises(GgufError, match="holds more than 32 MiB of texts and numbers"):
            read_header(file)
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


def test_a_file_that_was_cut_off_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = model_bytes()
    assert read(tmp_path, whole)
    for length in range(len(whole) - 32 + 1):  # the last tensor is as long as that
        assert "ends after" in refused(tmp_path, whole[:length]) or length < len(b"GGUF")


def test_damaged_bytes_give_an_answer_or_the_one_error_never_another(tmp_path: Path) -> None:
    chance = random.Random(5)  # noqa: S311  # the same damage at each run
    whole = model_bytes()
    for _ in range(3000):
        content = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        with suppress(GgufError):
            assert isinstance(read(tmp_path, bytes(content)), Header)


def test_a_broken_file_is_a_problem_of_its_model(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(model_bytes()[:100])
    models = {"broken": Model(source=f"file:{file}"), "absent": Model(source=f"file:{tmp_path}/absent.gguf")}
    headers, problems = read_headers(models)
    assert headers == {}
    assert [one.path for one in problems] == [("models", "broken", "source")]
    assert problems[0].message == f"{file} is no usable GGUF file: it ends after 100 bytes, in the middle of its head"


@pytest.mark.parametrize(("name", "parts"), [("a.gguf", 3), ("a-00001-of-00003.gguf", 1), ("a-00001-of-00003.gguf", 2)])
def test_a_part_that_is_called_otherwise_is_a_problem(tmp_path: Path, name: str, parts: int) -> None:
    file = tmp_path / name
    file.write_bytes(gguf_bytes({"general.architecture": "llama", "split.count": parts}))
    problems = read_headers({"m": Model(source=f"file:{file}")})[1]
    assert problems[0].message.startswith(f"its head says that it is one of {parts} files, its name of ")
    file.write_bytes(gguf_bytes({"general.architecture": "llama", "split.count": 1 if name == "a.gguf" else 3}))
    assert read_headers({"m": Model(source=f"file:{file}")})[1] == []


@pytest.mark.parametrize(
    ("values", "tensors", "words"),
    [
        ({"general.architecture": "llama", "llama.block_count": 2}, {"blk.0.x": (8,), "blk.1.x": (8,)}, ""),
        ({"general.architecture": "llama"}, {"output.weight": (8,)}, ""),
        ({"general.architecture": "qwen35", "qwen35.block_count": 65}, {"blk.64.x": (8,)}, "it only drafts"),
        ({"general.architecture": "llama", "split.count": 2}, {"blk.64.x": (8,)}, ""),
        ({"general.architecture": "dflash"}, {"blk.0.x": (8,)}, "it only drafts"),
        (
            {"general.architecture": "qwen35", "qwen35.block_count": 1, "qwen35.nextn_predict_layers": 1},
            {"blk.0.x": (8,)},
            "it only drafts",
        ),
        ({"general.architecture": "a", "a.block_count": 1, "a.nextn_predict_layers": [1, 2]}, {"blk.0.x": (8,)}, ""),
        ({"general.architecture": "controlvector"}, {"direction.1": (8,)}, "it only steers"),
        ({"general.architecture": "gemma4-assistant"}, {"blk.0.x": (8,)}, "it only drafts"),
        ({"general.architecture": "qwen3", "general.type": "adapter"}, {"blk.0.x.lora_a": (8,)}, "it is an adapter"),
        ({"general.architecture": "imatrix", "general.type": "imatrix"}, {"blk.0.x": (8,)}, "it only says which"),
        ({"general.architecture": "clip", "general.type": "mmproj"}, {"v.blk.0.x": (8,)}, "it only turns images"),
        ({"general.architecture": "llama", "tokenizer.ggml.tokens": ["a"]}, {}, "it has no weights"),
        ({"general.architecture": "llama", "split.count": 2}, {}, ""),
    ],
)
def test_the_head_tells_what_only_helps_a_model(
    tmp_path: Path, values: dict[str, Any], tensors: dict[str, tuple[int, ...]], words: str
) -> None:
    found = read(tmp_path, gguf_bytes(values, tensors)).helps
    assert found.startswith(words)
    assert bool(found) == bool(words)
