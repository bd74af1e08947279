"""``builtin:tiny-embedding`` and ``builtin:tiny-rerank``: GGUFs of architecture ``bert``, made on the spot.

Both are a few hundred kilobytes, written by this module and ``tiny`` alone, and the same bytes everywhere: the hashes
are constants, held by a test.

The embedding model has random weights and the mean of all tokens for its vector. The reranker is made by hand. Its
attention is the plain mean of all tokens, to which each of ``RATED`` gives 1 and all others nothing; the score follows
that mean. So a document with these words comes first, and would come last if the sign of the last matrix were wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from provisioner.models.header import Header
from provisioner.models.sources import TINY_EMBEDDING, TINY_RERANK
from provisioner.models.tiny import (
    SPACE,
    RandomTensor,
    Token,
    Value,
    bool_value,
    ensure_file,
    float_bytes,
    float_value,
    gguf_file,
    text_value,
    tokenizer,
    uint_value,
    vocabulary,
)

ARCHITECTURE, ARCHITECTURE_KEY = "bert", "general.architecture"
EMBEDDING = 32
LAYERS = 1
HEADS = 1
FEED_FORWARD = 32
CONTEXT = 4096
MEAN, RANK = 1, 4
"""How the vectors of all tokens become one, as the key ``bert.pooling_type`` says it."""
RATED = ("Paris", "capital", "France")
SPREAD = 0.5
GAIN = 4.0
"""By how much the reranker multiplies its mean, so that scores are as far apart as those of other models."""

_CONSTANT, _RATING, _MEAN = 0, 2, 4
"""Each thing takes two columns, with its sign and with the other: so each row's mean is 0, as its norm wants it."""

Weights = dict[tuple[int, ...], float]
"""Weights of a tensor by row and column, of a vector by column."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    weights: Weights
    """Those that are not 0."""

    @property
    def content(self) -> bytes:
        numbers = [0.0] * math.prod(self.shape)
        for place, weight in self.weights.items():
            row, column = (0, *place)[-2:]
            numbers[row * self.shape[-1] + column] = weight
        return float_bytes(numbers)


class _Random(RandomTensor):
    __slots__ = ()

    @property
    def content(self) -> bytes:
        return float_bytes(self.weights)


@dataclass(frozen=True, slots=True)
class TinyBert:
    """One of the two models: its name, the hash of its file, how it pools, and what makes it."""

    name: str
    sha256: str
    pooling: int
    make: Callable[[], bytes]

    @property
    def filename(self) -> str:
        """The name of its file."""
        return f"{self.name}.gguf"

    @property
    def header(self) -> Header:
        """What its file says of it, known without the file."""
        metadata = {"block_count": LAYERS, "context_length": CONTEXT, "embedding_length": EMBEDDING}
        metadata |= {"feed_forward_length": FEED_FORWARD, "attention.head_count": HEADS, "pooling_type": self.pooling}
        values = {ARCHITECTURE_KEY: ARCHITECTURE, **{f"{ARCHITECTURE}.{name}": one for name, one in metadata.items()}}
        size = EMBEDDING // HEADS
        return Header(ARCHITECTURE, LAYERS, CONTEXT, size, size, values=values, tokens=len(_tokens()))

    def ensure(self, folder: Path) -> Path:
        """Its file in ``folder``, written there unless it is there whole."""
        return ensure_file(folder / self.filename, self.sha256, self.make)


def tiny_embedding() -> bytes:
    """The whole file of the model of embeddings."""
    tokens = _tokens()
    tensors = [_Random(name, shape, spread=SPREAD) for name, shape in _matrices(len(tokens)).items()]
    return gguf_file(list(_metadata("tiny-embedding", MEAN, tokens)), [*tensors, *_norms()])


def tiny_rerank() -> bytes:
    """The whole file of the reranker."""
    tokens = _tokens()
    weights = _hand_made(tokens)
    tensors = [_Tensor(name, shape, weights.get(name, {})) for name, shape in _matrices(len(tokens)).items()]
    head = _Tensor("cls.output.weight", (1, EMBEDDING), {(_MEAN,): GAIN})
    return gguf_file(list(_metadata("tiny-rerank", RANK, tokens)), [*tensors, head, *_norms()])


def _hand_made(tokens: list[Token]) -> dict[str, Weights]:
    """What makes the reranker rate: each token's rating is passed on by attention, into columns that had nothing."""
    rated = {SPACE + word for word in RATED}
    embeddings: Weights = {}
    for row, (text, _, _) in enumerate(tokens):
        embeddings |= _both(row, _CONSTANT, 1.0) | (_both(row, _RATING, 1.0) if text in rated else {})
    passed_on: Weights = {(_MEAN, _MEAN): 1.0, (_MEAN + 1, _MEAN): -1.0}
    values: Weights = {(_MEAN, _RATING): 1.0}
    return {
        "token_embd.weight": embeddings,
        "blk.0.attn_v.weight": values,
        "blk.0.attn_output.weight": passed_on,
    }


