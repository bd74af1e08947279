"""What vLLM keeps of a model's tokens and requests, as its config.json tells it. Pure.

Read in vLLM 0.32.0, and held against what its own classes say (``tests/integration/test_vllm_caches.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from provisioner.loads.layers import MOST_LAYERS, Attention, Layer, Recurrent, Shape, shape_of_folder
from provisioner.models.header import Header

LATENT = frozenset({"deepseek_v2", "deepseek_v3"})
"""The ``model_type`` that keeps one vector of a token, of which all heads make their keys and values (MLA)."""
DELTA_NETS = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})
"""Those whose layers are delta nets where they do not attend (``MambaStateShapeCalculator``)."""
OWN_DTYPE = frozenset({"qwen3_5_text", "qwen3_5_moe_text"})
"""Those whose states have numbers of the size that their config.json names (its ``models/config.py``)."""
MAMBA = frozenset({"granitemoehybrid"})
"""Those whose layers are Mamba 2 where they do not attend."""
ATTENDS = frozenset({"attention", "full_attention"})
RECURS = frozenset({"linear_attention", "mamba"})
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
STATE_BYTES = 4
USUAL_INTERVAL = 4


@dataclass(frozen=True, slots=True)
class _Asked:
    """A model, of how many bytes the numbers are that it computes in, and how many tokens are drafted at once."""

    header: Header
    number: int
    drafted: int

    def value(self, name: str) -> int:
        """The count under that name, 0 where its config.json says none."""
        value = self.header.values.get(name, 0)
        return value if isinstance(value, int) else 0


def shape_of_vllm(header: Header, number: int, drafted: int = 0) -> Shape:
    """The shape of a model; ``number``: bytes of the numbers that it computes in; ``drafted``: tokens at once.

    A recurrent layer's state is told in numbers of 4 bytes, rounded up. Its convolution remembers those that are
    drafted besides (``num_spec`` of ``MambaStateShapeCalculator``).
    """
    asked = _Asked(header, number, drafted)
    if header.architecture in LATENT:
        return _shaped(header, _latent(asked))
    if header.architecture in DELTA_NETS:
        return _shaped(header, _mixed(asked, _delta_net))
    if header.architecture in MAMBA:
        return _shaped(header, _mixed(asked, _mamba))
    return shape_of_folder(header)


def ends_of(header: Header) -> int:
    """Numbers of the embeddings of tokens, and of the output where that is another matrix."""
    once = header.tokens * int(header.values.get("hidden_size", 0))
    return once if _is_tied(header) else 2 * once


def _is_tied(header: Header) -> bool:
    """Whether the embeddings of tokens are the output, too; Gemma's are where nothing is said."""
    tied = header.values.get("is_tied")
    return header.architecture.startswith("gemma") if tied is None else bool(tied)


def _shaped(header: Header, layers: tuple[Layer, ...]) -> Shape:
    unread = () if layers else ("its config.json does not say what each of its layers keeps",)
    embedding = header.values.get("hidden_size", 0)
    return Shape(header.architecture, layers, embedding, header.tokens, header.context, unread=unread)


def _latent(asked: _Asked) -> tuple[Layer, ...]:
    """One vector of a token in each layer, and what turns with its position; none where it is not told."""
    vector, turned = asked.value("kv_lora_rank"), asked.value("qk_rope_head_dim")
    if not vector or not turned or not 0 < asked.header.layers <= MOST_LAYERS:
        return ()
    return (Attention(vector + turned, 0),) * asked.header.layers


def _mixed(asked: _Asked, state: Callable[[_Asked], int]) -> tuple[Layer, ...]:
    """Layers that attend, and those that keep a state of so many bytes; none where it is not told."""
    heads = asked.value("num_attention_heads")
    size = asked.value("head_dim") or asked.value("hidden_size") // max(heads, 1)
    numbers = (asked.value("num_key_value_heads") or heads) * size
    recurrent = Recurrent(-(-state(asked) // STATE_BYTES))
    kinds = _kinds(asked)
    if not numbers or not recurrent.numbers or not kinds:
        return ()
    attention = Attention(numbers, numbers)
    return tuple(attention if kind in ATTENDS else recurrent for kind in kinds)


def _kinds(asked: _Asked) -> list[str]:
    """What each layer is; empty where its config.json does not say it."""
    count, listed = asked.header.layers, asked.header.values.get("layer_types", [])
    if not 0 < count <= MOST_LAYERS:
        return []
    if listed or asked.header.architecture not in DELTA_NETS:
        is_told = len(listed) == count and set(listed) <= ATTENDS | RECURS
        return list(listed) if is_told else []
    every = asked.value("full_attention_interval") or USUAL_INTERVAL
    kinds: list[str] = []
    for place in range(count):
        attends = (place + 1) % every == 0
        kinds.append("full_attention" if attends else "linear_attention")
    return kinds


def _state_number(asked: _Asked) -> int:
    """Bytes of a number of a state."""
    named = str(asked.header.values.get("mamba_ssm_dtype", ""))
    return BYTES.get(named, asked.number) if asked.header.architecture in OWN_DTYPE else asked.number


def _delta_net(asked: _Asked) -> int:
    """Bytes that a delta net keeps of one request; 0 where it is not told."""
    key, value = asked.value("linear_key_head_dim"), asked.value("linear_value_head_dim")
    heads = asked.value("linear_num_value_heads")
    keys = asked.value("linear_num_key_heads") * key
    kernel = asked.value("linear_conv_kernel_dim")
    if not keys or not value or not heads or not kernel:
        return 0
    convolution = (kernel - 1 + asked.drafted) * (2 * keys + heads * value) * asked.number
    return convolution + heads * value * key * _state_number(asked)


def _mamba(asked: _Asked) -> int:
    """Bytes that a layer of Mamba 2 keeps of one request; 0 where it is not told."""
    heads, size, state = asked.value("mamba_n_heads"), asked.value("mamba_d_head"), asked.value("mamba_d_state")
    inner = asked.value("mamba_expand") * asked.value("hidden_size")
    groups, kernel = asked.value("mamba_n_groups"), asked.value("mamba_d_conv")
    if not heads or not size or not state or not inner or not groups or not kernel:
        return 0
    convolution = (kernel - 1 + asked.drafted) * (inner + 2 * groups * state) * asked.number
    return convolution + heads * size * state * _state_number(asked)
