"""What lies on a card already, and is not there for what ``suggest`` would put beside it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from provisioner.gpus.cards import Card
from provisioner.loads.budgets import Budget
from provisioner.loads.candidates import Candidate
from provisioner.loads.engines import EngineLoads
from provisioner.values.address import Address


@dataclass(frozen=True, slots=True)
class Taken:
    """A service on the card, and what it takes of it by the sum of ``fit``.

    ``not_beside``: the files from which that is not taken off: the service answers with them, or takes turns with who
    does.
    """

    engine: EngineLoads
    not_beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Occupied:
    """A card, and the services that lie there beside what is suggested; all that lies there in ``budget``.

    ``budget`` is None where nothing does.
    """

    card: Card
    budget: Budget | None = None
    taken: tuple[Taken, ...] = ()

    @property
    def total(self) -> int:
        """Bytes that lie there at the same time."""
        return sum(engine.total for engine in self.budget.counted) if self.budget is not None else 0


@dataclass(frozen=True, slots=True)
class Served:
    """A file, and the services at these addresses that answer with it already."""

    candidate: Candidate
    by: Collection[Address] = ()


def with_taken(served: Iterable[Served], occupied: Occupied) -> tuple[list[Candidate], Occupied]:
    """The files with what others take of the card beside each of them, and the card with who that is.

    A service that answers with the very file does not count against it, nor does what takes turns with that service.
    """
    budget, files = occupied.budget, list(served)
    if budget is None:
        return [one.candidate for one in files], occupied
    found: list[Candidate] = []
    counted: list[EngineLoads] = []
    not_beside: dict[Address, list[str]] = {}
    for one in files:
        others = budget.beside(one.by)
        found.append(replace(one.candidate, taken=sum(engine.total for engine in others)))
        counted += [engine for engine in others if engine not in counted]
        for engine in budget.engines if one.by else ():
            if engine not in others:
                not_beside.setdefault(engine.address, []).append(one.candidate.name)
    for engine in budget.engines:
        if engine.address in not_beside and engine not in counted:
            counted.append(engine)
    taken = tuple(Taken(engine, tuple(not_beside.get(engine.address, ()))) for engine in counted)
    return found, replace(occupied, taken=taken)