def _both(row: int, column: int, weight: float) -> Weights:
    return {(row, column): weight, (row, column + 1): -weight}


def _tokens() -> list[Token]:
    """Each rated word with all that it begins with, from which the tokenizer puts it together."""
    pieces = [SPACE + word[:length] for word in RATED for length in range(1, len(word) + 1)]
    return vocabulary(list(dict.fromkeys(pieces)))


def _matrices(tokens: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (tokens, EMBEDDING),
        "position_embd.weight": (CONTEXT, EMBEDDING),
    }
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{layer}.{name}.weight"] = (EMBEDDING, EMBEDDING)
        shapes[f"blk.{layer}.ffn_up.weight"] = (FEED_FORWARD, EMBEDDING)
        shapes[f"blk.{layer}.ffn_down.weight"] = (EMBEDDING, FEED_FORWARD)
    return shapes


def _norms() -> Iterator[_Tensor]:
    """Norms that change nothing beside making vectors equally long."""
    layers = [f"blk.{layer}.{name}" for layer in range(LAYERS) for name in ("attn_output_norm", "layer_output_norm")]
    for name in ("token_embd_norm", *layers):
        yield _Tensor(f"{name}.weight", (EMBEDDING,), {(column,): 1.0 for column in range(EMBEDDING)})
        yield _Tensor(f"{name}.bias", (EMBEDDING,), {})


def _metadata(name: str, pooling: int, tokens: list[Token]) -> Iterator[tuple[str, Value]]:
    yield ARCHITECTURE_KEY, text_value(ARCHITECTURE)
    yield "general.name", text_value(name)
    yield "general.file_type", uint_value(0)
    yield "bert.context_length", uint_value(CONTEXT)
    yield "bert.embedding_length", uint_value(EMBEDDING)
    yield "bert.block_count", uint_value(LAYERS)
    yield "bert.feed_forward_length", uint_value(FEED_FORWARD)
    yield "bert.attention.head_count", uint_value(HEADS)
    yield "bert.attention.layer_norm_epsilon", float_value(1e-5)
    yield "bert.attention.causal", bool_value(value=False)
    yield "bert.pooling_type", uint_value(pooling)
    yield "tokenizer.ggml.token_type_count", uint_value(1)
    yield from tokenizer(tokens, ends=True)


TINY_BERTS: Mapping[str, TinyBert] = {
    TINY_EMBEDDING: TinyBert(
        "tiny-embedding", "72070a90309ce222ed7d53119f69306261c37fbb7e344e8e6576e0cf57e9f8f1", MEAN, tiny_embedding
    ),
    TINY_RERANK: TinyBert(
        "tiny-rerank", "55df16654e9fc74e97acdb68cff10b71d543ab476ced18d10a33fc8475f62ca4", RANK, tiny_rerank
    ),
}
"""The models by their sources."""
