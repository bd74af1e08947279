"""The built-in model: the same bytes for ever, and a file that GGUF's own library reads."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from provisioner.models.tiny import CONTEXT, FILENAME, SHA256, ensure_tiny_model, tiny_model


def test_its_bytes_are_the_promised_ones() -> None:
    assert hashlib.sha256(tiny_model()).hexdigest() == SHA256


def test_it_is_written_whole_and_readable_by_all(tmp_path: Path) -> None:
    file = ensure_tiny_model(tmp_path / "models")
    assert file == tmp_path / "models" / FILENAME
    assert file.read_bytes() == tiny_model()
    assert file.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in file.parent.iterdir()] == [FILENAME]


def test_a_whole_one_is_kept_and_a_broken_one_replaced(tmp_path: Path) -> None:
    file = ensure_tiny_model(tmp_path)
    first = file.stat().st_ino
    assert ensure_tiny_model(tmp_path).stat().st_ino == first
    file.write_bytes(file.read_bytes()[:-1])
    assert ensure_tiny_model(tmp_path).read_bytes() == tiny_model()


def test_gguf_reads_every_tensor(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the library gguf is not installed")
    reader = gguf.GGUFReader(ensure_tiny_model(tmp_path))
    assert reader.get_field("general.architecture").contents() == "llama"
    assert reader.get_field("llama.context_length").contents() == CONTEXT
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    assert len(tokens) == len(set(tokens)) == reader.get_field("llama.vocab_size").contents()
    shapes = {tensor.name: tuple(int(extent) for extent in tensor.shape) for tensor in reader.tensors}
    assert shapes["output.weight"] == (64, len(tokens))
    assert shapes["blk.1.ffn_down.weight"] == (128, 64)
    assert all(0 < abs(float(tensor.data.astype("float64").sum())) < 1e5 for tensor in reader.tensors)


def test_only_visible_words_can_be_said(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the library gguf is not installed")
    reader = gguf.GGUFReader(ensure_tiny_model(tmp_path))
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    output = next(tensor.data for tensor in reader.tensors if tensor.name == "output.weight")
    sayable = {token for token, row in zip(tokens, output, strict=True) if row[0] >= 0}
    assert {"a", "hello", "\u2581world"} <= sayable
    assert sayable.isdisjoint({"<unk>", "<s>", "</s>", "<0x0A>", "\u2581"})
