"""What each layer of a model keeps in memory for the tokens that it has seen, from the keys of its GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Attention:
    """A layer that keeps ``keys`` and ``values`` numbers of each token; with a ``window`` for so many only."""

    keys: int
    values: int
    window: int = 0


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A layer that keeps ``numbers`` (of 4 bytes) for each request, however long it is."""

    numbers: int


Layer = Attention | Recurrent
MOST_LAYERS = 4096
"""No engine takes an eighth of so many; a file that says more is damaged."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's layers and the sizes that its buffers follow; ``unread`` says what its file did not tell, in words.

    With anything unread the layers are no base for a sum.
    """

    architecture: str
    layers: tuple[Layer, ...] = ()
    embedding: int = 0
    vocabulary: int = 0
    context: int = 0
    experts: int = 0
    unread: tuple[str, ...] = field(default=())


RECURRENT_BUT_EVERY = {"qwen35": 4, "qwen35moe": 4, "qwen3next": 4}
"""Architecture → every how many-th layer attends, the others being recurrent (llama.cpp, ``src/models``)."""
WINDOW_BUT_EVERY = {"cohere2": 4, "exaone4": 4, "gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "olmo2": 4}
"""Architecture → every how many-th layer attends to all tokens, the others to a window (``load_swa_pattern`` there)."""
ZERO_IS_RECURRENT = frozenset({"granitehybrid", "jamba", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe"})
"""Architectures whose list of key heads has a zero for each layer that is recurrent or keeps nothing."""
ALL_ATTEND = frozenset(
    "baichuan bloom chatglm command-r dbrx deepseek deepseek2 exaone falcon gemma glm4 glm4moe granite granitemoe "  # noqa: SIM905
    "internlm2 llama minicpm mistral3 mpt olmo olmoe orion phi2 phi3 qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe "
    "qwen3vl qwen3vlmoe smollm3 stablelm starcoder starcoder2 xverse".split()
)
"""Architectures all of whose layers attend to all tokens; with a window in their file it is not used for the cache."""


def shape_of(values: Values, vocabulary: int = 0) -> Shape:
    """The shape that the keys of a GGUF file tell; ``vocabulary``: items of its list of tokens, where it has one."""
    architecture = str(values.get("general.architecture", ""))

    def number(name: str) -> int:
        found = values.get(f"{architecture}.{name}", 0)
        return max(found, 0) if isinstance(found, int) else 0

    count, known = number("block_count"), number("vocab_size") or vocabulary
    unread = [] if _is_known(architecture) else [f'architecture "{architecture}" is not known here']
    layers = tuple(_layers(architecture, values, number, count, unread))
    if not known or not number("embedding_length"):
        unread.append("it does not say how many tokens it knows and how long its vectors are")
    return Shape(
        architecture,
        layers,
        number("embedding_length"),
        known,
        number("context_length"),
        number("expert_count"),
        tuple(unread),
    )


def _layers(
    architecture: str, values: Values, number: Callable[[str], int], count: int, unread: list[str]
) -> list[Layer]:
    if count > MOST_LAYERS:
        unread.append(f"it says that it has {count} layers")
        return []
    heads = _each(values.get(f"{architecture}.attention.head_count", 0), count)
    key_heads = _each(values.get(f"{architecture}.attention.head_count_kv", heads), count)
    if not count or not key_heads:
        unread.append("it does not say how many layers and heads it has")
        return []
    size = number("embedding_length") // max(heads[0] if heads else 0, 1)
    keys, kept = number("attention.key_length") or size, number("attention.value_length") or size
    recurrent = _recurrent(architecture, values, key_heads)
    state = _state(number)
    if any(recurrent) and not state and architecture not in ZERO_IS_RECURRENT:
        unread.append("it does not say how large the state of its recurrent layers is")
    windows = _windows(architecture, values, count)
    return [
        Recurrent(state) if is_recurrent else Attention(each * keys, each * kept, window)
        for is_recurrent, each, window in zip(recurrent, key_heads, windows, strict=True)
    ]


def _is_known(architecture: str) -> bool:
    return architecture in ALL_ATTEND | ZERO_IS_RECURRENT | RECURRENT_BUT_EVERY.keys() | WINDOW_BUT_EVERY.keys()


def _each(found: Any, count: int) -> Sequence[int]:
    """A number for each layer, whether the file has one for all or a list."""
    each = [found] * count if isinstance(found, int) else found
    if not isinstance(each, list) or len(each) != count or any(one < 0 for one in each):
        return []
    return each


def _recurrent(architecture: str, values: Values, key_heads: Sequence[int]) -> Sequence[bool]:
    listed = values.get(f"{architecture}.attention.recurrent_layers")
    if isinstance(listed, list) and len(listed) == len(key_heads):
        return [bool(one) for one in listed]
    if architecture in ZERO_IS_RECURRENT:
        return [one == 0 for one in key_heads]
    every = values.get(f"{architecture}.full_attention_interval", RECURRENT_BUT_EVERY.get(architecture, 0))
    every = max(every, 0) if isinstance(every, int) else 0
    return [bool(every) and (place + 1) % every != 0 for place in range(len(key_heads))]


def _state(number: Callable[[str], int]) -> int:
    """Numbers that a recurrent layer keeps: its convolution's and its state's (``llama-hparams.cpp``)."""
    inner, state = number("ssm.inner_size"), number("ssm.state_size")
    if inner and state:
        channels = inner + 2 * number("ssm.group_count") * state
        return max(number("ssm.conv_kernel") - 1, 0) * channels + state * inner
    return number("embedding_length") * max(number("shortconv.l_cache") - 1, 0)


def _windows(architecture: str, values: Values, count: int) -> Sequence[int]:
    """The window of each layer, 0 where it attends to all tokens."""
    window = values.get(f"{architecture}.attention.sliding_window", 0)
    every = WINDOW_BUT_EVERY.get(architecture)
    if not isinstance(window, int) or window <= 0 or every is None:
        return [0] * count
    pattern = values.get(f"{architecture}.attention.sliding_window_pattern", every)
    if isinstance(pattern, list) and len(pattern) == count:
        return [window if one else 0 for one in pattern]
    every = pattern if isinstance(pattern, int) else every
    return [window if not every or place % every < every - 1 else 0 for place in range(count)]
