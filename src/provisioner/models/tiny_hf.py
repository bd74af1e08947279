"""``builtin:tiny-hf``: a random-weight folder that vLLM serves, so that a lab can be proved without a download.

It answers gibberish, and never stops before its limit. The bytes are written by this module alone (no torch, no
transformers), so they are the same everywhere and for ever: ``HASHES`` are constants, held by a test.

The layout is Hugging Face's, the architecture ``Qwen3ForCausalLM`` in bfloat16. The vocabulary is a byte-level BPE:
the 256 bytes (so that any text has tokens), common words with all their beginnings, and the tokens of ChatML.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from provisioner.models.tiny import RandomTensor, ensure_file

FOLDER = "tiny-hf"
HASHES: Mapping[str, str] = {
    "config.json": "4d70a3f39442c9114bafca110dbbdc686a1437dcd4b956f433b5514f5bd850a1",
    "chat_template.jinja": "80b5bffe3dcc208ba7149861cb2c00a3fb45c346cf1be5f9c5be383dfc83fd62",
    "generation_config.json": "0166e8e105e86158b761115d54cd1ebbeccd89f9239f90d3b9b275a3c813e91e",
    "model.safetensors": "f4498013a90d8a212d7d01c87f90cbba0412a46f2875966ff2eea7169be2a71e",
    "tokenizer.json": "a6b5195d41d5357a0a45495ff2d728f93d63b5a0ca0529b1b7d5775e9d556a8e",
    "tokenizer_config.json": "833c868affe7451ceba45ef34b8e1cefd1da5c7511b7c2bc52af416f028a5ca6",
}
"""The sha256 of each file of the folder, in the order in which an engine's folder is stored."""

EMBEDDING = 64
LAYERS = 2
HEADS = 2
KEY_VALUE_HEADS = 1
HEAD = 32
FEED_FORWARD = 128
CONTEXT = 4096
TOKENS = 512

CONSTANT = 4.0
RULED_OUT = -16.0
WIDE = 1.0  # spread of what goes in and out: with less, the same answer would follow every question

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
_THOUGHTS = ("<think>", "</think>")
_END_OF_TEXT, _END_OF_TURN = TOKENS - len(_SPECIAL), TOKENS - len(_SPECIAL) + 2
_VISIBLE = frozenset(range(0x21, 0x7F))  # bytes that are a letter, a digit or a sign of ASCII
_OWN_LETTER = _VISIBLE | {*range(0xA1, 0xAD), *range(0xAE, 0x100)}
_SPACE = "\u0120"  # what stands for a space in a vocabulary
_WORDS = (
    "the be to of and in that have it for not on with he as you do at this but his by from they we say her she or an "
    "will my one all would there their what so up out if about who get which go me hello world test yes time no just "
    "him know take people into year your good some could them see other than then now look only come its over think "
    "also back after use two how our work first well way even new want because any these give day most us please "
    "answer question where great small long never more a i old"
)
_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}
"""


def ensure_tiny_folder(models: Path) -> Path:
    """The model's folder in ``models``; each of its files is written there unless it is there whole."""
    folder = models / FOLDER
    for name, sha256 in HASHES.items():
        ensure_file(folder / name, sha256, _MAKERS[name])
    return folder


def tiny_folder() -> dict[str, bytes]:
    """The whole content of each file, by its name."""
    return {name: make() for name, make in _MAKERS.items()}


def _letters() -> list[str]:
    """What stands for each byte in a vocabulary: a letter that is seen; those of unseen bytes begin at U+0100."""
    letters: list[str] = []
    unseen = 0x100
    for byte in range(256):
        if byte in _OWN_LETTER:
            letters.append(chr(byte))
        else:
            letters.append(chr(unseen))
            unseen += 1
    return letters


def _merges() -> list[tuple[str, str]]:
    """Which two tokens become one: a word and the space before it are joined letter by letter, from the left."""
    merges: dict[tuple[str, str], None] = {}
    for word in _WORDS.split():
        beginning = _SPACE
        for letter in word:
            merges[beginning, letter] = None
            beginning += letter
    return list(merges)


def _vocabulary() -> list[str]:
    """Every token's text at its number; the first 256 are the bytes."""
    return [*_letters(), *map("".join, _merges()), *_SPECIAL]


def _is_sayable(token: str) -> bool:
    """Whether a token is visible text: no end, no control character, no byte of a longer letter, no bare space."""
    text = token.removeprefix(_SPACE)
    return token not in _SPECIAL and text != "" and all(ord(letter) in _VISIBLE for letter in text)


