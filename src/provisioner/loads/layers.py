"""The layers of a model: what each keeps of tokens, as GGUF or config.json tells, and which lie on the card."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provisioner.models.header import Header

# The shape of a model: its layers, and the sizes that its buffers follow.

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Attention:
    """A layer that keeps ``keys`` and ``values`` numbers of each token; with a ``window`` for so many only.

    With 0 of both it keeps nothing: one that has no attention, that reads the cache of another layer, or that is not
    loaded.
    """

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
class Widths:
    """How many numbers of one token a layer computes at once.

    ``inner``: inside of its feed-forward part, of all experts that a token asks; ``spread``: what those give out before
    it is added up, 0 without experts; ``queries``: those of all ``heads``; ``beside``: what a token brings for
    layers further on; ``recurrent``: all of a recurrent layer.
    """

    inner: int
    queries: int
    heads: int
    spread: int = 0
    beside: int = 0
    recurrent: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's layers and the sizes that its buffers follow; ``unread`` says what its file did not tell, in words.

    With anything unread the layers are no base for a sum. ``widths``: None where the file does not tell them.
    """

    architecture: str
    layers: tuple[Layer, ...] = ()
    embedding: int = 0
    vocabulary: int = 0
    context: int = 0
    experts: int = 0
    unread: tuple[str, ...] = field(default=())
    widths: Widths | None = None


