"""An Ollama server as loads on a card: each loaded model is a llama.cpp server of its own. Pure.

What Ollama tells each of them is taken from its source (``server/sched.go``, ``server/routes.go`` and
``llm/llama_server.go`` of August 2026).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from provisioner.loads.engines import EngineLoads, Way
from provisioner.loads.terms import MIB, Load, image_buffer, total_of
from provisioner.loads.weighing import loaded_tensors, uncounted, unknown_of, weighed, words_of
from provisioner.models.header import Header
from provisioner.models.pulled import Pulled
from provisioner.services.base import ResolvedService
from provisioner.services.ollama import flashes

GIB = 2**30
CONTEXTS = ((47 * GIB, 262_144), (23 * GIB, 32_768))
"""From how much memory of all cards on Ollama takes how many tokens by itself (``Serve``)."""
LEAST_CONTEXT = 4096
"""What it takes with less memory."""
ONE_AT_A_TIME = frozenset(
    "mllama qwen3vl qwen3vlmoe qwen35 qwen35moe qwen3next lfm2 lfm2moe nemotron_h nemotron_h_moe "  # noqa: SIM905
    "nemotron_h_omni".split()
)
"""The architectures of which it has one request computed at a time, whatever ``num_parallel`` says (``load``)."""
EMBEDDING_BATCH = 2048
"""The tokens that models of embeddings compute at once, with a shorter context that (``DefaultEmbeddingNumBatch``)."""
BATCHES = ((32_768, 2048), (4096, 1024))
"""Above how many tokens of all requests how many of them are computed at once (``generationBatchForContext``)."""
LEAST_BATCH, TIGHT_BATCH = 512, 256
HEADROOM = {2048: (0.6, 2 * GIB), 1024: (0.75, 768 * MIB)}
"""For each larger batch: the share of the memory that weights and cache may take, and what Ollama counts for it."""
MOST_USED = 0.8
"""The share of the memory that all of that may take (``generationBatchFits``)."""
KEPT_FREE = 1024 * MIB
"""What llama.cpp leaves free where it decides itself how many layers the card computes, as it does under Ollama."""
SHORTEST_CONTEXT, LEAST_CONTEXT_WITH_IMAGES = 4, 2048
"""What is taken in place of fewer tokens, and what a model that takes images has at least (``getRunner``)."""
INLINE_PROJECTORS = frozenset(
    "gemma3 gemma4 qwen35 qwen35moe qwen25vl qwen3vl qwen3vlmoe mistral3 deepseekocr glmocr llama4 "  # noqa: SIM905
    "nemotron_h_omni".split()
)
"""The architectures whose model's own file it also gives as the projector, where the tensors of one are in it."""
INLINE_PREFIXES = ("v.", "mm.", "a.")
"""How the names of such tensors begin (``mmprojMemoryRequirement``)."""
IMAGES_UNKNOWN = 500 * MIB
"""What stands for the buffers of an encoder whose file does not tell how large images may be."""
FIT_VARIABLE, FREE_VARIABLE = "LLAMA_ARG_FIT", "LLAMA_ARG_FIT_TARGET"
"""The variables by which llama.cpp is told not to decide, and how many MiB to leave free."""


def loads_of(service: ResolvedService, sizes: Mapping[str, int], memory: int) -> EngineLoads:
    """What the server needs on its card: ``sizes`` of models in bytes, ``memory`` of the card, 0 where unknown.

    As many of the largest models count as may be loaded at the same time. Of models that it fetches by itself those
    count of which their registry told enough.
    """
    server = _Server(service, sizes, memory)
    together = server.together()
    return EngineLoads(
        service.address,
        together,
        tuple(dict.fromkeys(server.guesses(together))),
        service.headers,
        unknown="; ".join(server.unknown()),
        ways=tuple(server.ways()),
        grows=True,
    )


@dataclass(frozen=True, slots=True)
class _Model:
    """A model of the file, or one that is fetched; ``context`` and ``batch`` are those that it says itself, else 0.

    ``encoder``: bytes of what turns images into tokens, ``inline`` where that is in the model's own file;
    ``image_values``: the keys of its file.
    """

    name: str
    header: Header | None
    size: int
    source: str
    family: str
    context: int = 0
    batch: int = 0
    encoder: int = 0
    inline: bool = False
    image_values: Mapping[str, Any] | None = None

    @property
    def is_single(self) -> bool:
        """Whether Ollama has one request of it computed at a time."""
        return self.family in ONE_AT_A_TIME or (self.header is not None and _embeds(self.header))

    @property
    def tensors(self) -> Mapping[str, int]:
        """Bytes of its tensors but for those of its encoder, as far as its file tells them."""
        tensors = loaded_tensors(self.header) if self.header else {}
        if not self.inline:
            return tensors
        return {name: size for name, size in tensors.items() if not name.startswith(INLINE_PREFIXES)}

    @property
    def image_buffer(self) -> int:
        """Bytes for one image of the largest size; 0 for a model that takes none."""
        if not self.encoder:
            return 0
        known = image_buffer(self.image_values or {})
        return IMAGES_UNKNOWN if known is None else known


