"""The sum: what one engine needs on a card, term by term, and the largest context with which it still fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from provisioner.loads.layers import (
    ALL_ON_CARD,
    Attention,
    Layer,
    Placing,
    Recurrent,
    Shape,
    Widths,
    held_back,
    layer_count,
)

STATE_BYTES = 4
NEARLY = 1.5
"""Where the largest kind of layers is less than so many times the smallest, groups are as large as it."""


@dataclass(frozen=True, slots=True)
class Pages:
    """How many ``tokens`` of a layer a page has at least, always a multiple of it.

    ``in_flight``: of how many tokens beside a window's own keys and values are kept while they are computed.
    ``states``: how many states a request keeps in each recurrent layer: its own, and those at which others may go on.
    """

    tokens: int
    in_flight: int
    states: int = 2


@dataclass(frozen=True, slots=True)
class Kept:
    """What one request takes of such a cache, in bytes: pages of tokens, and those of states."""

    cache: int
    state: int


@dataclass(frozen=True, slots=True)
class _Kind:
    """Layers of one kind, and how many pages a request has in each of them."""

    layers: int
    pages: int
    is_state: bool


MIB = 2**20
CELLS = 256
"""llama.cpp makes room for tokens in steps of so many."""
BITS: dict[str, float] = {
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "q8_0": 34 / 4,
    "q5_1": 24 / 4,
    "q5_0": 22 / 4,
    "q4_1": 20 / 4,
    "q4_0": 18 / 4,
    "iq4_nl": 18 / 4,
}
"""Bits of one cached number: ggml packs 32 of them with their scale into 34, 24, 22, 20 or 18 bytes."""
BITS |= {"fp8": 8}
BITS |= {f"exl{bits}": bits + 16 / 32 for bits in range(2, 9)}
"""exllamav3's types: 32 numbers share a scale of two bytes (``CacheLayer_quant`` of its ``cache/quant.py``, 1.4.2).

exllamav2's have as many bits (``ExLlamaV2Cache_Q`` of its ``cache.py``, 0.3.2).
"""
CORRECTION = "correction by what was measured"
TOLD, TOLD_BESIDE = "correction by the engine's own sum", "cache and buffers, by the engine's own sum"
BUFFER_BYTES, MASK_BYTES, F16_BYTES = 4, 2, 2


@dataclass(frozen=True, slots=True)
class Load:
    """One engine: its model, and the options that decide what it needs. Sizes in bytes, ``context`` for all slots.

    ``weights`` are all of the model's, ``tensors`` how they are made up, where that is known: then ``placing`` counts.
    ``unified``: the slots share one cache; else each has its part, rounded up. ``adapts``: the engine itself decides
    how many layers the card computes. ``buffers`` stand for the compute buffers where ``shape`` does not tell them.
    ``share``: what the engine takes of the card at its start whatever its model needs, and no more; 0 where it takes
    what it needs. ``card`` is the memory of which it is a part, 0 where it is none. ``offloaded``: how much of the
    weights stays in the host's memory. ``is_paged``: all requests share a cache of pages, of ``context`` tokens, as
    exllamav3's do, and the engine takes what it needs. ``workspaces`` stand for what libraries take while they compute.
    ``kept_free``: what the engine leaves free of the card beside what it needs. ``correction``: by how much more (or,
    negative, less) the engine took when it was measured than its sum says. ``told``: the same where its own program was
    asked, and ``told_each`` what that says of each token of the context, where no sum of ours does. ``unpacks``: where
    keys or values are packed, those of one layer are unpacked while it computes. ``outputs``: of how many tokens the
    engine makes logits at once; 0: of all that it computes at once. ``pages``: how the cache is laid out where all of
    its pages have one size. ``tables``: bytes beside ``buffers`` for each token of the context, for all layers
    together; ``unpacked``: those besides where the cache is packed. ``uncounted``: free arguments, variables and
    options by which it may take something else than its sum. ``smaller``: types of keys and values of a paged cache
    that take less, each with what to write for it, the better first. ``fewer``: numbers of requests at once below the
    engine's, each with the ``buffers`` that stand there then, the most first.
    """

    name: str
    shape: Shape
    weights: int
    context: int
    keys: str = "f16"
    values: str = "f16"
    slots: int = 1
    ubatch: int = 512
    encoder: int = 0
    image_buffer: int = 0
    cache_on_card: bool = True
    unified: bool = True
    adapts: bool = False
    placing: Placing = ALL_ON_CARD
    tensors: Mapping[str, int] = field(default_factory=dict)
    buffers: int = 0
    share: int = 0
    card: int = 0
    offloaded: int = 0
    is_paged: bool = False
    workspaces: int = 0
    kept_free: int = 0
    correction: int = 0
    told: int = 0
    told_each: int = 0
    unpacks: bool = False
    outputs: int = 0
    flash_attention: bool = True
    pages: Pages | None = None
    tables: int = 0
    unpacked: int = 0
    uncounted: tuple[str, ...] = ()
    smaller: tuple[tuple[str, str, str], ...] = ()
    fewer: tuple[tuple[int, int], ...] = ()

    @property
    def has_context(self) -> bool:
        """Whether it keeps something of each token, so that there is a context to choose."""
        return bool(self.shape.layers)

    @property
    def is_guessed(self) -> bool:
        """Return True where its file does not tell what its layers keep, so that no cache is in the sum."""
        return bool(self.shape.unread)

    @property
    def is_split(self) -> bool:
        """Whether some of its layers are computed by the CPU."""
        return self.placing.is_split(self.count)

    @property
    def caches(self) -> int:
        """Return how many caches its slots have."""
        return 1 if self.unified else self.slots

    @property
    def count(self) -> int:
        """Its layers."""
        return len(self.shape.layers) or layer_count(self.tensors)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Those whose cache and state lie on the card."""
        if not self.cache_on_card:
            return ()
        return self.shape.layers[self.placing.first_layer(self.count) :]


