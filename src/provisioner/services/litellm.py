"""LiteLLM: how it passes requests on to engines, and what nothing that it reads may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from provisioner.services import base
from provisioner.services.base import Path, ResolvedService
from provisioner.services.gateway_routes import VARIABLE_MARK, RoutedAlias, RoutedEngine, routes_of
from provisioner.values.declared import Problem, Secret

BESIDE_BYTES = 700 * 2**20
"""What has to be free for a second gateway, as the role says it (``__litellm_beside_bytes``)."""


class Knowledge(base.OnCpu):
    """Knowledge of LiteLLM."""

    def reading_problems(self, told: Mapping[Path, Any]) -> Iterator[Problem]:
        """Nothing that it is told, keys included, holds what it takes for the value of a variable."""
        for path, value in told.items():
            for place in _places_of_variables(value):
                hint = "LiteLLM takes that for a variable."
                yield Problem((*path, *place), f'"{VARIABLE_MARK}" is in it', hint)

    def changes_beside(self, service: ResolvedService, sizes: Mapping[str, int | None]) -> bool | None:  # noqa: ARG002
        """Where its container's memory holds two."""
        return bool(service.option("beside")) and service.memory >= 2 * BESIDE_BYTES

    def routes(self, aliases: Sequence[RoutedAlias], engines: Sequence[RoutedEngine]) -> Mapping[str, Any]:
        """The role's option ``routes``, as its argument_specs describe it."""
        return routes_of(aliases, engines)


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
