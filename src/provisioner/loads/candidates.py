"""Files that a card could be given, the ways to serve them, and what lies on the card beside them already. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from provisioner.gpus.cards import Card
from provisioner.loads.advice import SMALLER
from provisioner.loads.budgets import Budget
from provisioner.loads.engines import EngineLoads
from provisioner.loads.terms import Load
from provisioner.loads.weighing import BYTES_PER_WEIGHT, FILE_TYPES, FLOOR, FLOOR_BITS
from provisioner.models.header import Header
from provisioner.models.sources import ModelPart
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


WHOLE = ("f16", "f16")
"""The types of a cache that loses nothing."""
CACHES = (WHOLE, *SMALLER)
LOW = re.compile(r"(UD-)?(I?Q[123]|TQ[12]|IQ4_XS|Q4_K_S|Q4_0)", re.IGNORECASE)
"""How types below the floor are called in names of files."""
TYPE = re.compile(r"(UD-)?(I?Q|TQ|MXFP|NVFP|BF|F)[0-9]", re.IGNORECASE)
"""How all types are; another end of a name says nothing of them."""
FLOOR_OF_FOLDERS = 4.0
"""Bits of a weight below which EXL3, EXL2, AWQ and GPTQ count as below the floor.

Cards of two EXL3 repositories tell a divergence of 0.02 and 0.04 at 4 bits, as Q4_K_M has it, and of 0.11 at 3.
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """How fast a file was seen to write: tokens in a second behind ``depth`` others, and when.

    Of how it was served: the types of its cache, how many layers the card had (None: all), and of how many the experts
    lay in the host's memory. ``is_told``: whether all that is known; else it says nothing. Of folders instead: the
    ``engine`` that served it, and its ``cache``, as that calls it. ``by_clients``: they saw it, with the server and the
    way to it in between; else the engine alone computed it.
    """

    per_s: float
    at: str
    depth: int = 0
    keys: str = "f16"
    values: str = "f16"
    gpu_layers: int | None = None
    experts: int = 0
    is_told: bool = True
    engine: str = ""
    cache: str = ""
    by_clients: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """The service that would serve a folder: its role, and its option that says how long its context is.

    ``keys``: the options for secrets without which it does not serve; ``image``: of its container, empty for its own.
    ``lock``: the command that finds its wheels.
    """

    role: str
    context: str
    keys: tuple[str, ...] = ()
    image: str = ""
    lock: str = "provision lock"


@dataclass(frozen=True, slots=True)
class Choice:
    """One type of cache with which an engine could serve a file, and what it then takes with its whole context.

    ``cache``: how the engine calls it; ``options``: what the block says of the service beside model and context.
    """

    load: Load
    cache: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that could be served: what it is called, what it needs on a card, and what its head says.

    ``load``: with its whole context, all of it on the card; ``written``: what the file of a lab says of it; ``label``:
    what its name says of its weights; ``eye``: what is written of its projector, where it has one; ``parts``: its
    files, the first one first, without a hash where nobody took it; ``measured``: on that card, the oldest first.
    Of a folder: ``form``, its format; ``server``, which reads it, None as long as no card was looked at; ``choices``,
    the caches of that; ``idle``, bytes of its weights that no token is
    computed with, None where nobody knows them. ``taken``: bytes of the card that others take beside it.
    ``unknown``: why it is not suggested, whatever the card is: it is no model, or nobody knows what it takes.
    """

    name: str
    load: Load
    header: Header
    written: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    eye: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[ModelPart, ...] = ()
    measured: tuple[Measured, ...] = ()
    form: str = ""
    server: Server | None = None
    choices: tuple[Choice, ...] = ()
    unknown: str = ""
    idle: int | None = 0
    taken: int = 0

    @property
    def caches(self) -> tuple[Choice, ...]:
        """With which caches it could be served, the one that loses least first."""
        if self.form:
            return self.choices
        found: list[Choice] = []
        for keys, values in CACHES:
            cache = keys if keys == values else f"{keys}, {values}"
            load = replace(self.load, keys=keys, values=values)
            found.append(Choice(load, cache, {"kv_cache": {"k": keys, "v": values}}))
        return tuple(found)

    @property
    def bits(self) -> float:
        """Bits of a weight, on average; 0 where nobody tells them."""
        told: float = self.header.bits or self.header.values.get("bits") or 0.0
        return told

    @property
    def sees(self) -> bool:
        """Whether it takes images."""
        return bool(self.eye)

    @property
    def is_mixture(self) -> bool:
        """Whether a token asks only some of its experts."""
        return bool(self.header.experts or self.load.shape.experts)

    @property
    def quant(self) -> str:
        """How its weights are stored, as its head says it, else its name; empty where neither does."""
        number = self.header.values.get("general.file_type")
        by_name = self.label if TYPE.match(self.label) else ""
        return FILE_TYPES.get(number, by_name) if isinstance(number, int) else by_name

    @property
    def is_below_floor(self) -> bool:
        """Whether its weights have lost what is noticed, by what is known of its type, else by their bits."""
        if self.form:
            return 0 < self.bits < FLOOR_OF_FOLDERS
        known = BYTES_PER_WEIGHT.get(self.quant)
        if known is not None:
            return known < BYTES_PER_WEIGHT[FLOOR]
        return 0 < self.header.bits < FLOOR_BITS or LOW.match(self.quant) is not None


@dataclass(frozen=True, slots=True)
class Way:
    """How a file would be served: with which cache, of how many layers the experts stay in the host's memory.

    ``place``: the cache's among those of its engine, 0 for the one that loses nothing; ``context``: the largest one
    that it then has; ``total``: bytes of the card with it.
    """

    candidate: Candidate
    choice: Choice
    place: int
    experts: int
    context: int
    total: int
    usable: int

    @property
    def keys(self) -> str:
        """The type of its cached keys, as sums call it."""
        return self.choice.load.keys

    @property
    def values(self) -> str:
        """The type of its cached values."""
        return self.choice.load.values

    @property
    def free(self) -> int:
        """Bytes of the card that are left."""
        return self.usable - self.total


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
