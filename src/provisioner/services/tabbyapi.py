"""tabbyAPI: what it is told of its card, and what it cannot compute on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from provisioner.gpus.cards import Card, described
from provisioner.services import base
from provisioner.services.base import Processor, ResolvedService, template_thinking
from provisioner.values.state import Problem

if TYPE_CHECKING:
    from provisioner.loads.engines import EngineLoads
    from provisioner.wheels.known import Stack

NVIDIA = "nvidia"


class Knowledge(base.Knowledge):
    """Knowledge of tabbyAPI."""

    def options_of_card(self, said: Mapping[str, Any], card: Card) -> Mapping[str, Any]:  # noqa: ARG002
        """The card, on which its proof has a kernel of the stack run."""
        return {"card": described(card)}

    def options_of_stack(self, stack: Stack) -> Mapping[str, Any]:
        """The commit that the stack serves, and through which of its backends."""
        if stack.serves is None:
            return {}
        return {"commit": stack.serves.commit, "backend": stack.serves.backend}

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
        """Unknown: how EXL2 and EXL3 models lie on a card is not added up here."""
        if not service.wants_card:
            return None
        from provisioner.loads.engines import EngineLoads  # what no run needs that only looks

        return EngineLoads(service.address, unknown="what models of EXL2, EXL3 and GPTQ take of a card is not added up")

    def thinking(self, service: ResolvedService, *, is_on: bool) -> Mapping[str, Any]:  # noqa: ARG002
        """By a variable of its chat template."""
        return template_thinking(is_on=is_on)

    def processor(self, variables: Mapping[str, Any], *, has_card: bool) -> Processor:  # noqa: ARG002
        """The card that it was told of. Its proof runs a kernel of the stack there and notes nothing."""
        if variables.get("card"):
            return Processor(is_device=True, why="its proof does not note what computed", notes_verdict=False)
        return Processor(is_device=False, why="no device was asked for")
