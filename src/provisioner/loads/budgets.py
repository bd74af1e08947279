"""What lies on each card together, against what is usable of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from provisioner.gpus.cards import Card
from provisioner.loads.engines import EngineLoads
from provisioner.loads.terms import MIB, Load, Sum, added_up, lacking_bytes, total_of
from provisioner.values.address import Address

RESERVED = 832 * MIB
"""What the driver, a display and the engine's own context take of a card before anything of the engine lies there.

Of an 8 GiB card that shows a desktop, too, llama.cpp saw 7,360 MiB free (8,192 - 832); without one 7,807 MiB are left.
"""
BARE = 480 * MIB
"""What a card keeps for itself and its driver before any engine begins: 480 MiB of an H100, 385 of an 8 GiB card.

The rest of what is reserved is for an engine's own context; what was measured of an engine has that in it.
"""
SHARING = 4 * 2**30
"""An AMD GPU with less memory of its own is a part of a processor, and computes in the host's memory as well."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The engines of one card, or of what is taken for one; ``usable`` is None where nobody tells it.

    ``reserved``: what of the card is not usable.
    """

    title: str
    engines: tuple[EngineLoads, ...]
    usable: int | None
    card: Card | None = None
    reserved: int = RESERVED

    @property
    def loads(self) -> tuple[Load, ...]:
        """All that lies there at the same time, where it takes most."""
        return tuple(load for engine in self.counted for load in engine.loads)

    @property
    def counted(self) -> tuple[EngineLoads, ...]:
        """The engines that lie there at the same time: of those that take turns only the largest."""
        return tuple(_largest(group) for group in _by_turns(self.engines))

    @property
    def uncounted(self) -> tuple[EngineLoads, ...]:
        """The engines that lie there only at their turn, when a larger one does not."""
        counted = self.counted
        return tuple(engine for engine in self.engines if engine not in counted)

    @property
    def named(self) -> tuple[tuple[str, Load], ...]:
        """Every load with what it is called: its model, or its container where two have the same one."""
        pairs = [(engine, load) for engine in self.engines for load in engine.loads]
        are_told_apart = len({load.name for _, load in pairs}) == len(pairs)
        return tuple(
            (load.name if are_told_apart else f"{engine.container}'s {load.name}", load) for engine, load in pairs
        )

    @property
    def added(self) -> Sum:
        """The sum, each term with its model's name where there are several; without a card against nothing."""
        there = {id(load) for load in self.loads}
        named = self.named
        counted = [(name, load) for name, load in named if id(load) in there]
        return added_up(counted, self.usable or 0, are_named=len(named) > 1)

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
        if self.usable is None:
            return 0
        return max(self.added.missing, *(lacking_bytes(load) for _, load in self.in_small_shares), 0)

    @property
    def in_small_shares(self) -> tuple[tuple[str, Load], ...]:
        """The loads that need more than the share of the card that their engine may take, with their names."""
        return tuple((name, load) for name, load in self.named if lacking_bytes(load))

    def free_for(self, load: Load) -> int:
        """What the others leave to this one, when it lies there."""
        others = 0
        for group in _by_turns(self.engines):
            owner = next((engine for engine in group if _has(engine, load)), None)
            if owner is None:
                others += _largest(group).total
            else:
                others += owner.total - total_of(load)
        return (self.usable or 0) - others

    def beside(self, own: Collection[Address]) -> tuple[EngineLoads, ...]:
        """The engines that lie there at the same time as those at these addresses, which are left out.

        Of those that take turns only the largest; none of a group in which one of ``own`` takes its turn.
        """
        groups = _by_turns(self.engines)
        others = [group for group in groups if not any(engine.address in own for engine in group)]
        return tuple(_largest(group) for group in others)

    def total_beside(self, engine: EngineLoads) -> int:
        """What the others take at most while that engine lies there."""
        total = 0
        for group in _by_turns(self.engines):
            if engine not in group:
                total += _largest(group).total
        return total

    def total_with(self, load: Load, size: int) -> int:
        """What lies there at most if that load took ``size`` bytes."""
        total = 0
        for group in _by_turns(self.engines):
            sizes = [engine.total - total_of(load) + size if _has(engine, load) else engine.total for engine in group]
            total += max(sizes)
        return total


def _by_turns(engines: Iterable[EngineLoads]) -> list[list[EngineLoads]]:
    """The engines, those that take turns with one another together."""
    groups: dict[tuple[Address, ...], list[EngineLoads]] = {}
    for engine in engines:
        groups.setdefault(engine.turns or (engine.address,), []).append(engine)
    return list(groups.values())


def _largest(group: Iterable[EngineLoads]) -> EngineLoads:
    return max(group, key=lambda engine: engine.total)


def _has(engine: EngineLoads, load: Load) -> bool:
    """Whether that very load is the engine's: others may be like it."""
    return any(own is load for own in engine.loads)


def usable_of(card: Card, reserved: int = RESERVED) -> int | None:
    """What engines can have of a card of which so much is reserved; None where nobody tells its memory."""
    is_shared = card.vendor == "amd" and card.memory < SHARING
    memory = card.memory + (card.shared_memory if is_shared else 0)
    return max(memory - reserved, 0) if memory else None


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
        reserved = _reserved(members)
        found.append(Budget(title, tuple(members), _usable(card, memory, reserved), card, reserved))
    return tuple(found)


def _reserved(engines: Iterable[EngineLoads]) -> int:
    """What is kept free: room for a context, too, unless all that lies there was measured with its own."""
    return BARE if all(engine.is_measured for engine in engines) else RESERVED


def _usable(card: Card | None, memory: int | None, reserved: int) -> int | None:
    if memory is not None:
        return memory
    return usable_of(card, reserved) if card else None


def _place(engine: EngineLoads, cards: Mapping[str, Card]) -> tuple[str, ...]:
    card = cards.get(engine.container)
    if card is not None:
        return ("card", engine.host, card.pci)
    if not engine.wish:
        return ("container", engine.container)
    return ("wish", engine.host, engine.wish)