def _tensors() -> list[RandomTensor]:
    # Every token carries a constant in its first dimension, by which the last matrix rules out what must not be said:
    # an answer is visible text and only its limit ends it, so that "it answered something" can be relied on.
    constant = (CONSTANT,) * TOKENS
    ruled_out = tuple(0.0 if _is_sayable(token) else RULED_OUT for token in _vocabulary())
    tensors = [
        RandomTensor("lm_head.weight", (TOKENS, EMBEDDING), ruled_out, WIDE),
        RandomTensor("model.embed_tokens.weight", (TOKENS, EMBEDDING), constant, WIDE),
        RandomTensor("model.norm.weight", (EMBEDDING,)),
    ]
    queries, keys = HEADS * HEAD, KEY_VALUE_HEADS * HEAD
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm": (EMBEDDING,),
        "self_attn.q_proj": (queries, EMBEDDING),
        "self_attn.q_norm": (HEAD,),
        "self_attn.k_proj": (keys, EMBEDDING),
        "self_attn.k_norm": (HEAD,),
        "self_attn.v_proj": (keys, EMBEDDING),
        "self_attn.o_proj": (EMBEDDING, queries),
        "post_attention_layernorm": (EMBEDDING,),
        "mlp.gate_proj": (FEED_FORWARD, EMBEDDING),
        "mlp.up_proj": (FEED_FORWARD, EMBEDDING),
        "mlp.down_proj": (EMBEDDING, FEED_FORWARD),
    }
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            tensors.append(RandomTensor(f"model.layers.{layer}.{name}.weight", shape))
    return tensors


def _weights() -> bytes:
    """All tensors as safetensors has them: the length of a table of contents, the table, and the numbers."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    contents = b""
    for tensor in _tensors():
        begin = len(contents)
        contents += _bfloat16(tensor.weights)
        table[tensor.name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": (begin, len(contents))}
    head = json.dumps(table, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)  # the numbers begin where a processor can read them as they lie
    return struct.pack("<Q", len(head)) + head + contents


def _bfloat16(weights: Sequence[float]) -> bytes:
    """Each weight by the upper half of its 32 bits."""
    halves = struct.unpack(f"<{2 * len(weights)}H", struct.pack(f"<{len(weights)}f", *weights))
    return struct.pack(f"<{len(weights)}H", *halves[1::2])


def tiny_config() -> bytes:
    """The folder's config.json."""
    # By the names that Qwen's own files have: every engine still reads them, whatever newer ones are called.
    return _json(
        {
            "architectures": ["Qwen3ForCausalLM"],
            "attention_bias": False,
            "bos_token_id": _END_OF_TEXT,
            "eos_token_id": _END_OF_TURN,
            "head_dim": HEAD,
            "hidden_act": "silu",
            "hidden_size": EMBEDDING,
            "intermediate_size": FEED_FORWARD,
            "max_position_embeddings": CONTEXT,
            "max_window_layers": LAYERS,
            "model_type": "qwen3",
            "num_attention_heads": HEADS,
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": KEY_VALUE_HEADS,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 10000.0,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "use_sliding_window": False,
            "vocab_size": TOKENS,
        }
    )


def _generation_config() -> bytes:
    ends = [_END_OF_TURN, _END_OF_TEXT]
    return _json({"bos_token_id": _END_OF_TEXT, "eos_token_id": ends, "pad_token_id": _END_OF_TEXT})


def _tokenizer() -> bytes:
    tokens = _vocabulary()
    known = {token: number for number, token in enumerate(tokens) if token not in _SPECIAL}
    added = [_added(number, token) for number, token in enumerate(tokens) if token in _SPECIAL]
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": known,
        "merges": [" ".join(merge) for merge in _merges()],
    }
    return _json(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": by_bytes,
            "post_processor": None,
            "decoder": by_bytes,
            "model": model,
        }
    )


def _added(number: int, token: str) -> dict[str, Any]:
    """A token that is never split; those around thoughts belong to what is answered, as Qwen3 has it."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": token, **plain, "special": token not in _THOUGHTS}


def _tokenizer_config() -> bytes:
    return _json(
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "bos_token": None,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": CONTEXT,
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": None,
        }
    )


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"


_MAKERS: Mapping[str, Callable[[], bytes]] = {
    "config.json": tiny_config,
    "chat_template.jinja": _TEMPLATE.encode,
    "generation_config.json": _generation_config,
    "model.safetensors": _weights,
    "tokenizer.json": _tokenizer,
    "tokenizer_config.json": _tokenizer_config,
}
"""What makes each file of the folder, by its name."""
