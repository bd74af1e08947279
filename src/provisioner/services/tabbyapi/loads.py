"""What tabbyAPI's models take of a card, and the reasons why nobody may know it; with exllamav3 term by term. Pure.

Read in tabbyAPI e632af4 (``backends/exllamav3/model.py``) and exllamav3 1.4.2; nothing of it was measured on a card.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from provisioner.loads.engines import EngineLoads
from provisioner.loads.exllama import is_recurrent, shape_of_exllama
from provisioner.loads.layers import Shape
from provisioner.loads.terms import MIB, Load
from provisioner.loads.weighing import idle_encoder, uncounted_of_folder, words_of
from provisioner.models.header import Header
from provisioner.services.base import ResolvedService
from provisioner.services.tabbyapi.older_loads import older_guesses, older_load, too_old

EXLLAMA3 = "exllamav3"
MODES = {"FP16": "f16", "Q8": "exl8", "Q6": "exl6", "Q4": "exl4"}
"""The types of keys and values alike; ``8,4`` names one for each."""
CHUNK, PAGE = 2048, 256
UNKNOWN_CONTEXT = 4096
"""The tokens that tabbyAPI takes of a model whose config.json names none."""
FEW, MANY = 4, 128
"""Requests that are computed at once where the file says nothing: of recurrent models, and of others."""
DRAFTED = 4
"""Tokens that are tried at once, where something drafts."""
LEFT_FREE = 96 * MIB
"""What has to remain of the card while the model is loaded (``autosplit_reserve``)."""
OUTPUTS = 32
"""Tokens whose logits the loader reserves (``max_output_size``)."""
WIDEST = 32_768
"""Columns of a matrix that are unpacked at once (``MAX_RECONSTRUCT_SLICE_N``)."""
HALF, WHOLE = 2, 4
"""Bytes of a number that is computed with, and of one that is added up."""
USUAL_WIDTH = 4
"""How many times as wide a layer is inside as outside, where its config.json does not say it."""
OLDER_FORMATS = ("exl2", "gptq")
"""What exllamav3 does not read, as its role's ``vars/main.yml`` says (a test holds both)."""
SMALLER = (("exl8", "exl8", 'cache_mode: "8,8"'), ("exl8", "exl4", 'cache_mode: "8,4"'))
"""Types of the cache, the better first; keys of 4 bits let models lose track of what they have read."""


def loads_of(service: ResolvedService, sizes: Mapping[str, int]) -> EngineLoads:
    """What the server takes of its card: ``sizes`` of models in bytes, 0 where unknown.

    Where it is not known what a model keeps of its tokens its weights count all the same, and why is told.
    """
    older = is_older(service)
    loads: list[Load] = []
    unknown: list[str] = []
    if older and service.card is not None:
        old = too_old(service.card)
        unknown += [old] if old else []
    guesses: list[str] = []
    for name in names_of(service):
        header = service.headers.get(name)
        size = sizes.get(name, 0)
        if older:
            load = older_load(service, name, header, size, _tokens(service))
            said = older_guesses(service, load, header)
        else:
            load = load_of(service, name, header, size)
            said = _guesses(service, load, header)
        reasons = list(_unknown(service, load, header))
        if reasons:
            unknown.append(f"what {name} takes of a card is not known: {'; '.join(reasons)}")
        words = (f"vision={service.option('vision')}", f"draft_mode={service.option('draft_mode')}")
        load = replace(load, uncounted=words_of(reasons, words, service.option("environment") or {}))
        if load.weights:
            loads.append(load)
            guesses += said
    # An image takes more than was measured when nobody had sent one.
    return EngineLoads(
        service.address, tuple(loads), tuple(guesses), unknown="; ".join(unknown), grows=bool(service.option("vision"))
    )


def is_older(service: ResolvedService) -> bool:
    """Whether exllamav2 loads the models.

    The backend follows from the wheels of a stack, which are not known before they are locked. Until then the model
    tells it: of EXL2 and GPTQ exllamav3 reads neither.
    """
    if "backend" in service.written or "backend" in service.derived:
        return bool(service.option("backend") != EXLLAMA3)
    name = service.model_names[0]
    header, model = service.headers.get(name), service.models.get(name)
    form = header.values.get("method") if header else None
    return (form or (model.format if model else "")) in OLDER_FORMATS


def names_of(service: ResolvedService) -> tuple[str, ...]:
    """The model that answers, and the one that drafts where that is asked for."""
    drafts = service.option("draft_mode") == "model"
    return service.model_names if drafts else service.model_names[:1]


