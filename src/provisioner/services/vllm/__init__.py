"""vLLM: what follows from its stack and its card, how much memory its processes take, what a request may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from provisioner.gpus.cards import Card, described
from provisioner.models.header import Header
from provisioner.services import base
from provisioner.services.base import (
    OPENAI,
    Limits,
    Metrics,
    Processor,
    ResolvedService,
    Trial,
    quoted_changes,
    template_thinking,
    unusual_options,
)
from provisioner.values.declared import Problem
from provisioner.values.quantities import size_text

if TYPE_CHECKING:
    from provisioner.loads.engines import EngineLoads
    from provisioner.wheels.known import Stack

NVIDIA = "nvidia"
CUDA, CPU = "cuda", "cpu"
GIB = 2**30
FORMATS = ("safetensors", "awq", "gptq", "fp8")
FP8_SINCE = (8, 9)
"""The compute capability with which cards know numbers of FP8."""
BFLOAT16_SINCE = (8, 0)
"""Without it vLLM does not start with that ``dtype`` (``check_if_supports_dtype`` of its 0.33.0)."""
WORD = "--max-model-len"
STEP = 16
"""Tokens of one block of its cache."""
KEY_FILE = "/run/vllm/api-key"
NO_ROOM = (
    "No available memory for the cache blocks",
    "larger than the available KV cache memory",
    "CUDA out of memory",
    "less than desired GPU memory utilization",
)
"""Both as in the role's ``vars/main.yml``; a test holds them equal."""
DECIDING = ("stack", "dtype", "quantization", "cpu_offload", "tensor_parallel", "enforce_eager", "speculative")
"""Options beside its cache by which it writes faster or slower; blocks that are suggested leave them as they are."""
SERIES = {
    "read": "vllm:prompt_tokens_total",
    "written": "vllm:generation_tokens_total",
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "cache": "vllm:kv_cache_usage_perc",
}
PROCESSES = 3 * GIB
"""Bytes that its three processes take beside weights and cache: 1.9 GB where it was measured, on the processor."""
DEFAULT_CACHE_GIB = 1
"""What the role writes on the processor where the file leaves it open (``vars/main.yml``; a test holds both equal)."""


class Knowledge(base.Knowledge):
    """Knowledge of vLLM."""

    def options_of_card(self, said: Mapping[str, Any], card: Card) -> Mapping[str, Any]:  # noqa: ARG002
        """The card, on which its proof has a kernel of the stack run."""
        return {"card": described(card)}

    def options_of_stack(self, stack: Stack) -> Mapping[str, Any]:
        """What the stack computes on."""
        return {"backend": CUDA if stack.cuda else CPU}

    def problems(self, service: ResolvedService) -> Iterator[Problem]:
        """A container without the memory that its processes take, or with fewer cards than are asked for."""
        yield from _memory_problems(service)
        yield from _parallel_problems(service)

    def model_problems(self, service: ResolvedService) -> Iterator[Problem]:
        """A context that its model was not made for or no cache holds, and other weights than are asked for."""
        for name in service.model_names:
            header = service.headers.get(name, Header(""))
            longest = header.context
            if 0 < longest < service.option("max_model_len"):
                message = f"{service.option('max_model_len')} tokens are asked for, and {name} was made for {longest}"
                yield service.problem("max_model_len", message, f"Write {longest} or less, or 0 for all of them.")
            method, asked = header.values.get("method"), service.option("quantization")
            # Another one than the model's own ends the start (``_verify_quantization`` of 0.33.0).
            if method in service.page.options["quantization"].choices and asked not in ("", method):
                message = f"{asked} is asked for, and the weights of {name} are {method}"
                yield service.problem("quantization", message, "Leave it out.")
        if service.option("backend") == CPU:
            yield from _cache_problems(service)

    def card_problems(self, service: ResolvedService) -> Iterator[Problem]:
        """A card that knows no CUDA, or not the numbers that are asked for."""
        card, dtype = service.card, service.option("dtype")
        if card is not None and card.vendor != NVIDIA:
            message = f"{card.title} knows no CUDA, which its stacks are for"
            yield Problem(service.path, message, "Give the container another card.")
        elif card is not None and dtype == "bfloat16" and not card.may_compute(BFLOAT16_SINCE):
            message = f"{card.title} is of compute capability {card.capability}, and knows {dtype} from 8.0 on"
            yield service.problem("dtype", message, "Write dtype: auto, or float16.")

    def loads(self, service: ResolvedService, sizes: Mapping[str, int], memory: int) -> EngineLoads | None:
        """Its share of the card, and what its model needs of that; None where nothing of it lies on a card."""
        if not service.wants_card or service.option("backend") == CPU:
            return None
        from provisioner.services.vllm.loads import loads_of  # what no run needs that only looks

        return loads_of(service, sizes, memory)

    def folder_serving(self, form: str, card: Card, usable: int) -> base.FolderServing | None:
        """Whole weights, AWQ, GPTQ and FP8, with all that is usable of the card for it."""
        if form not in FORMATS:
            return None
        caches = tuple(_caches(card, usable))
        unknown = "" if caches else "nothing of the card is usable"
        if card.vendor != NVIDIA:
            unknown = "its stacks are for cards that know CUDA"
        return base.FolderServing("max_model_len", ("api_key",), "", caches, unknown, has_embeddings=True)

    def ways_of_writing(self, service: ResolvedService) -> Mapping[str, str]:
        """Its cache, and what else decides how fast it writes."""
        return {"cache": str(service.option("kv_cache_dtype")), **unusual_options(service, DECIDING)}

    def trial(self, service: ResolvedService) -> Trial:
        """By what a request may hold."""
        (model,) = service.model_names
        header = service.headers.get(model)
        most = header.context if header else 0
        return Trial(
            option="max_model_len",
            word=WORD,
            changes=quoted_changes(WORD),
            step=STEP,
            most=most,
            path=OPENAI,
            key_file=KEY_FILE,
            no_room=NO_ROOM,
        )

    def metrics(self, service: ResolvedService) -> Metrics:  # noqa: ARG002
        """Its page for Prometheus, for which it asks nobody for a key."""
        return Metrics(page="/metrics", series=SERIES)

    def limits(self, service: ResolvedService, model: str) -> Limits:
        """The context that is asked for, else the model's own, and whether images are taken."""
        header = service.headers.get(model)
        longest = header.context if header else 0
        return Limits(service.option("max_model_len") or longest or None, bool(service.option("vision")))

    def thinking(self, service: ResolvedService, *, is_on: bool) -> Mapping[str, Any]:  # noqa: ARG002
        """By a variable of its chat template."""
        return template_thinking(is_on=is_on)

    def processor(self, variables: Mapping[str, Any], *, has_card: bool) -> Processor:  # noqa: ARG002
        """What its stack computes on; its proof on a card notes what it found."""
        if variables.get("backend") == CPU:
            return Processor(is_device=False, why="its stack is for the processor")
        return Processor(is_device=True, why="")


