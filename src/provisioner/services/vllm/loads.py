"""vLLM's share of a card: what its model needs of that and keeps of tokens and requests, or why nobody knows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from provisioner.loads.engines import EngineLoads
from provisioner.loads.layers import MOST_LAYERS, Attention, Layer, Recurrent, Shape, shape_of_folder
from provisioner.loads.terms import MIB, STATE_BYTES, Load, Pages, cache_bytes, needed_bytes, state_bytes
from provisioner.loads.weighing import idle_encoder, uncounted_of_folder, words_of
from provisioner.models.header import Header
from provisioner.services.base import ResolvedService

# The shape of a model: what vLLM keeps of tokens and requests, as its config.json tells it. Read in vLLM 0.32.0, and
# held against what its own classes say (`tests/integration/test_vllm_caches.py`).

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


# The share of the card, and what the model needs of it.

GIB = 2**30
ACTIVATIONS, GRAPHS = 512 * MIB, 512 * MIB
"""What one step of computing takes beside weights and cache, and the CUDA graphs that are recorded at the start.

Both are reckoned and were measured on no card. What the driver and the context of CUDA take is not in them: that is
left free of every card (``loads.budgets.RESERVED``).
"""
COUNTS, LOGITS = 33, 6
"""Bits that each of ``max_num_seqs`` requests has on the card for each token that the model knows, and bytes beside.

The bits say which tokens were asked and how often each was answered, and lie there from the start (``PenaltiesState``).
The bytes are those of two and of four in which the start computes one token of all requests at once, when nothing else
is computed (``_dummy_sampler_run``, ``Sampler.apply_sampling_params``): read in ``v1/worker/gpu`` of vLLM 0.33.0.
"""
STEPS = ((160 * GIB, 16_384), (70 * GIB, 8192), (1, 2048), (0, 8192))
"""From what memory of a card on so many tokens are computed at once (``get_batch_defaults``); 0: it is not known."""
AT_ONCE = 2
"""Steps of which tokens are kept beside a window: on a card the next is prepared while one is computed."""
STATES, MAMBA_STATES = 2, 3
"""States of a request: its own, and of prompts that begin alike one behind and, where Mamba makes it, one inside.

Each token that is drafted at once has one more (``MambaSpec.max_memory_usage_bytes`` of vLLM 0.33.0).
"""
PAGE, LATENT_PAGE = 16, 64
"""Tokens of a page in a layer, at least: of FlashAttention's, and of those for models with one vector of a token."""
WIDE, WIDE_BYTES, USUAL_BYTES = "float32", 4, 2
"""Bytes of a number: vLLM computes in two where a model has four, unless that ``dtype`` is written."""
FP8 = "fp8"
FP8_SHARE = 0.5
"""What ``quantization: fp8`` leaves of weights of two bytes, but for embeddings and output, which stay whole."""


def loads_of(service: ResolvedService, sizes: Mapping[str, int], memory: int) -> EngineLoads:
    """What the server takes of its card: ``sizes`` of models in bytes, ``memory`` of the card, 0 where unknown.

    Where it is not known whether its model fits into its share, the share counts all the same, and why is told.
    """
    name = service.model_names[0]
    header = service.headers.get(name)
    load = _load(service, name, header, sizes.get(name, 0), memory)
    variables, sees, drafts = (service.option(one) for one in ("environment", "vision", "speculative"))
    reasons = list(uncounted_of_folder(load, header, variables or (), sees=sees, drafts=drafts == "mtp"))
    load = replace(load, uncounted=words_of(reasons, (f"vision={sees}", f"speculative={drafts}"), variables or {}))
    unknown = "; ".join(reasons)
    if unknown:
        share = f"{service.option('gpu_memory_utilization'):.0%}"
        unknown = (
            f"vLLM takes {share} of a card at its start, and whether {name} fits into that is not known: {unknown}"
        )
    loads = (load,) if load.weights or load.share else ()
    return EngineLoads(service.address, loads, tuple(_guesses(service, load, header)), unknown=unknown)


def least_cache(service: ResolvedService) -> int:
    """Return the bytes that one request of the longest context takes of the cache at least, 0 where that is unknown.

    Without a card vLLM chooses its pages otherwise, so that none count here; nor do states.
    """
    name = service.model_names[0]
    load = _load(service, name, service.headers.get(name), 0, 0)
    return 0 if load.is_guessed or state_bytes(load) else cache_bytes(replace(load, pages=Pages(1, 0)))


