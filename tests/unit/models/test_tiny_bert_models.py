"""The built-in models of embeddings and of scores: the same bytes for ever, files that say what they are made for."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path

import pytest

from provisioner.lab.opening.model_files import find_models, read_headers
from provisioner.labfile.spec import Model
from provisioner.models.gguf import read_header
from provisioner.models.header import Header
from provisioner.models.tiny import SPACE
from provisioner.models.tiny_bert import RATED, TINY_BERTS
from tests.lab_files import spec_of

SOURCES = tuple(TINY_BERTS)


def models_of(source: str) -> dict[str, Model]:
    file = {"name": "lab", "models": {"m": {"source": source}}, "containers": {}}
    return dict(spec_of(file).models)


@pytest.mark.parametrize("source", SOURCES)
def test_its_bytes_are_the_promised_ones(source: str) -> None:
    made = TINY_BERTS[source]
    assert hashlib.sha256(made.make()).hexdigest() == made.sha256


@pytest.mark.parametrize("source", SOURCES)
def test_it_is_a_model_of_a_lab(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = find_models(models_of(source), {}).files["m"]
    assert found.sha256 == TINY_BERTS[source].sha256
    assert Path(found.path).read_bytes() == TINY_BERTS[source].make()


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_said_of_it_without_its_file_is_what_its_file_says(source: str, tmp_path: Path) -> None:
    headers, broken = read_headers(models_of(source))
    of_file = read_header(TINY_BERTS[source].ensure(tmp_path))
    assert broken == []
    compared = [field.name for field in fields(Header) if field.compare]
    assert [getattr(headers["m"], name) for name in compared] == [getattr(of_file, name) for name in compared]
    assert headers["m"].tokens == of_file.tokens
    assert headers["m"].values.items() <= of_file.values.items()


def test_gguf_reads_every_tensor_of_both(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the library gguf is not installed")
    for made in TINY_BERTS.values():
        reader = gguf.GGUFReader(made.ensure(tmp_path))
        assert reader.get_field("bert.pooling_type").contents() == made.pooling
        shapes = {tensor.name: tuple(int(extent) for extent in tensor.shape) for tensor in reader.tensors}
        tokens = reader.get_field("tokenizer.ggml.tokens").contents()
        assert shapes["token_embd.weight"] == (32, len(tokens))
        assert ("cls.output.weight" in shapes) == (made.name == "tiny-rerank")


def test_the_reranker_rates_its_words_alone(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the library gguf is not installed")
    reader = gguf.GGUFReader(TINY_BERTS["builtin:tiny-rerank"].ensure(tmp_path))
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    rated = [token for token, row in zip(tokens, tensors["token_embd.weight"], strict=True) if row[2] > 0]
    assert sorted(rated) == sorted(SPACE + word for word in RATED)
    assert tensors["cls.output.weight"].max() > 0 == tensors["cls.output.weight"].min()
