"""What exllamav3 keeps of a model in memory, as its config.json tells it. Pure.

Read in exllamav3 1.4.2, and held against what its own classes allocate (``tests/integration/test_exllama_caches.py``).
"""

from __future__ import annotations

from provisioner.loads.layers import MOST_LAYERS, WHOLE, WINDOW, Attention, Layer, Recurrent, Shape
from provisioner.models.header import Header

ATTENDING = frozenset(
    "arcee cohere cohere2 exaone4 gemma2 gemma3_text glm4 glm4_moe llama ministral3 mistral mixtral olmo3 phi3 qwen2 "  # noqa: SIM905
    "qwen3 qwen3_moe qwen3_vl_moe_text qwen3_vl_text seed_oss smollm3".split()
)
"""The ``model_type`` whose layers keep all tokens, those with a window as well (``modules/attn.py``)."""
IN_WINDOWS = "gpt_oss"
"""The one whose layers with a window keep that alone, for each request (``modules/sliding_attn.py``)."""
DELTA_NETS = frozenset({"qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"})
"""Those most of whose layers are recurrent (``modules/gated_delta_net.py``)."""
PAGE, GROUP, STATE_BYTES = 256, 32, 4
"""Tokens of a page; numbers that share a scale, where they are packed: what is left over is not kept.

And the bytes of a number of what is told as recurrent.
"""
ROLLED_BACK = 2 * PAGE
"""Tokens that a window keeps besides."""
LINEAR = "linear_attention"
USUAL_INTERVAL, USUAL_KERNEL = 4, 4
USUAL_HEADS, USUAL_VALUE_HEADS, USUAL_SIZE = 16, 32, 128
"""What stands for numbers of delta nets that a config.json does not name (``architecture/qwen3_5.py``)."""


def is_recurrent(header: Header) -> bool:
    """Whether a request keeps a state of its own, so that few are computed at once unless more are asked for."""
    return header.architecture == IN_WINDOWS or header.architecture in DELTA_NETS


def shape_of_exllama(header: Header, *, is_packed: bool, drafted: int = 0) -> Shape:
    """The shape of a model; ``is_packed``: its cache has exllamav3's types; ``drafted``: tokens that are tried at once.

    What lies in memory for each request is told as recurrent, in numbers of 4 bytes.
    """
    values, unread = header.values, []
    heads = values.get("num_attention_heads", 0)
    size = values.get("head_dim", 0) or values.get("hidden_size", 0) // max(heads, 1)
    numbers = (values.get("num_key_value_heads") or heads) * size
    if header.architecture not in ATTENDING and not is_recurrent(header):
        unread.append(f'what exllamav3 keeps of a token of model_type "{header.architecture}" is not known here')
    elif not 0 < header.layers <= MOST_LAYERS or not numbers:
        unread.append("its config.json does not say how many layers and heads it has")
    kinds = [] if unread else _kinds(header, unread)
    attending = _packed(numbers) if is_packed else numbers
    layers: list[Layer] = []
    for kind in kinds:
        if kind == LINEAR:
            layers.append(Recurrent(_delta_net(header, drafted)))
        elif kind == WINDOW:
            layers.append(Recurrent(_ring(header, numbers)))
        else:
            layers.append(Attention(attending, attending))
    return Shape(
        header.architecture,
        tuple(layers),
        values.get("hidden_size", 0),
        header.tokens,
        values.get("max_position_embeddings", 0),
        values.get("num_experts", 0) or values.get("num_local_experts", 0),
        tuple(unread),
    )


def stored_bytes(header: Header) -> int:
    """Return the bytes of a request's state where it lies in the host's memory, for others to go on from; 0 for none.

    States for drafts, and what a window keeps beside its tokens, are not stored (``get_checkpoint_size``).
    """
    shape = shape_of_exllama(header, is_packed=False)
    numbers = sum(layer.numbers for layer in shape.layers if isinstance(layer, Recurrent))
    if header.architecture == IN_WINDOWS:
        numbers = numbers * int(header.values.get("sliding_window", 0)) // _ring_tokens(header)
    return STATE_BYTES * numbers


def _kinds(header: Header, unread: list[str]) -> list[str]:
    """What each layer is; what is not told is added to ``unread``."""
    if header.architecture in ATTENDING:
        return [WHOLE] * header.layers
    listed = header.values.get("layer_types", [])
    known = {WHOLE, WINDOW} if header.architecture == IN_WINDOWS else {WHOLE, LINEAR}
    if len(listed) == header.layers and set(listed) <= known:
        return list(listed)
    if listed or header.architecture == IN_WINDOWS:
        unread.append("its config.json does not say what each of its layers keeps")
        return []
    every = header.values.get("full_attention_interval", 0) or USUAL_INTERVAL
    kinds: list[str] = []
    for place in range(header.layers):
        is_whole = (place + 1) % every == 0
        kinds.append(WHOLE if is_whole else LINEAR)
    return kinds


def _packed(numbers: int) -> int:
    return numbers // GROUP * GROUP


def _ring(header: Header, numbers: int) -> int:
    """What a window keeps for one request: keys and values of two bytes each, in whole pages.

    The window counts the token that asks, which is not kept with the others.
    """
    return _ring_tokens(header) * numbers


def _ring_tokens(header: Header) -> int:
    window = max(header.values.get("sliding_window", 0) - 1, 0)
    return int(-(-(window + ROLLED_BACK) // PAGE) * PAGE)


def _delta_net(header: Header, drafted: int) -> int:
    """What a delta net keeps for one request: its state, as often as tokens are tried besides, and its convolution.

    The convolution's numbers have two bytes.
    """
    values = header.values
    keys = (values.get("linear_num_key_heads") or USUAL_HEADS) * (values.get("linear_key_head_dim") or USUAL_SIZE)
    heads = values.get("linear_num_value_heads") or USUAL_VALUE_HEADS
    value_size = values.get("linear_value_head_dim") or USUAL_SIZE
    state = heads * (values.get("linear_key_head_dim") or USUAL_SIZE) * value_size
    channels = 2 * keys + heads * value_size
    convolution = channels * ((values.get("linear_conv_kernel_dim") or USUAL_KERNEL) + drafted)
    return int((drafted + 1) * state + -(-convolution // 2))