def _load(service: ResolvedService, name: str, header: Header | None, size: int, memory: int) -> Load:
    number = WIDE_BYTES if service.option("dtype") == WIDE else USUAL_BYTES
    drafted = service.option("speculative_tokens") if service.option("speculative") else 0
    shape = shape_of_vllm(header, number, drafted) if header else Shape("", unread=("its config.json is not known",))
    context = service.option("max_model_len") or shape.context
    if header and not context:
        shape = Shape(shape.architecture, unread=(*shape.unread, "its config.json does not say what context it has"))
    cache = _cache_type(service)
    step = next(tokens for least, tokens in STEPS if memory >= least)
    page = LATENT_PAGE if shape.architecture in LATENT else PAGE
    states = MAMBA_STATES if shape.architecture in MAMBA else STATES
    requests = int(service.option("max_num_seqs"))
    halves = [requests >> halved for halved in range(1, requests.bit_length())]
    load = Load(
        name,
        shape,
        _weights(service, header, size),
        context,
        cache,
        cache,
        ubatch=step,
        buffers=_buffers(service, shape.vocabulary, requests),
        offloaded=service.option("cpu_offload") * GIB,
        pages=Pages(page, AT_ONCE * step, states + drafted),
        fewer=tuple((half, _buffers(service, shape.vocabulary, half)) for half in halves),
    )
    return _with_share(service, load, memory)


def _with_share(service: ResolvedService, load: Load, memory: int) -> Load:
    """The load with what the server may take: a part of the card, or what it needs and the cache that is asked for."""
    asked = service.option("kv_cache_gib") * GIB
    if asked:
        own_cache = 0 if load.is_guessed else cache_bytes(load) + state_bytes(load)
        return replace(load, share=needed_bytes(load) - own_cache + asked)
    return replace(load, share=int(service.option("gpu_memory_utilization") * memory), card=memory)


def _buffers(service: ResolvedService, vocabulary: int, requests: int) -> int:
    """Return what computing takes beside weights and cache where so many requests may be answered at once."""
    of_requests = requests * vocabulary
    graphs = 0 if service.option("enforce_eager") else GRAPHS
    return max(ACTIVATIONS, of_requests * LOGITS) + graphs + of_requests * COUNTS // 8


def _cache_type(service: ResolvedService) -> str:
    """The type of the cached numbers, as ``loads.terms`` calls it."""
    if service.option("kv_cache_dtype") != "auto":
        return FP8
    return "f32" if service.option("dtype") == WIDE else "bf16"


def _weights(service: ResolvedService, header: Header | None, size: int) -> int:
    """Bytes of the weights as they are computed with; ``size``: of their files."""
    if header is None or header.values.get("is_quantised"):
        return size
    stored = WIDE_BYTES if header.values.get("dtype") == WIDE else USUAL_BYTES
    computed = WIDE_BYTES if service.option("dtype") == WIDE else USUAL_BYTES
    weights = size * computed // stored
    if not _quantises(service, header):
        return weights
    whole = min(ends_of(header) * computed, weights)
    return whole + int((weights - whole) * FP8_SHARE)


def _quantises(service: ResolvedService, header: Header | None) -> bool:
    """Whether whole weights are quantised while they are loaded."""
    is_whole = header is not None and not header.values.get("is_quantised")
    return is_whole and service.option("quantization") == FP8


def _guesses(service: ResolvedService, load: Load, header: Header | None) -> Iterator[str]:
    """What is reckoned, and what is left out of the sum."""
    graphs = "" if service.option("enforce_eager") else ", CUDA graphs"
    requests = f"what {service.option('max_num_seqs')} requests have there from the start"
    buffers = f"{load.buffers // MIB:,} MiB stand for activations{graphs} and {requests}"
    yield f"{load.name}: {buffers}; reckoned, measured on no card"
    if not load.share:
        share = f"{service.option('gpu_memory_utilization'):.0%}"
        yield f"{load.name}: vLLM takes {share} of the card, whose memory is not known; counted is what the model needs"
    if _quantises(service, header):
        yield f"{load.name}: `quantization: fp8` halves its weights but for embeddings and output, which is reckoned"
    yield from idle_encoder(load, header, sees=service.option("vision"))