@dataclass(frozen=True, slots=True)
class Term:
    """One line of the sum."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Sum:
    """All terms of all engines on a card, against what is usable of it."""

    terms: tuple[Term, ...]
    usable: int

    @property
    def total(self) -> int:
        """Bytes that are needed."""
        return sum(term.bytes for term in self.terms)

    @property
    def missing(self) -> int:
        """Bytes that are not there; 0 when it fits."""
        return max(0, self.total - self.usable)


def terms_of(load: Load) -> tuple[Term, ...]:
    """What the engine takes of the card: what it needs, and what is left of its share."""
    terms = list(_needed_terms(load))
    left = load.share - needed_bytes(load)
    if left > 0:
        terms.append(Term("rest of its share", left))
    name = TOLD_BESIDE if load.is_guessed else TOLD
    terms += [Term("left free", load.kept_free), Term(name, load.told), Term(CORRECTION, load.correction)]
    return tuple(term for term in terms if term.bytes)


def _needed_terms(load: Load) -> tuple[Term, ...]:
    away = held_back(load.tensors, load.placing, load.count)
    weights = max(load.weights - away.total - load.offloaded, 0)
    terms = [Term("weights", weights), Term("weights in transit", away.largest)]
    if not load.is_guessed:
        terms += [Term("cache", cache_bytes(load)), Term("recurrent state", state_bytes(load))]
    if not load.is_guessed or load.buffers or load.is_paged:
        terms.append(Term("compute buffers", buffer_bytes(load)))
    terms.append(Term("workspaces", load.workspaces))
    terms += [Term("image encoder", load.encoder), Term("image buffers", load.image_buffer)]
    return tuple(term for term in terms if term.bytes)


def total_of(load: Load) -> int:
    """What the engine takes of the card."""
    return max(load.share, needed_bytes(load)) + beside_bytes(load)


def beside_bytes(load: Load) -> int:
    """Return what counts beside the model's needs and the share: left free, and known to be otherwise."""
    return load.kept_free + load.told + load.correction


def needed_bytes(load: Load) -> int:
    """What the engine needs on the card."""
    return sum(term.bytes for term in _needed_terms(load))


def lacking_bytes(load: Load) -> int:
    """By how much the engine's share of the card is too small for what it needs; 0 where it has none."""
    return max(needed_bytes(load) - load.share, 0) if load.share else 0


def added_up(named: Iterable[tuple[str, Load]], usable: int, *, are_named: bool = True) -> Sum:
    """The sum over the engines of one card, each term with its engine's name if ``are_named``."""
    terms: list[Term] = []
    for name, load in named:
        prefix = f"{name}: " if are_named else ""
        terms += [Term(f"{prefix}{term.name}", term.bytes) for term in terms_of(load)]
    return Sum(tuple(terms), usable)


def token_bytes(load: Load) -> int:
    """What one more token takes in the layers that remember all of them."""
    return sum(_packed(layer, load) for layer in _attending(load) if not layer.window)


def cache_bytes(load: Load) -> int:
    """What the keys and values of all tokens take; a window keeps its tokens, and those of one batch."""
    if load.pages:
        return _kept(load, load.pages).cache
    return load.caches * sum(_packed(layer, load) * _cells(layer, load) for layer in _attending(load))


