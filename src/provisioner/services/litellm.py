"""LiteLLM: what nothing that it reads may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from provisioner.services import base
from provisioner.services.base import Path, Processor, ResolvedService
from provisioner.state import Problem, Secret

if TYPE_CHECKING:
    from provisioner.fit.engines import EngineLoads

VARIABLE_MARK = "os.environ/"
"""LiteLLM puts the value of the variable, such as its own key, in the place of os.environ/NAME."""


class Knowledge(base.Knowledge):
    """Knowledge of LiteLLM."""

    def reading_problems(self, told: Mapping[Path, Any]) -> Iterator[Problem]:
        """Nothing that it is told, keys included, holds what it takes for the value of a variable."""
        for path, value in told.items():
            for place in _places_of_variables(value):
                hint = "LiteLLM takes that for a variable."
                yield Problem((*path, *place), f'"{VARIABLE_MARK}" is in it', hint)

    def loads(
        self,
        service: ResolvedService,  # noqa: ARG002
        sizes: Mapping[str, int],  # noqa: ARG002
        memory: int,  # noqa: ARG002
    ) -> EngineLoads | None:
        """None: it only hands requests on."""
        return None

    def processor(self, variables: Mapping[str, Any], *, has_card: bool) -> Processor:  # noqa: ARG002
        """The CPU."""
        return Processor(is_device=False, why="no device was asked for")


def _places_of_variables(value: Any, place: Path = ()) -> Iterator[Path]:
    text = value.reveal() if isinstance(value, Secret) and value.is_known else value
    if isinstance(text, str) and VARIABLE_MARK in text:
        yield place
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _places_of_variables(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places_of_variables(inner, (*place, index))