def _fetched(name: str, pulled: Pulled) -> _Model:
    """A model of which its registry told everything."""
    header = pulled.header
    values = pulled.projector.values if pulled.projector else None
    encoder = pulled.projector_size or _inline_encoder(header)
    return _Model(
        name,
        header,
        pulled.size,
        "",
        pulled.family or (header.architecture if header else ""),
        max(pulled.numbers["num_ctx"], SHORTEST_CONTEXT) if "num_ctx" in pulled.numbers else 0,
        _said_batch(pulled),
        encoder,
        inline=bool(encoder and not pulled.projector_size),
        image_values=values,
    )


def _said_batch(pulled: Pulled) -> int:
    """The tokens that the model's own options have computed at once; 0 where they say nothing of it."""
    said = pulled.numbers.get("num_batch")
    if said is None:
        return 0
    return said if said > 0 else LEAST_BATCH  # told nothing, llama.cpp takes as many


def _inline_encoder(header: Header | None) -> int:
    """Bytes of the tensors that turn images into tokens, where the model's own file has them and Ollama uses them."""
    if header is None or header.architecture not in INLINE_PROJECTORS:
        return 0
    if not any(name.startswith("v.") for name in header.tensors):
        return 0
    return sum(size for name, size in header.tensors.items() if name.startswith(INLINE_PREFIXES))


def _why_unknown(pulled: Pulled | None) -> str:
    """Why nobody knows what a fetched model takes; empty where that can be added up."""
    if pulled is None:
        return "its registry was not asked"
    if pulled.unknown:
        return pulled.unknown
    if "adapter" in pulled.parts:
        return "it comes with an adapter, and nobody has added up what that takes"
    if "draft" in pulled.parts or pulled.numbers.get("draft_num_predict", 0) > 0:
        return "it drafts its answers, and nobody has added up what that takes"
    if "num_gpu" in pulled.numbers:
        return f"it comes with num_gpu: {pulled.numbers['num_gpu']}, so that the card may compute only a part of it"
    return ""