def _cells(layer: Attention, load: Load) -> int:
    """For how many tokens a layer has room in one cache."""
    all_cells = _rounded(-(-load.context // load.caches))
    if not layer.window:
        return all_cells
    return min(all_cells, _rounded(layer.window * (load.slots // load.caches) + load.ubatch))


def _attending(load: Load) -> list[Attention]:
    """The layers on the card that keep keys and values."""
    return [layer for layer in load.layers if isinstance(layer, Attention)]


def state_bytes(load: Load) -> int:
    """What recurrent layers keep, for each slot."""
    if load.pages:
        return _kept(load, load.pages).state
    numbers = sum(layer.numbers for layer in load.layers if isinstance(layer, Recurrent))
    return load.slots * STATE_BYTES * numbers


def _kept(load: Load, pages: Pages) -> Kept:
    """What one request takes of a cache of pages."""
    token = max((_packed(layer, load) for layer in _attending(load)), default=0)
    return kept(load.layers, token, load.context, pages)


def buffer_bytes(load: Load) -> int:
    """What one step of computing takes: that of a layer, or that of the logits, whichever is more."""
    if load.buffers or load.is_paged:
        return load.buffers + _bytes_of_tokens(load)
    logits = (load.shape.vocabulary + load.shape.embedding) * load.ubatch * BUFFER_BYTES
    if load.shape.widths is None:
        return logits + _unpacked_bytes(load)
    if load.outputs:
        logits = load.shape.vocabulary * min(load.outputs, load.ubatch) * BUFFER_BYTES
    return max(_layer_bytes(load, load.shape.widths), logits)


def _unpacked_bytes(load: Load) -> int:
    """Return the bytes of one layer's keys and values unpacked, as CUDA's flash attention reads them.

    ``ggml_cuda_flash_attn_ext_get_alloc_size`` of llama.cpp 0.5.0: all cells of all requests, in 16 bits.
    """
    if not load.unpacks or not load.flash_attention:
        return 0
    keys, values = load.keys != "f16", load.values != "f16"
    sizes = [(layer.keys * keys + layer.values * values) * _cells(layer, load) for layer in _attending(load)]
    return max(sizes, default=0) * load.caches * F16_BYTES


def _bytes_of_tokens(load: Load) -> int:
    """What is held of each token of the context beside its keys and values, once and not for each layer."""
    if load.is_guessed:
        return 0
    is_packed = BITS[load.keys] < BITS["f16"]
    of_token = load.tables + (load.unpacked if is_packed else 0)
    return of_token * _rounded(load.context)


def _layer_bytes(load: Load, widths: Widths) -> int:
    """What one layer computes of as many tokens as are computed at once, and which tokens each of them may see.

    As llama.cpp 0.5.0 says it of a device when it starts: the inside of a feed-forward part three times, the vector of
    a token twice, and queries where no layer is recurrent; what experts give out finds no place that was freed where it
    is more than two of the first. The processor looks the embeddings up, and hands them over. Attention, and a
    recurrent layer, may take more; what attention unpacks is gone when the feed-forward part is computed.
    """
    numbers = 3 * widths.inner + 2 * load.shape.embedding + widths.beside
    if not any(isinstance(layer, Recurrent) for layer in load.shape.layers):
        numbers += widths.queries
    if widths.spread > 2 * widths.inner:
        numbers += widths.spread
    attending = 3 * load.shape.embedding + 2 * widths.queries
    attending += max((layer.keys + layer.values for layer in _attending(load)), default=0)
    of_token = load.ubatch * BUFFER_BYTES
    state = max((layer.numbers for layer in load.layers if isinstance(layer, Recurrent)), default=0)
    recurrent = widths.recurrent * of_token + load.slots * state * STATE_BYTES
    computed = max(numbers * of_token, recurrent, attending * of_token + _unpacked_bytes(load))
    seen = sum(_cells_seen(load).values())
    bytes_of_token = seen * (MASK_BYTES if load.flash_attention else BUFFER_BYTES)
    if not load.flash_attention:
        bytes_of_token += widths.heads * max(_cells_seen(load).values(), default=0) * BUFFER_BYTES
    return computed + bytes_of_token * load.ubatch


def _cells_seen(load: Load) -> dict[bool, int]:
    """The sizes of a request's caches, of each of which a mask says who may see what: of windows, and the other."""
    sizes: dict[bool, int] = {}
    for layer in load.shape.layers:
        if isinstance(layer, Attention):
            sizes[bool(layer.window)] = _cells(layer, load)
    return sizes


def largest_context(load: Load, free: int) -> int:
    """The largest context with which the engine fits into ``free`` bytes and into its share; 0 without one.

    It is 0 also where nobody could know it, and where nothing is kept of tokens.

    A multiple of 256 for each cache, and no larger than what the model was trained for, where its file says that.
    """
    step = CELLS * load.caches
    if load.told_each:
        more = (free - total_of(load)) // load.told_each
        most = (load.shape.context or 2**24) * load.caches
        return max(min(load.context + more, most), 0) // step * step
    if load.is_guessed or not load.has_context:
        return 0
    room = free - beside_bytes(load)
    if load.share:
        room = min(room, load.share)
    lowest, highest = 0, (load.shape.context or 2**24) // CELLS
    while lowest < highest:
        middle = (lowest + highest + 1) // 2
        if needed_bytes(replace(load, context=middle * step)) <= room:
            lowest = middle
        else:
            highest = middle - 1
    return lowest * step


def _rounded(cells: int) -> int:
    return -(-cells // CELLS) * CELLS


def _packed(layer: Attention, load: Load) -> int:
    return round((layer.keys * BITS[load.keys] + layer.values * BITS[load.values]) / 8)


# The encoder of images, beside its weights: the buffers of one image, computed at once.

ANY_SIZE: Mapping[str, int] = {"qwen2vl_merger": 4096, "qwen2.5vl_merger": 4096, "qwen3vl_merger": 4096}
"""Kinds that take images as they are, and the most tokens that one becomes (llama.cpp, ``clip.cpp``)."""
OTHER_SIZES = frozenset({"pixtral", "kimivl", "lightonocr", "lfm2", "cogvlm", "glm4v", "youtuvl", "paddleocr"})
"""Kinds that take images of several sizes by other rules."""
_FLOAT, _COLOURS = 4, 3


def image_buffer(values: Mapping[str, Any]) -> int | None:
    """Bytes for the largest image that a projector with these keys takes; None where they do not tell it.

    As flash attention computes it: llama.cpp 0.5.0 says 322.5 MiB for 92 by 92 patches of Qwen3-VL 2B's, 322.4 by this
    sum. Layers whose vectors are handed on besides (``is_deepstack_layers``) keep them until the end.
    """

    def number(name: str) -> int:
        value = values.get(f"clip.vision.{name}", 0)
        return max(value, 0) if isinstance(value, int) else 0

    kind = str(values.get("clip.vision.projector_type") or values.get("clip.projector_type", ""))
    patch, width, inner = number("patch_size"), number("embedding_length"), number("feed_forward_length")
    patches = (number("image_size") // max(patch, 1)) ** 2
    if kind in ANY_SIZE:
        patches = ANY_SIZE[kind] * (number("spatial_merge_size") or 2) ** 2
    if kind in OTHER_SIZES or 0 in (patch, width, inner, patches):
        return None
    listed = values.get("clip.vision.is_deepstack_layers")
    handed_on = sum(map(bool, listed)) if isinstance(listed, list) else 0
    numbers_of_a_patch = max(inner + 2 * width, 4 * width) + handed_on * width + _COLOURS * patch**2
    return patches * numbers_of_a_patch * _FLOAT


def kept(layers: Sequence[Layer], token: int, context: int, pages: Pages) -> Kept:
    """What a request of ``context`` tokens takes, with the one block that is never given away.

    ``token``: bytes of a token in a layer that attends, the same in all of them; 0 where none does.
    """
    states = [layer.numbers * STATE_BYTES for layer in layers if isinstance(layer, Recurrent)]
    tokens = _tokens_of_page(max(states, default=0), token, pages)
    page = max(tokens * token, max(states, default=0))
    kinds = _kinds(layers, tokens, context, pages)
    if not kinds:
        return Kept(0, 0)
    size = _group_size([kind.layers for kind in kinds])
    cache = state = 0
    for kind in kinds:
        groups = -(-kind.layers // size)
        taken = groups * size * kind.pages * page
        cache += 0 if kind.is_state else taken
        state += taken if kind.is_state else 0
    return Kept(cache + size * page, state)


def _tokens_of_page(state: int, token: int, pages: Pages) -> int:
    """As many tokens as make a page that holds a state, too."""
    if not token:
        return pages.tokens
    fitting = -(-state // (pages.tokens * token)) * pages.tokens
    return max(pages.tokens, fitting)


def _kinds(layers: Sequence[Layer], tokens: int, context: int, pages: Pages) -> list[_Kind]:
    """The layers by what they keep: all tokens, a window of one length, or a state."""
    counts: dict[int | None, int] = {}
    for layer in layers:
        window = layer.window if isinstance(layer, Attention) else None
        counts[window] = counts.get(window, 0) + 1
    kinds: list[_Kind] = []
    for window, count in counts.items():
        if window is None:
            kinds.append(_Kind(count, pages.states, is_state=True))
        elif window:
            held = min(window - 1 + pages.in_flight, context)
            kinds.append(_Kind(count, -(-held // tokens) + 1, is_state=False))  # it may begin inside of a page
        else:
            kinds.append(_Kind(count, -(-context // tokens), is_state=False))
    return kinds


def _group_size(counts: Sequence[int]) -> int:
    """How many layers a group has; kinds of which some are left over fill up their last group."""
    least, most = min(counts), max(counts)
    return most if most < least * NEARLY else least
