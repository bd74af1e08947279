"""What a service needs on its card: the loads that lie there at the same time, or the reason why nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from provisioner.loads.terms import Load, total_of
from provisioner.models.header import Header
from provisioner.values.address import Address

SMALL_CARD = 8 * 2**30
"""With an encoder on such a card the role of llama.cpp computes less at once."""


@dataclass(frozen=True, slots=True)
class Way:
    """Other options of an engine: ``write`` is what to write, ``text`` says it; ``loads`` then lie on the card.

    Without anything to write its ``loads`` say nothing.
    """

    text: str
    write: str
    loads: tuple[Load, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """The question to the program of an engine's build: how much of a card each model takes.

    ``program``: which one, as the build's own module names it; ``arguments`` of each load by its name, ``halves`` the
    same with half of the context, ``files`` that go with them, models by their arguments; ``variables`` of its
    environment. ``open``: what it cannot tell all the same.
    """

    program: str
    arguments: Mapping[str, tuple[str, ...]]
    halves: Mapping[str, tuple[str, ...]]
    files: Mapping[str, Mapping[str, str]]
    variables: Mapping[str, str]
    open: str = ""


@dataclass(frozen=True, slots=True)
class EngineLoads:
    """One service that computes on a card: its ``loads`` lie there at the same time.

    ``unread``: what is guessed. ``headers``: what the models' files say, from which advice is made.
    ``unknown``: why nobody knows whether it fits; its loads are then what it takes for certain, if anything. Engines
    of the same ``host`` and ``wish``, which says what they ask of a card, get the same card; without a wish an engine
    is alone on its card. Of those that take turns (``turns``: all of their group) one at a time lies there.
    ``ways``: what to do where it does not fit, the better first; None: llama.cpp's and vLLM's, which advice knows.
    ``grows``: it may take more later than right after its start, so that a measurement is no upper bound.
    ``is_measured``: its sum is what it took when it was measured, its own context included. ``question``: how its own
    program is asked for the sum, where it has one that was not asked yet.
    """

    address: Address
    loads: tuple[Load, ...] = ()
    unread: tuple[str, ...] = ()
    headers: Mapping[str, Header] = field(default_factory=dict, compare=False)
    unknown: str = ""
    host: str = ""
    wish: str = ""
    turns: tuple[Address, ...] = ()
    ways: tuple[Way, ...] | None = None
    grows: bool = False
    is_measured: bool = False
    question: Question | None = field(default=None, compare=False)

    @property
    def container(self) -> str:
        """The container in which it runs."""
        return self.address.container

    @property
    def total(self) -> int:
        """Bytes that its loads need on the card."""
        return sum(map(total_of, self.loads))
