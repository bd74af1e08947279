"""Who answers under which name: models, services and upstreams that an alias can list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from provisioner.services.base import ResolvedService
from provisioner.values.address import Address


@dataclass(frozen=True, slots=True)
class Engine:
    """One service of the file that answers completions, and the models that it serves."""

    service: ResolvedService
    models: tuple[str, ...]

    @property
    def address(self) -> Address:
        """``container/service``."""
        return self.service.address

    def model_for(self, name: str) -> str:
        """Which of its models an alias' ``name`` means: the one of that name, else the first; empty without any."""
        return name if name in self.models else next(iter(self.models), "")


def find_engines(engines: Sequence[Engine], name: str) -> tuple[Engine, ...]:
    """The engines that ``name`` means: all that serve the model of that name, or the one at that address."""
    return tuple(engine for engine in engines if name in {*engine.models, engine.address})