def _caches(card: Card, usable: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What each cache is called, and the options to write for it; none where nothing of the card is usable."""
    from provisioner.loads.advice import LARGEST_SHARE, LEAST_SHARE

    hundredths = min(LARGEST_SHARE, 100 * usable // max(card.memory, 1))
    if hundredths < LEAST_SHARE:
        return
    share = {"gpu_memory_utilization": hundredths / 100}
    yield "auto", share
    if card.may_compute(FP8_SINCE):
        yield "fp8", {**share, "kv_cache_dtype": "fp8"}


def _memory_problems(service: ResolvedService) -> Iterator[Problem]:
    """A container without the memory that its processes take."""
    needed = PROCESSES
    if service.option("backend") == CPU:
        needed += (service.option("kv_cache_gib") or DEFAULT_CACHE_GIB) * GIB
    if service.memory < needed:
        message = f"its container has {size_text(service.memory)} of memory, and vLLM's three processes take"
        place = ("containers", service.container, "memory") if service.has_written_memory else service.path
        yield Problem(place, f"{message} {size_text(needed)} beside the weights", f"Write {size_text(needed)} or more.")


def _cache_problems(service: ResolvedService) -> Iterator[Problem]:
    """Yield a cache in the container's memory that does not hold one request of the longest context."""
    from provisioner.services.vllm.loads import least_cache

    gib, needed = service.option("kv_cache_gib") or DEFAULT_CACHE_GIB, -(-least_cache(service) // GIB)
    if gib < needed:
        message = f"a request of the longest context takes {needed} GiB of cache, and {gib} are there"
        yield service.problem("kv_cache_gib", message, f"Write {needed} or more, or a smaller max_model_len.")


def _parallel_problems(service: ResolvedService) -> Iterator[Problem]:
    """More cards than its container can have; those that somebody gave it by hand its role counts, without a stack."""
    cards = service.option("tensor_parallel")
    has_one_at_most = service.wants_card or bool(service.option("stack"))
    if cards > 1 and has_one_at_most:
        message = f"{cards} cards are asked for, and a container gets one at most (`gpu`)"
        yield service.problem("tensor_parallel", message, "Leave it out, or take a model that one card holds.")