RECURRENT_BUT_EVERY = {"qwen35": 4, "qwen35moe": 4, "qwen3next": 4}
"""Architecture → every how many-th layer attends, the others being recurrent (llama.cpp, ``src/models``)."""
WINDOW_BUT_EVERY = {
    "lfm2": 0,
    **dict.fromkeys(("gemma4", "granite_swa", "maple", "mimo2", "spark2_5"), 1),
    **dict.fromkeys(("gemma2", "gpt-oss"), 2),
    **dict.fromkeys(("afmoe", "cohere2", "exaone-moe", "exaone4", "mellum", "muse-glimmer", "olmo2"), 4),
    "gemma3n": 5,
    "gemma3": 6,
    "plamo3": 8,
}
"""Architecture → every how many-th layer attends to all tokens, the others to a window (``load_swa_pattern`` there).

0: all that attend do it to a window; 1: the file says which do.
"""
ONLY_WITH = {"exaone4": 64}
"""Architecture → how many layers a model has whose windows are used: of others all layers attend to all tokens."""
ZERO_IS_RECURRENT = frozenset({"granitehybrid", "jamba", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe"})
"""Architectures whose list of key heads has a zero for each layer that is recurrent or keeps nothing."""
ONE_KIND_EACH = frozenset({"nemotron_h", "nemotron_h_moe"})
"""Of these, those whose layers either attend, are recurrent, or compute a feed-forward part and keep nothing."""
OWN_CACHE = {"gemma3n": 20}
"""Architecture → how many layers, the first ones, have a cache, which the others read (``n_layer_kv_from_start``)."""
ALL_ATTEND = frozenset(
    "arcee baichuan bailingmoe bailingmoe2 bloom chatglm codeshell cogvlm command-r dbrx deci deepseek "  # noqa: SIM905
    "deepseek2 dots1 ernie4_5 ernie4_5-moe exaone falcon gemma glm4 glm4moe gpt2 gptneox granite granitemoe "
    "grovemoe hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 internlm2 jais jais2 llama maincoder minicpm "
    "minicpm3 minimax-m2 mistral3 mpt nemotron olmo olmoe openelm orion paddleocr pangu-embedded phi2 phi3 "
    "phimoe plamo qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe refact seed_oss smollm3 "
    "stablelm starcoder starcoder2 talkie xverse".split()
)
"""Architectures all of whose layers attend to all tokens; with a window in their file it is not used for the cache."""

ATTENDING = frozenset(
    "cohere cohere2 exaone4 gemma gemma2 gemma3_text glm4 glm4_moe gpt_oss granite granitemoe internlm2 llama mistral "  # noqa: SIM905
    "mixtral olmo olmo2 olmo3 phi phi3 qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen2_5_vl_text qwen2_vl_text qwen3 "
    "qwen3_moe qwen3_vl_moe_text qwen3_vl_text seed_oss smollm3 stablelm starcoder2".split()
)
"""The ``model_type`` of a config.json whose model keeps the keys and values of its heads in every layer."""
LISTED_BUT_EVERY = {"cohere2": 4, "gemma2": 2, "gemma3_text": 6, "gpt_oss": 2, "olmo3": 4}
"""Every how many-th layer attends to all tokens where a config.json has no list of them (transformers 5.19)."""
OWN_HEADS = ("gemma", "glm4", "gpt_oss", "qwen3", "seed_oss")
"""How ``model_type`` begins where the size of a head follows from no other number."""
WHOLE, WINDOW = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of a GGUF file that belong to its architecture."""

    architecture: str
    values: Values

    def value(self, name: str, default: Any = None) -> Any:
        """What the file says under that name, ``default`` where it says nothing."""
        return self.values.get(f"{self.architecture}.{name}", default)

    def number(self, name: str, default: int = 0) -> int:
        """The number under that name, ``default`` without one, 0 for anything else and for a negative one."""
        value = self.value(name, default)
        return max(value, 0) if isinstance(value, int) else 0

    def largest(self, name: str) -> int:
        """The largest number under that name, which has one for all layers or one for each; 0 without one above 0."""
        value = self.value(name)
        numbers = value if isinstance(value, list) else [value]
        return max((number for number in numbers if isinstance(number, int) and number > 0), default=0)


def shape_of(values: Values, vocabulary: int = 0) -> Shape:
    """The shape that the keys of a GGUF file tell; ``vocabulary``: items of its list of tokens, where it has one."""
    architecture = str(values.get("general.architecture", ""))
    keys = _Keys(architecture, values)
    unread = [] if _is_known(architecture) else [f'architecture "{architecture}" is not known here']
    layers = tuple(_layers(keys, unread))
    embedding = keys.number("embedding_length")
    known_tokens = keys.number("vocab_size") or vocabulary
    if not known_tokens or not embedding:
        unread.append("it does not say how many tokens it knows and how long its vectors are")
    return Shape(
        architecture,
        layers,
        embedding,
        known_tokens,
        keys.number("context_length"),
        keys.number("expert_count"),
        tuple(unread),
        _widths(keys),
    )


def _widths(keys: _Keys) -> Widths | None:
    """What a layer of a GGUF file computes of a token; None where it does not say how wide it is inside."""
    width = keys.number("embedding_length")
    heads = keys.largest("attention.head_count")
    used = keys.number("expert_used_count") if keys.number("expert_count") else 0
    dense = keys.largest("feed_forward_length")
    inner = dense
    if used:
        of_expert = keys.largest("expert_feed_forward_length")
        inner = max(of_expert * used, dense) if of_expert else dense * used
    if not inner or not heads:
        return None
    head = keys.number("attention.key_length") or width // heads
    of_layers = keys.number("embedding_length_per_layer_input") * keys.number("block_count")
    beside = keys.number("n_deepstack_layers") * width + of_layers
    return Widths(inner, heads * head, heads, used * width, beside, _recurrent_width(keys, width))


def _recurrent_width(keys: _Keys, width: int) -> int:
    """Return the numbers of a token in a recurrent layer: vectors, what its convolution reads and gives, its gate.

    As llama.cpp 0.5.0 reserves it for Granite 4, Nemotron, Jamba and Qwen3.5: 3 % more for Jamba, which has no groups.
    """
    inner, groups = keys.number("ssm.inner_size"), keys.number("ssm.group_count")
    if not inner:
        return 0
    vectors = 1 if keys.architecture in RECURRENT_BUT_EVERY else 3
    channels = inner + 2 * groups * keys.number("ssm.state_size")
    return vectors * width + 3 * channels + (inner if groups else 2 * inner)


def shape_of_folder(header: Header) -> Shape:
    """The shape that a config.json tells, as ``models.folders.header_of`` read it."""
    values, unread = header.values, []
    heads = values.get("num_attention_heads", 0)
    key_heads = values.get("num_key_value_heads") or heads
    size = values.get("head_dim", 0)
    if not size and not header.architecture.startswith(OWN_HEADS):
        size = values.get("hidden_size", 0) // max(heads, 1)
    if header.architecture not in ATTENDING:
        unread.append(f'what layers of model_type "{header.architecture}" keep of a token is not known here')
    elif not 0 < header.layers <= MOST_LAYERS or not key_heads or not size:
        unread.append("its config.json does not say how many layers and heads it has")
    windows = [] if unread else _windows_of_folder(header, unread)
    numbers = key_heads * size
    layers = tuple(Attention(numbers, numbers, window) for window in windows)
    return Shape(
        header.architecture,
        layers,
        values.get("hidden_size", 0),
        header.tokens,
        header.context,
        unread=tuple(unread),
    )


def _windows_of_folder(header: Header, unread: list[str]) -> list[int]:
    """The window of each layer, 0 where it attends to all tokens; what is not told is added to ``unread``."""
    window, kinds = header.values.get("sliding_window", 0), header.values.get("layer_types", [])
    is_windowed = 0 < window < (header.context or window + 1) and header.values.get("uses_window", True)
    every = header.values.get("sliding_window_pattern") or LISTED_BUT_EVERY.get(header.architecture, 0)
    if not kinds and header.architecture in LISTED_BUT_EVERY:
        kinds = [WINDOW if (place + 1) % every else WHOLE for place in range(header.layers)]
    is_listed = len(kinds) == header.layers and set(kinds) <= {WHOLE, WINDOW}
    if not is_windowed and (is_listed or not kinds):
        return [0] * header.layers
    if not is_listed:
        unread.append("its config.json does not say which of its layers keep a window of the tokens alone")
        return []
    return [window if kind == WINDOW else 0 for kind in kinds]


def _layers(keys: _Keys, unread: list[str]) -> list[Layer]:
    """The model's layers; what the file does not tell of them is added to ``unread``."""
    count = keys.number("block_count")
    if count > MOST_LAYERS:
        unread.append(f"it says that it has {count} layers")
        return []
    heads = _each(keys.value("attention.head_count", 0), count)
    key_heads = _each(keys.value("attention.head_count_kv", heads), count)
    if not count or not key_heads:
        unread.append("it does not say how many layers and heads it has")
        return []
    recurrent = _recurrent(keys, key_heads)
    state = _state(keys)
    if any(recurrent) and not state and keys.architecture not in ZERO_IS_RECURRENT:
        unread.append("it does not say how large the state of its recurrent layers is")
    windows = _windows(keys, count)
    whole = _lengths(keys, heads)
    windowed = keys.number("attention.key_length_swa", whole[0]), keys.number("attention.value_length_swa", whole[1])
    keeping = _keeping(keys, count)
    layers: list[Layer] = []
    for is_recurrent, number, window, keeps in zip(recurrent, key_heads, windows, keeping, strict=True):
        if not keeps:
            layers.append(Attention(0, 0))
        elif is_recurrent:
            layers.append(Recurrent(state))
        else:
            key_length, value_length = windowed if window else whole
            layers.append(Attention(number * key_length, number * value_length, window))
    return layers


def _keeping(keys: _Keys, count: int) -> Sequence[bool]:
    """Return for each layer whether it keeps anything: not a feed-forward one, a reader of others, or one of drafts."""
    inner = keys.value("feed_forward_length") if keys.architecture in ONE_KIND_EACH else None
    without_inner = [not size for size in _listed(inner, count) or [0] * count]
    sharing = keys.number("attention.shared_kv_layers")
    drafting = drafting_layers(keys.architecture, keys.values)
    last = min(OWN_CACHE.get(keys.architecture, count), count - sharing, count - drafting)
    return [place < last and without_inner[place] for place in range(count)]


def drafting_layers(architecture: str, values: Values) -> int:
    """Return how many layers, the last ones, only draft (MTP): llama.cpp loads them where it is told to draft."""
    keys = _Keys(architecture, values)
    return min(keys.number("nextn_predict_layers"), keys.number("block_count"))


def _lengths(keys: _Keys, heads: Sequence[int]) -> tuple[int, int]:
    """The numbers that one head keeps as key and as value; where the file is silent, its share of a token's vector.

    With latent attention (MLA) values are made of what is kept as key (``has_v`` in ``llama-kv-cache.cpp``).
    """
    first = heads[0] if heads else 0
    share = keys.number("embedding_length") // max(first, 1)
    is_latent = keys.number("attention.key_length_mla") and keys.number("attention.value_length_mla")
    values = 0 if is_latent else keys.number("attention.value_length") or share
    return keys.number("attention.key_length") or share, values


def _is_known(architecture: str) -> bool:
    return architecture in ALL_ATTEND | ZERO_IS_RECURRENT | RECURRENT_BUT_EVERY.keys() | WINDOW_BUT_EVERY.keys()


def _each(value: Any, count: int) -> Sequence[int]:
    """A number for each layer, whether the file has one for all or a list; empty where it has neither."""
    numbers = _listed([value] * count if isinstance(value, int) else value, count)
    if numbers is None or min(numbers, default=0) < 0:
        return []
    return numbers


def _recurrent(keys: _Keys, key_heads: Sequence[int]) -> Sequence[bool]:
    """Whether each layer is recurrent."""
    count = len(key_heads)
    listed = _listed(keys.value("attention.recurrent_layers"), count)
    if listed is not None:
        return list(map(bool, listed))
    if keys.architecture in ZERO_IS_RECURRENT:
        return [number == 0 for number in key_heads]
    usual = RECURRENT_BUT_EVERY.get(keys.architecture, 0)
    every = keys.number("full_attention_interval", usual)
    if every == 0:
        return [False] * count
    return [(place + 1) % every != 0 for place in range(count)]


def _listed(value: Any, count: int) -> list[Any] | None:
    """The file's own list, where it is one with an entry for each layer."""
    if isinstance(value, list) and len(value) == count:
        return value
    return None


def _state(keys: _Keys) -> int:
    """Numbers that a recurrent layer keeps: its convolution's and its state's (``llama-hparams.cpp``)."""
    inner, state = keys.number("ssm.inner_size"), keys.number("ssm.state_size")
    if inner and state:
        channels = inner + 2 * keys.number("ssm.group_count") * state
        return max(keys.number("ssm.conv_kernel") - 1, 0) * channels + state * inner
    return keys.number("embedding_length") * max(keys.number("shortconv.l_cache") - 1, 0)


def _windows(keys: _Keys, count: int) -> Sequence[int]:
    """The window of each layer, 0 where it attends to all tokens."""
    window = keys.number("attention.sliding_window")
    usual = WINDOW_BUT_EVERY.get(keys.architecture)
    if usual is None or count != ONLY_WITH.get(keys.architecture, count):
        return [0] * count
    pattern = keys.value("attention.sliding_window_pattern", usual)
    return [window if has_one else 0 for has_one in _has_window(pattern, usual, count)]


def _has_window(pattern: Any, usual: int, count: int) -> Sequence[Any]:
    """Whether each layer attends to a window, by the file's list or by its interval, else by the ``usual`` one."""
    listed = _listed(pattern, count)
    if listed is not None:
        return listed
    every = pattern if isinstance(pattern, int) else usual
    if every == 0:
        return [True] * count
    return [place % every < every - 1 for place in range(count)]


# The place of a model's tensors: on the card, or in the host's memory, as llama.cpp does it with its options.

INPUT = ("token_embd.", "token_embd_norm.", "token_types.", "position_embd.", "per_layer_token_embd.")
"""Looked up and not computed with: they stay in the host's memory, whatever the options say (``load_tensors``)."""
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_BLOCK = re.compile(r"blk\.(\d+)\.")
_EXPERT = re.compile(r"blk\.\d+\.ffn_(up|down|gate|gate_up)_(ch|)exps")


@dataclass(frozen=True, slots=True)
class Placing:
    """``gpu_layers``: how many the card computes, the last ones, counting the output as one more; None is all.

    ``cpu_experts``: of how many layers, counted from the first, the experts stay in the host's memory.
    """

    gpu_layers: int | None = None
    cpu_experts: int = 0

    def first_layer(self, count: int) -> int:
        """The first of ``count`` layers that the card computes."""
        return 0 if self.gpu_layers is None else min(count, max(count + 1 - self.gpu_layers, 0))

    def is_split(self, count: int) -> bool:
        """Whether some layers are computed by the card and others by the CPU."""
        return self.first_layer(count) > 0


ALL_ON_CARD = Placing()


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What stays in the host's memory: all of it, and its largest tensor that batches of a prompt are computed with."""

    total: int = 0
    largest: int = 0


def held_back(tensors: Mapping[str, int], placing: Placing, layers: int) -> HeldBack:
    """Return the bytes of a model's tensors that do not lie on the card; ``layers``: all that its file counts."""
    first = placing.first_layer(layers)
    away = {name: size for name, size in tensors.items() if _is_away(name, first, placing)}
    total = sum(away.values())
    if _OUTPUT in tensors or placing.gpu_layers == 0:
        total += sum(size for name, size in tensors.items() if name.startswith(INPUT))
    else:  # the output computes with the embeddings, so that the card has a copy of them
        total += sum(size for name, size in tensors.items() if name.startswith(INPUT) and name != _EMBEDDING)
    return HeldBack(total, max(away.values(), default=0))


def layer_count(tensors: Mapping[str, int]) -> int:
    """How many layers the tensors belong to."""
    return max(map(layer_of, tensors), default=-1) + 1


def layer_of(name: str) -> int:
    """Return the layer to which a tensor belongs, counted from 0; -1 where it belongs to none."""
    block = _BLOCK.match(name)
    return int(block[1]) if block else -1


def expert_bytes(tensors: Mapping[str, int]) -> int:
    """What all experts of all layers take."""
    return sum(size for name, size in tensors.items() if _EXPERT.match(name))


def _is_away(name: str, first: int, placing: Placing) -> bool:
    layer = layer_of(name)
    if layer < 0:
        return placing.gpu_layers == 0 and not name.startswith(INPUT)
    return layer < first or (layer < placing.cpu_experts and _EXPERT.match(name) is not None)
