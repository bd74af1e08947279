"""vLLM's share of a card: what its model needs of that, and the reasons why nobody may know it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from provisioner.loads.engines import EngineLoads
from provisioner.loads.layers import Shape
from provisioner.loads.pages import Pages
from provisioner.loads.terms import MIB, Load, cache_bytes, needed_bytes, state_bytes
from provisioner.loads.uncounted import words_of
from provisioner.loads.weighing import idle_encoder, uncounted_of_folder
from provisioner.models.header import Header
from provisioner.services.base import ResolvedService
from provisioner.services.vllm.shapes import LATENT, MAMBA, ends_of, shape_of_vllm

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
