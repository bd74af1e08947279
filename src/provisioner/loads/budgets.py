"""What lies on each card together, against what is usable of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from provisioner.gpus.cards import Card
from provisioner.loads.engines import EngineLoads
from provisioner.loads.terms import MIB, Load, Sum, added_up, total_of

RESERVED = 832 * MIB
"""What the driver, a display and the engine's own context take of a card before anything of the engine lies there.

Of an 8 GiB card that shows a desktop, too, llama.cpp saw 7,360 MiB free (8,192 - 832); without one 7,807 MiB are left.
"""
SHARING = 4 * 2**30
"""An AMD GPU with less memory of its own is a part of a processor, and computes in the host's memory as well."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The engines of one card, or of what is taken for one; ``usable`` is None where nobody tells it."""

    title: str
    engines: tuple[EngineLoads, ...]
    usable: int | None
    card: Card | None = None

    @property
    def loads(self) -> tuple[Load, ...]:
        """All that lies there at the same time."""
        return tuple(load for engine in self.engines for load in engine.loads)

    @property
    def named(self) -> tuple[tuple[str, Load], ...]:
        """The same with what each is called: its model, or its container where two have the same one."""
        pairs = [(engine, load) for engine in self.engines for load in engine.loads]
        are_told_apart = len({load.name for _, load in pairs}) == len(pairs)
        return tuple(
            (load.name if are_told_apart else f"{engine.container}'s {load.name}", load) for engine, load in pairs
        )

    @property
    def added(self) -> Sum:
        """The sum, each term with its model's name where there are several; without a card against nothing."""
        return added_up(self.named, self.usable or 0)

    @property
    def unknown(self) -> tuple[EngineLoads, ...]:
        """The engines of which nobody knows what they need."""
        return tuple(engine for engine in self.engines if engine.unknown)

    @property
    def is_undecided(self) -> bool:
        """Whether the card's memory is known, all that was added up fits, and something is not in the sum."""
        return self.usable is not None and not self.missing and bool(self.unknown)

    @property
    def missing(self) -> int:
        """Bytes that are not there; 0 when it fits, and when nobody tells how large the card is."""
        return self.added.missing if self.usable is not None else 0

    def free_for(self, load: Load) -> int:
        """What the others leave to this one."""
        return (self.usable or 0) - sum(total_of(one) for one in self.loads if one is not load)


def usable_of(card: Card) -> int | None:
    """What engines can have of a card; None where nobody tells its memory."""
    is_shared = card.vendor == "amd" and card.memory < SHARING
    memory = card.memory + (card.shared_memory if is_shared else 0)
    return max(memory - RESERVED, 0) if memory else None


def budgets(engines: Iterable[EngineLoads], cards: Mapping[str, Card], memory: int | None = None) -> tuple[Budget, ...]:
    """The engines by their cards; ``cards`` by container; ``memory`` stands for what is usable of every card.

    Containers of one host that say the same of their card get the same one, unless one of them wants it alone.
    """
    groups: dict[tuple[str, ...], list[EngineLoads]] = {}
    for engine in engines:
        groups.setdefault(_place(engine, cards), []).append(engine)
    found = []
    for members in groups.values():
        card = cards.get(members[0].container)
        names = ", ".join(engine.container for engine in members)
        title = f"{names} on {card.title}" if card else names
        found.append(Budget(title, tuple(members), _usable(card, memory), card))
    return tuple(found)


def _usable(card: Card | None, memory: int | None) -> int | None:
    if memory is not None:
        return memory
    return usable_of(card) if card else None


def _place(engine: EngineLoads, cards: Mapping[str, Card]) -> tuple[str, ...]:
    card = cards.get(engine.container)
    if card is not None:
        return ("card", engine.host, card.pci)
    if not engine.wish:
        return ("container", engine.container)
    return ("wish", engine.host, engine.wish)
