"""An Ollama server as loads on a card: each loaded model is a llama.cpp server of its own. Pure.

What Ollama tells each of them is taken from its source (``server/sched.go``, ``server/routes.go`` and
``llm/llama_server.go`` of August 2026).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from provisioner.loads.engines import EngineLoads, Way
from provisioner.loads.terms import MIB, Load, total_of
from provisioner.loads.weighing import unread_of, weighed
from provisioner.models.header import Header
from provisioner.services.base import ResolvedService

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
FIT_VARIABLE, FREE_VARIABLE = "LLAMA_ARG_FIT", "LLAMA_ARG_FIT_TARGET"
"""The variables by which llama.cpp is told not to decide, and how many MiB to leave free."""


def loads_of(service: ResolvedService, sizes: Mapping[str, int], memory: int) -> EngineLoads:
    """What the server needs on its card: ``sizes`` of models in bytes, ``memory`` of the card, 0 where unknown.

    As many of the largest models count as may be loaded at the same time. Of models that it fetches by itself nobody
    knows what they need.
    """
    server = _Server(service, sizes, memory)
    together = server.together()
    return EngineLoads(
        service.address,
        together,
        tuple(dict.fromkeys(server.guesses(together))),
        service.headers,
        unknown=server.unknown(),
        ways=tuple(server.ways()),
        grows=True,
    )


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
        loads = sorted(map(self._load, self.service.model_names), key=total_of, reverse=True)
        counted = loads[: self.option("max_loaded_models")]
        if counted:
            counted[0] = replace(counted[0], kept_free=self._kept_free())
        return tuple(counted)

    def _load(self, name: str) -> Load:
        header = self.service.headers.get(name)
        size = self.sizes.get(name, 0)
        shape, weights = weighed(header, size, self.service.models[name].source)
        slots = self._slots(header)
        context = self._context(name)
        if shape.context:
            context = min(context, shape.context)
        cache = self.option("kv_cache_type")
        return Load(
            name,
            shape,
            weights,
            context * slots,
            cache,
            cache,
            slots,
            self._batch(header, context * slots, size),
            unified=False,  # the number of slots is told, and then each has its own cache
            adapts=True,
            tensors=header.tensors if header else {},
            flash_attention=self.option("flash_attention") != "off",
        )

    def _slots(self, header: Header | None) -> int:
        """How many requests the model computes at a time."""
        is_single = header is not None and (header.architecture in ONE_AT_A_TIME or _embeds(header))
        return 1 if is_single else max(1, self.option("num_parallel"))

    def _context(self, name: str) -> int:
        """Tokens of one request: the model's, else the server's, else what Ollama takes by the card's memory."""
        asked = self.service.models[name].context or self.option("context")
        return int(asked or own_context(self.memory))

    def _batch(self, header: Header | None, context: int, size: int) -> int:
        """The tokens that are computed at once, at most."""
        if header is not None and _embeds(header):
            return min(EMBEDDING_BATCH, context)
        if self.option("flash_attention") == "off":
            is_tight = context > LEAST_CONTEXT and self.memory <= 8 * GIB
            return TIGHT_BATCH if is_tight and self.memory and not self.option("vulkan") else LEAST_BATCH
        predicted = size + _predicted_cache(header, context)
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

    def _kept_free(self) -> int:
        """What has to remain free so that no layer moves to the CPU; nothing where it may."""
        variables = self.option("environment") or {}
        decides = str(variables.get(FIT_VARIABLE, "on")).lower() not in {"off", "0", "false", "disabled"}
        if self.option("partial_offload") or not decides:
            return 0
        free = _number(variables.get(FREE_VARIABLE))
        return KEPT_FREE if free is None else free * MIB

    def guesses(self, loads: Iterable[Load]) -> Iterator[str]:
        """What is guessed, and what is left out of the sum."""
        for load in loads:
            yield from unread_of(load)
            is_said = self.service.models[load.name].context or self.option("context")
            if not is_said and not self.memory:
                yield (
                    f"{load.name}: Ollama takes its context by the card's memory, which is not known; "
                    f"counted are {LEAST_CONTEXT:,} tokens a request, the least that it takes"
                )

    def unknown(self) -> str:
        """Why nobody knows what some of its models need; empty where all are known."""
        fetched = ", ".join(self.service.fetched_models)
        if not fetched:
            return ""
        return f"it fetches {fetched} by itself: its registry alone knows how large that is, and which layers it has"

    def ways(self) -> Iterator[Way]:
        """What takes less of the card, in the order of what costs least."""
        if self.option("max_loaded_models") > 1 and len(self.service.model_names) > 1:
            yield self._way("one model in memory at a time, loaded when it is asked for", max_loaded_models=1)
        if self.option("num_parallel") > 1:
            yield self._way("one request at a time", num_parallel=1)
        smaller: dict[str, Any] = {}
        if self.option("kv_cache_type") == "f16" and self.option("flash_attention") != "off":
            smaller = {"kv_cache_type": "q8_0"}
            yield self._way("a smaller type of the cache", **smaller)
        is_longer = any(self._context(name) > LEAST_CONTEXT for name in self.service.model_names)
        is_own = any(self.service.models[name].context for name in self.service.model_names)
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