def load_of(service: ResolvedService, name: str, header: Header | None, size: int) -> Load:
    """Return what one of its models takes with exllamav3; ``size``: bytes of its files, 0 where unknown."""
    answers = name == service.model_names[0]
    keys, values = _types(service) if answers else ("f16", "f16")
    drafted = 0 if service.option("draft_mode") == "disabled" else DRAFTED
    shape = Shape("", unread=("its config.json is not known",))
    if header is not None:
        shape = shape_of_exllama(header, is_packed=keys != "f16", drafted=drafted)
    tokens = _tokens(service)
    # Several requests share the cache, which may be longer than any of them.
    shape = replace(shape, context=max(shape.context, tokens))
    slots = service.option("max_batch_size") or (FEW if header and is_recurrent(header) else MANY)
    weights = max(size - _embedding_bytes(shape), 0)
    offloaded = _offloaded(service, header, weights) if answers else 0
    return Load(
        name,
        shape,
        weights,
        tokens,
        keys,
        values,
        slots=slots,
        ubatch=_chunk(service),
        buffers=_buffers(service, header),
        offloaded=offloaded,
        is_paged=True,
        smaller=SMALLER if answers else (),
    )


def _types(service: ResolvedService) -> tuple[str, str]:
    """The types of keys and values, as ``loads.terms`` calls them."""
    mode = str(service.option("cache_mode"))
    if mode in MODES:
        return MODES[mode], MODES[mode]
    keys, _, values = mode.partition(",")
    return f"exl{keys.strip()}", f"exl{values.strip()}"


def asked_tokens(service: ResolvedService) -> int:
    """Return the tokens that the cache is to have: those that are written, else those that its model was trained with.

    A drafting model's has as many.
    """
    written = service.option("cache_size") or max(service.option("max_seq_len"), 0)
    header = service.headers.get(service.model_names[0])
    trained = header.values.get("max_position_embeddings", 0) if header else 0
    return int(written or trained or UNKNOWN_CONTEXT)


def _tokens(service: ResolvedService) -> int:
    """The same in whole pages."""
    return -(-asked_tokens(service) // PAGE) * PAGE


def _chunk(service: ResolvedService) -> int:
    return int(service.option("chunk_size") or CHUNK)


def _embedding_bytes(shape: Shape) -> int:
    """The embeddings of tokens, which exllamav3 keeps in the host's memory, its output never with them."""
    return shape.vocabulary * shape.embedding * HALF


def _inner(header: Header) -> int:
    """How wide a layer is inside, for one token."""
    values = header.values
    experts = values.get("num_experts_per_tok", 0) * values.get("moe_intermediate_size", 0)
    widest = max(values.get("intermediate_size", 0), experts)
    return int(widest or USUAL_WIDTH * values.get("hidden_size", 0))


def _buffers(service: ResolvedService, header: Header | None) -> int:
    """What computes a chunk of a prompt, the widest matrix unpacked, logits, and what the loader leaves free."""
    if header is None:
        return LEFT_FREE
    outer, inner = header.values.get("hidden_size", 0), _inner(header)
    chunk = _chunk(service) * (outer * (WHOLE + HALF) + 3 * inner * HALF)
    matrix = outer * min(inner, WIDEST) * HALF
    logits = OUTPUTS * header.tokens * (WHOLE + HALF)
    return int(LEFT_FREE + chunk + matrix + logits)


def _offloaded(service: ResolvedService, header: Header | None, weights: int) -> int:
    """What the experts of as many layers take as the host's memory is to hold, by the bits of a weight on average."""
    layers = min(service.option("cpu_moe_offload_layers"), header.layers if header else 0)
    if not layers or header is None:
        return 0
    values = header.values
    experts = values.get("num_experts", 0) or values.get("num_local_experts", 0)
    inner = values.get("moe_intermediate_size", 0) or values.get("intermediate_size", 0)
    of_layer = 3 * experts * inner * values.get("hidden_size", 0)
    return min(int(layers * of_layer * values.get("bits", 0) / 8), weights)


def _unknown(service: ResolvedService, load: Load, header: Header | None) -> Iterator[str]:
    """Why nobody knows what a model takes."""
    drafts = not is_older(service) and service.option("draft_mode") == "mtp"
    variables = service.option("environment") or ()
    yield from uncounted_of_folder(load, header, variables, sees=service.option("vision"), drafts=drafts)


def _guesses(service: ResolvedService, load: Load, header: Header | None) -> Iterator[str]:
    """What is reckoned, and what is left out of the sum."""
    buffers, free = f"{-(-load.buffers // MIB):,} MiB", LEFT_FREE // MIB
    yield (
        f"{load.name}: {buffers} stand for what is computed with, {free} of them left free by the loader; "
        "reckoned, measured on no card"
    )
    if load.offloaded:
        away = f"{load.offloaded // MIB:,} MiB"
        yield (
            f"{load.name}: {away} of experts are counted as the host's, by the bits of a weight on average; "
            "exllamav3 takes only those there that are stored with codebook mul1"
        )
    yield from idle_encoder(load, header, sees=service.option("vision"))