@dataclass(frozen=True, slots=True)
class _Server:
    """One server with its options as they will be; ``changed`` are those that are tried in their place."""

    service: ResolvedService
    sizes: Mapping[str, int]
    memory: int
    changed: tuple[tuple[str, Any], ...] = ()

    def option(self, name: str) -> Any:
        """An option of its role."""
        return dict(self.changed).get(name, self.service.option(name))

    def together(self) -> tuple[Load, ...]:
        """The largest models that may be loaded at the same time, the largest first."""
        loads = sorted(map(self._load, self.models()), key=total_of, reverse=True)
        counted = loads[: self.option("max_loaded_models")]
        if counted:
            counted[0] = replace(counted[0], kept_free=self._kept_free(counted[0]))
        return tuple(counted)

    def models(self) -> Iterator[_Model]:
        """All models of which it can be added up what they take."""
        for name in self.service.model_names:
            header, written = self.service.headers.get(name), self.service.models[name]
            family = header.architecture if header else ""
            yield _Model(name, header, self.sizes.get(name, 0), written.source, family, written.context or 0)
        for name in self.service.fetched_models:
            pulled = self.service.pulled.get(name)
            if pulled is not None and not _why_unknown(pulled):
                yield _fetched(name, pulled)

    def _load(self, model: _Model) -> Load:
        header = model.header
        shape, weights = weighed(header, model.size, model.source)
        slots = 1 if model.is_single else max(1, self.option("num_parallel"))
        context = self._context(model)
        if shape.context:
            context = min(context, shape.context)
        cache = self.option("kv_cache_type")
        return Load(
            model.name,
            shape,
            max(weights - (model.encoder if model.inline else 0), 0),
            context * slots,
            cache,
            cache,
            slots,
            self._batch(model, context * slots),
            model.encoder,
            model.image_buffer,
            unified=False,  # the number of slots is told, and then each has its own cache
            adapts=True,
            tensors=model.tensors,
            unpacks=True,
            flash_attention=flashes(self.service),
            uncounted=words_of(list(self._uncounted()), (), self.option("environment") or {}),
        )

    def _context(self, model: _Model) -> int:
        """Tokens of one request: the model's, else the server's, else what Ollama takes by the card's memory."""
        asked = int(model.context or self.option("context") or own_context(self.memory))
        return max(asked, LEAST_CONTEXT_WITH_IMAGES) if model.encoder else asked

    def _batch(self, model: _Model, context: int) -> int:
        """The tokens that are computed at once, at most."""
        header = model.header
        if header is not None and _embeds(header):
            return min(model.batch or EMBEDDING_BATCH, context)
        if model.batch:
            return model.batch
        if not flashes(self.service):
            is_tight = context > LEAST_CONTEXT and self.memory <= 8 * GIB
            return TIGHT_BATCH if is_tight and self.memory and not self.option("vulkan") else LEAST_BATCH
        predicted = model.size + _predicted_cache(header, context)
        for above, batch in BATCHES:
            if context > above and self._has_room(batch, predicted):
                return batch
        return LEAST_BATCH

    def _has_room(self, batch: int, predicted: int) -> bool:
        """Whether Ollama computes so many at once; where nobody tells the memory, the larger batch counts."""
        if not self.memory:
            return True
        share, extra = HEADROOM[batch]
        return predicted <= share * self.memory and predicted + extra <= MOST_USED * self.memory

    def _kept_free(self, load: Load) -> int:
        """What has to remain free so that no layer moves to the CPU; nothing where it may.

        llama.cpp decides before it makes room for an encoder. Ollama has it leave as much more free as the encoder has
        bytes, unless the file says how much; buffers of images then lie in what is left.
        """
        variables = self.option("environment") or {}
        decides = str(variables.get(FIT_VARIABLE, "on")).lower() not in {"off", "0", "false", "disabled"}
        if self.option("partial_offload") or not decides:
            return 0
        free = _number(variables.get(FREE_VARIABLE))
        if free is None:
            return max(KEPT_FREE - load.image_buffer, 0)
        return max(free * MIB - load.encoder - load.image_buffer, 0)

    def guesses(self, loads: Iterable[Load]) -> Iterator[str]:
        """What is guessed, and what is left out of the sum."""
        models = {model.name: model for model in self.models()}
        for load in loads:
            model = models[load.name]
            if model.encoder and image_buffer(model.image_values or {}) is None:
                stand_in = f"{IMAGES_UNKNOWN // MIB} MiB stand for the buffers of one"
                yield f"{load.name}: how large images may be is not known; {stand_in}"
            if not (model.context or self.option("context")) and not self.memory:
                yield (
                    f"{load.name}: Ollama takes its context by the card's memory, which is not known; "
                    f"counted are {LEAST_CONTEXT:,} tokens a request, the least that it takes"
                )

    def unknown(self) -> Iterator[str]:
        """Why nobody knows what it needs; nothing where all of its models and variables are known."""
        for name in self.service.fetched_models:
            why = _why_unknown(self.service.pulled.get(name))
            if why:
                yield f"what {name} takes, which it fetches by itself, is not known: {why}"
        for load in map(self._load, self.models()):
            yield from unknown_of(load)
        yield from self._uncounted()

    def _uncounted(self) -> Iterator[str]:
        variables = self.option("environment") or {}
        return uncounted((), [name for name in variables if name not in (FIT_VARIABLE, FREE_VARIABLE)], ())

    def ways(self) -> Iterator[Way]:
        """What takes less of the card, in the order of what costs least."""
        models = tuple(self.models())
        if self.option("max_loaded_models") > 1 and len(models) > 1:
            yield self._way("one model in memory at a time, loaded when it is asked for", max_loaded_models=1)
        if self.option("num_parallel") > 1:
            yield self._way("one request at a time", num_parallel=1)
        smaller: dict[str, Any] = {}
        if self.option("kv_cache_type") == "f16" and flashes(self.service):
            smaller = {"kv_cache_type": "q8_0"}
            yield self._way("a smaller type of the cache", **smaller)
        is_longer = any(self._context(model) > LEAST_CONTEXT for model in models)
        is_own = any(model.context for model in models)
        if is_longer and not is_own:
            yield self._way("a shorter context", **smaller, context=LEAST_CONTEXT)
        yield Way("a smaller model, or a smaller context of the model", "")

    def _way(self, text: str, **options: Any) -> Way:
        written: list[str] = []
        for name, value in options.items():
            written.append(f"{name}: {value}")
        changed = replace(self, changed=tuple(options.items()))
        return Way(text, ", ".join(written), changed.together())


def own_context(memory: int) -> int:
    """The tokens of a request that Ollama takes by itself with so much memory; the least where that is unknown, 0."""
    for least, context in CONTEXTS:
        if memory >= least:
            return context
    return LEAST_CONTEXT


def _embeds(header: Header) -> bool:
    """Whether Ollama has the model make vectors: its file says how those of the tokens become one."""
    return f"{header.architecture}.pooling_type" in header.values


def _predicted_cache(header: Header | None, context: int) -> int:
    """The cache as Ollama reckons it before it loads a model (``PredictServerVRAM``): all layers alike, in f16."""
    if header is None:
        return 0
    architecture = header.architecture
    heads = _numbers(header.values.get(f"{architecture}.attention.head_count"))
    key_heads = _numbers(header.values.get(f"{architecture}.attention.head_count_kv"))
    most_heads = max(heads, default=0)
    if not most_heads:
        return 0
    size = _first(header.values.get(f"{architecture}.embedding_length")) // most_heads
    layers = _first(header.values.get(f"{architecture}.block_count"))
    return 4 * layers * (min(key_heads, default=0) or 1) * size * context


def _numbers(value: Any) -> list[int]:
    """The numbers of a key that has one for all layers or one for each."""
    listed = value if isinstance(value, list) else [value]
    return [number for number in listed if isinstance(number, int) and number >= 0]


def _first(value: Any) -> int:
    """The first of those, 0 without one."""
    return next(iter(_numbers(value)), 0)


def _number(value: Any) -> int | None:
    """The number that a variable says; None where it says none."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else None
