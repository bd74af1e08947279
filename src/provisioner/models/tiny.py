"""``builtin:tiny``: a random-weight GGUF that llama.cpp serves, so that a lab can be proved without a download.

It answers gibberish, at once, and never stops before its limit. The bytes are written by this module alone (no numpy,
no gguf), so they are the same everywhere and for ever: ``SHA256`` is a constant, held by a test.

The format is GGUF 3, the architecture ``llama``. The vocabulary is SentencePiece-like: three control tokens, the
256 byte tokens (so that any text has tokens), printable ASCII and a few words.

``builtin:tiny-thinking`` is the same model with another chat template, which has it think unless it is told not to, and
with a token for the beginning and for the end of a thought, as models that think have.

``RandomTensor`` and ``ensure_file`` serve the other built-in models as well, what writes a GGUF those of ``tiny_bert``.
"""

from __future__ import annotations

import hashlib
import math
import os
import string
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

FILENAME = "tiny.gguf"
THINKING_FILENAME = "tiny-thinking.gguf"
THINKING_SHA256 = "bbde9c347fa34f874bbfb90eb4312d97f70a460f18fd0eac7ae5257856fa91a5"
SHA256 = "6113584e2b24f1c91e7fab0b3be8f7f24be2fdf8833a2cc96e2910a2d1e53edb"

EMBEDDING = 64
LAYERS = 2
HEADS = 2
FEED_FORWARD = 128
CONTEXT = 4096
TOKENS = 372
THOUGHT = ("<think>", "</think>")
"""How a thought begins and ends."""
SPREAD = 0.0866  # uniform in ±this: a standard deviation of 0.05, with which no activation runs away

CONSTANT = 2.0
RULED_OUT = -4.0

_MAGIC, _VERSION, _ALIGNMENT = b"GGUF", 3, 32
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9  # types of GGUF's metadata
_F32 = 0  # type of a tensor
_NORMAL, _UNKNOWN, _CONTROL, _OWN, _BYTE = 1, 2, 3, 4, 6  # types of a token
_WORDS = ("hello", "world", "the", "a", "yes", "no", "ok", "test")
_PIECES = ("he", "ll", "wor", "ld", "th", "es", "hell", "hello", "world", "test")
SPACE = "\u2581"
_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
# It shows earlier thoughts, from which llama.cpp learns how they are written.
_THINKING_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if message['reasoning_content'] %}"
    "{{ '<think>\\n' + message['reasoning_content'] + '\\n</think>\\n\\n' }}{% endif %}"
    "{{ message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><think>\\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '\\n</think>\\n\\n' }}{% endif %}{% endif %}"
)

Token = tuple[str, float, int]
"""Text, score and type."""
Value = tuple[int, bytes]
"""A value of GGUF's metadata: its type and its bytes."""


@dataclass(frozen=True, slots=True)
class RandomTensor:
    """A tensor of a built-in model by its name and shape."""

    name: str
    shape: tuple[int, ...]  # rows first
    first_column: tuple[float, ...] = ()  # in place of the random one
    spread: float = SPREAD

    @property
    def weights(self) -> list[float]:
        """Its weights row by row: uniform in ±``spread`` but for the first column, and 1 in the vector of a norm."""
        count = math.prod(self.shape)
        if len(self.shape) == 1:
            return [1.0] * count
        numbers = struct.unpack(f"<{count}H", hashlib.shake_256(self.name.encode()).digest(2 * count))
        weights = [(number / 32767.5 - 1) * self.spread for number in numbers]
        for row, weight in enumerate(self.first_column):
            weights[row * self.shape[1]] = weight
        return weights


class Tensor(Protocol):
    """A tensor of a built-in model by its name and shape, rows first, with the bytes of its weights."""

    @property
    def name(self) -> str:
        """Its name in the file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """How many rows, and how long each is."""

    @property
    def content(self) -> bytes:
        """All of its weights, row after row."""


class _Tensor(RandomTensor):
    __slots__ = ()

    @property
    def content(self) -> bytes:
        return float_bytes(self.weights)


def ensure_file(file: Path, sha256: str, make: Callable[[], bytes]) -> Path:
    """The file, written with what ``make`` gives unless it is there whole."""
    if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == sha256:
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    # Two runs may write at once: each its own file, and either may have the last word, as both are the same.
    import tempfile  # nobody needs it to say what the model is

    handle, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    with os.fdopen(handle, "wb") as stream:
        stream.write(make())
    Path(partial).chmod(0o644)
    return Path(partial).replace(file)


def ensure_tiny_model(folder: Path) -> Path:
    """The model's file in ``folder``, written there unless it is there whole."""
    return ensure_file(folder / FILENAME, SHA256, tiny_model)


def tiny_model() -> bytes:
    """The whole file."""
    tokens = vocabulary([*(SPACE + word for word in _WORDS), *_PIECES])
    return gguf_file(list(_metadata("tiny", tokens, _TEMPLATE)), _tensors(tokens))


def ensure_tiny_thinking(folder: Path) -> Path:
    """The file of the model that thinks in ``folder``, written there unless it is there whole."""
    return ensure_file(folder / THINKING_FILENAME, THINKING_SHA256, tiny_thinking_model)


def tiny_thinking_model() -> bytes:
    """The whole file of the model that thinks."""
    tokens = vocabulary([*(SPACE + word for word in _WORDS), *_PIECES])
    tokens += [(text, 0.0, _OWN) for text in THOUGHT]
    return gguf_file(list(_metadata("tiny-thinking", tokens, _THINKING_TEMPLATE)), _tensors(tokens))


