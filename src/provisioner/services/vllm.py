"""vLLM: what follows from its stack and its card, how much memory its processes take, what a request may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from provisioner.gpus.cards import Card, described
from provisioner.services import base
from provisioner.services.base import Limits, Processor, ResolvedService
from provisioner.values.quantities import size_text
from provisioner.values.state import Problem

if TYPE_CHECKING:
    from provisioner.loads.engines import EngineLoads
    from provisioner.wheels.known import Stack

NVIDIA = "nvidia"
CUDA, CPU = "cuda", "cpu"
GIB = 2**30
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
        """A container without the memory that its processes take."""
        needed = PROCESSES
        if service.option("backend") == CPU:
            needed += (service.option("kv_cache_gib") or DEFAULT_CACHE_GIB) * GIB
        if service.memory < needed:
            message = f"its container has {size_text(service.memory)} of memory, and vLLM's three processes take"
            place = ("containers", service.container, "memory") if service.has_written_memory else service.path
            yield Problem(
                place, f"{message} {size_text(needed)} beside the weights", f"Write {size_text(needed)} or more."
            )

    def card_problems(self, service: ResolvedService) -> Iterator[Problem]:
        """A card that knows no CUDA."""
        if service.card is not None and service.card.vendor != NVIDIA:
            message = f"{service.card.title} knows no CUDA, which its stacks are for"
            yield Problem(service.path, message, "Give the container another card.")

    def loads(
        self,
        service: ResolvedService,
        sizes: Mapping[str, int],  # noqa: ARG002
        memory: int,  # noqa: ARG002
    ) -> EngineLoads | None:
        """Unknown: it takes its share of a card whatever the model, and how weights lie there is not added up."""
        if not service.wants_card:
            return None
        from provisioner.loads.engines import EngineLoads  # what no run needs that only looks

        share = f"{service.option('gpu_memory_utilization'):.0%}"
        why = f"vLLM takes {share} of a card at its start, and what a model needs of that is not added up"
        return EngineLoads(service.address, unknown=why)

    def limits(self, service: ResolvedService, model: str) -> Limits:  # noqa: ARG002
        """The context that is asked for, and whether images are taken."""
        return Limits(service.option("max_model_len") or None, bool(service.option("vision")))

    def processor(self, variables: Mapping[str, Any], *, has_card: bool) -> Processor:  # noqa: ARG002
        """What its stack computes on. Its proof runs a kernel of the stack on a card and notes nothing."""
        if variables.get("backend") == CPU:
            return Processor(is_device=False, why="its stack is for the processor")
        return Processor(is_device=True, why="its proof does not note what computed", notes_verdict=False)