def gguf_file(metadata: Sequence[tuple[str, Value]], tensors: Sequence[Tensor]) -> bytes:
    """A whole GGUF of keys with their values and of tensors, which lie in it as 32-bit numbers."""
    pairs = b"".join(_pair(name, value) for name, value in metadata)
    head = _MAGIC + struct.pack("<IQQ", _VERSION, len(tensors), len(metadata)) + pairs
    contents, offset = [], 0
    for tensor in tensors:
        head += _text(tensor.name) + struct.pack("<I", len(tensor.shape))
        head += struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape)) + struct.pack("<IQ", _F32, offset)
        contents.append(_padded(tensor.content))
        offset += len(contents[-1])
    return _padded(head) + b"".join(contents)


def float_bytes(numbers: Sequence[float]) -> bytes:
    """Numbers as a tensor has them."""
    return struct.pack(f"<{len(numbers)}f", *numbers)


def vocabulary(words: Sequence[str]) -> list[Token]:
    """Control tokens, the 256 bytes, printable ASCII and ``words``, of which the first are preferred."""
    pieces = [SPACE, *(one for one in string.printable if one.isprintable() and one != " "), *words]
    return [
        ("<unk>", 0.0, _UNKNOWN),
        ("<s>", 0.0, _CONTROL),
        ("</s>", 0.0, _CONTROL),
        *((f"<0x{byte:02X}>", 0.0, _BYTE) for byte in range(256)),
        *((piece, -float(rank), _NORMAL) for rank, piece in enumerate(pieces, 1)),
    ]


def _tensors(tokens: Sequence[Token]) -> list[_Tensor]:
    # Every token carries a constant in its first dimension, by which the last matrix rules out what must not be said:
    # an answer is visible text and only its limit ends it, so that "it answered something" can be relied on.
    constant = (CONSTANT,) * len(tokens)
    ruled_out = tuple(0.0 if kind == _NORMAL and text != SPACE else RULED_OUT for text, _, kind in tokens)
    tensors = [
        _Tensor("token_embd.weight", (len(tokens), EMBEDDING), constant),
        _Tensor("output_norm.weight", (EMBEDDING,)),
        _Tensor("output.weight", (len(tokens), EMBEDDING), ruled_out),
    ]
    for layer in range(LAYERS):
        shapes: dict[str, tuple[int, ...]] = {
            "attn_norm": (EMBEDDING,),
            **dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (EMBEDDING, EMBEDDING)),
            "ffn_norm": (EMBEDDING,),
            **dict.fromkeys(("ffn_gate", "ffn_up"), (FEED_FORWARD, EMBEDDING)),
            "ffn_down": (EMBEDDING, FEED_FORWARD),
        }
        tensors += [_Tensor(f"blk.{layer}.{name}.weight", shape) for name, shape in shapes.items()]
    return tensors


def _metadata(name: str, tokens: Sequence[Token], template: str) -> Iterator[tuple[str, Value]]:
    yield "general.architecture", text_value("llama")
    yield "general.name", text_value(name)
    yield "general.file_type", uint_value(0)
    yield "llama.context_length", uint_value(CONTEXT)
    yield "llama.embedding_length", uint_value(EMBEDDING)
    yield "llama.block_count", uint_value(LAYERS)
    yield "llama.feed_forward_length", uint_value(FEED_FORWARD)
    yield "llama.attention.head_count", uint_value(HEADS)
    yield "llama.attention.head_count_kv", uint_value(HEADS)
    yield "llama.attention.layer_norm_rms_epsilon", float_value(1e-5)
    yield "llama.rope.dimension_count", uint_value(EMBEDDING // HEADS)
    yield "llama.vocab_size", uint_value(len(tokens))
    yield from tokenizer(tokens)
    yield "tokenizer.chat_template", text_value(template)


def tokenizer(tokens: Sequence[Token], *, ends: bool = False) -> Iterator[tuple[str, Value]]:
    """The keys of a tokenizer with this vocabulary, which begins each text, and ends it where ``ends`` says so."""
    yield "tokenizer.ggml.model", text_value("llama")
    yield "tokenizer.ggml.pre", text_value("default")
    yield "tokenizer.ggml.tokens", _array(_STRING, [_text(text) for text, _, _ in tokens])
    yield "tokenizer.ggml.scores", _array(_FLOAT32, [struct.pack("<f", score) for _, score, _ in tokens])
    yield "tokenizer.ggml.token_type", _array(_INT32, [struct.pack("<i", kind) for _, _, kind in tokens])
    yield "tokenizer.ggml.bos_token_id", uint_value(1)
    yield "tokenizer.ggml.eos_token_id", uint_value(2)
    yield "tokenizer.ggml.unknown_token_id", uint_value(0)
    yield "tokenizer.ggml.add_bos_token", bool_value(value=True)
    yield "tokenizer.ggml.add_eos_token", bool_value(value=ends)


def _pair(name: str, value: Value) -> bytes:
    kind, content = value
    return _text(name) + struct.pack("<I", kind) + content


def uint_value(number: int) -> Value:
    """A number that is not negative, as GGUF's metadata has it."""
    return _UINT32, struct.pack("<I", number)


def float_value(number: float) -> Value:
    """A number with a fraction, as GGUF's metadata has it."""
    return _FLOAT32, struct.pack("<f", number)


def bool_value(*, value: bool) -> Value:
    """Yes or no, as GGUF's metadata has it."""
    return _BOOL, bytes([value])


def text_value(text: str) -> Value:
    """A text, as GGUF's metadata has it."""
    return _STRING, _text(text)


def _array(kind: int, items: Sequence[bytes]) -> Value:
    return _ARRAY, struct.pack("<IQ", kind, len(items)) + b"".join(items)


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % _ALIGNMENT)
