"""Files that a card could be given, and the choice among them: of a cache, a context, and the place of experts. Pure.

All of it on the card, or of a mixture all but the experts of some layers; a dense model is never split between card and
CPU, where it is slower than on either. Below Q4_K_M nothing is suggested while anything else fits. What lies on a card
already leaves that much less of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from provisioner.gpus.cards import Card
from provisioner.loads.advice import LEAST_CONTEXT, SMALLER
from provisioner.loads.budgets import Budget
from provisioner.loads.engines import EngineLoads
from provisioner.loads.layers import ALL_ON_CARD, INPUT, Placing, expert_bytes, held_back
from provisioner.loads.terms import CELLS, MIB, Load, cache_bytes, largest_context, needed_bytes, state_bytes, total_of
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


# Uses that people have for a model, and the context that each takes.


@dataclass(frozen=True, slots=True)
class Use:
    """What a model is for: the context that it should have, and whether it has to see."""

    context: int
    sees: bool = False


USES: Mapping[str, Use] = {
    "chat": Use(24_576),
    "code": Use(32_768),
    "long": Use(131_072),
    "vision": Use(8_192, sees=True),
}


# The speed with which a way to serve a file writes: as it was measured, else at most, as memory can be read.


def speed_of(way: Way, card_speed: float | None) -> float | None:
    """How many tokens in a second it was measured to write, else cannot exceed; None where nobody knows."""
    measured = measured_of(way)
    return measured.per_s if measured is not None else bound_per_s(way, card_speed)


def measured_of(way: Way) -> Measured | None:
    """What was measured of that very way; None without it.

    First what is known to have been served so, then what was measured nearest to half of the context, as bounds are
    reckoned, then the newest.
    """
    half, best, least = way.context // 2, None, (True, 0)
    for measured in way.candidate.measured:
        distance = (not measured.is_told, abs(measured.depth - half))
        if _was_served_so(measured, way) and (best is None or distance <= least):
            best, least = measured, distance
    return best


def _was_served_so(measured: Measured, way: Way) -> bool:
    """Whether what was measured lay as in that way; of an unknown one a dense model is taken to lie on the card."""
    candidate = way.candidate
    if candidate.form or measured.engine:
        role = candidate.server.role if candidate.server is not None else ""
        return bool(role) and (measured.engine, measured.cache) == (role, way.choice.cache)
    if not measured.is_told:
        return not candidate.is_mixture
    count = candidate.load.count
    is_on_card = not Placing(measured.gpu_layers).is_split(count)
    has_experts_there = not candidate.is_mixture or min(measured.experts, count) == way.experts
    return is_on_card and has_experts_there and (measured.keys, measured.values) == (way.keys, way.values)


def bound_per_s(way: Way, card_speed: float | None, host_speed: float | None = None) -> float | None:
    """How many tokens in a second it cannot exceed with half of its context filled; None where nobody knows.

    ``card_speed``, ``host_speed``: bytes in a second that their memories are read with. All that a token needs is read
    for it, one memory after the other. Where nobody knows the host's speed, the card's part alone is a bound as well.
    """
    read = read_bytes(way)
    if read is None or not card_speed:
        return None
    of_card, of_host = read
    seconds = of_card / card_speed
    if host_speed:
        seconds += of_host / host_speed
    return 1 / seconds if seconds else None


def read_bytes(way: Way) -> tuple[int, int] | None:
    """What is read for each token that it writes: bytes of the card, and bytes of the host's memory.

    Of a mixture only the experts that a token asks for; of the cache what half of the context takes; embeddings that
    are looked up are not read but for a row of a few KB. None for a mixture of which too little is known.
    """
    half = way.context // 2 // CELLS * CELLS  # not rounded up: a bound stays one
    load = replace(way.choice.load, context=half)
    share = _asked_share(way.candidate)
    if share is None or way.candidate.idle is None:
        return None
    kept = held_back(load.tensors, ALL_ON_CARD, load.count).total
    experts_away = held_back(load.tensors, Placing(None, way.experts), load.count).total - kept
    experts_on_card = expert_bytes(load.tensors) - experts_away
    always = _computed_with(way.candidate) - experts_away - experts_on_card
    of_card = always + round(experts_on_card * share) + cache_bytes(load) + state_bytes(load) // load.slots
    return of_card, round(experts_away * share)


def _computed_with(candidate: Candidate) -> int:
    """Bytes of the tensors that some token is computed with: all but those that are looked up."""
    load = candidate.load
    if load.tensors:
        return sum(load.tensors.values()) - held_back(load.tensors, ALL_ON_CARD, load.count).total
    looked_up = candidate.idle or 0
    # Of a model in several files those of the first one are known: too little read is a bound as well.
    for name, size in candidate.header.tensors.items():
        if name.startswith(INPUT):
            looked_up += size
    return load.weights - looked_up


def _asked_share(candidate: Candidate) -> float | None:
    """The share of its experts that a token asks for, 1 for a dense model; None where its file does not tell it."""
    header = candidate.header
    if not candidate.is_mixture:
        return 1.0
    used = header.values.get(f"{header.architecture}.expert_used_count")
    if not isinstance(used, int) or not 0 < used <= header.experts or not expert_bytes(candidate.load.tensors):
        return None
    return used / header.experts


# The choice among all ways to serve all files.

SLOW_PER_S = 5.0
"""Tokens in a second that people read, about 4 words: an answer that is written slower than that keeps them waiting."""


@dataclass(frozen=True, slots=True, order=True)
class Rank:
    """What decides of two ways, the first that differs; the smaller one is better."""

    is_too_short: bool
    is_below_floor: bool
    is_slow: bool
    experts: int
    cache: int
    """Its place among those of its engine."""
    lacking_weights: int
    """Bytes of its weights, negative: the more the better."""
    seconds: float
    """For each token, as measured, else at least; 0 where nobody knows."""
    name: str


@dataclass(frozen=True, slots=True)
class Left:
    """A file that is not suggested, and why."""

    candidate: Candidate
    why: str


def ways_of(candidate: Candidate, usable: int) -> tuple[Way, ...]:
    """Every way to serve a file on a card with so many usable bytes: one for each type of cache with which it fits.

    What others take of the card is not there for it.
    """
    return tuple(_ways(candidate, usable))


def room_of(candidate: Candidate, usable: int) -> int:
    """What others leave to a file of a card's usable bytes."""
    return max(usable - candidate.taken, 0)


def _ways(candidate: Candidate, usable: int) -> Iterator[Way]:
    room = room_of(candidate, usable)
    for place, choice in enumerate(candidate.caches):
        for experts in _places_of_experts(choice.load):
            placed = replace(choice.load, placing=Placing(None, experts))
            context = largest_context(placed, room)
            if context >= LEAST_CONTEXT:
                total = total_of(replace(placed, context=context))
                yield Way(candidate, choice, place, experts, context, total, room)
                break  # each further layer in the host's memory makes it slower


def _places_of_experts(load: Load) -> Iterator[int]:
    """Of how many layers the experts may stay in the host's memory, the fewest first."""
    yield 0
    if load.shape.experts and expert_bytes(load.tensors):
        yield from range(1, load.count + 1)


def best_way(ways: Iterable[Way], use: Use) -> Way | None:
    """The one that loses least and has the context of that use; where none has it, the one with the longest."""
    known = list(ways)
    enough = [one for one in known if one.context >= use.context]
    if enough:
        return min(enough, key=lambda one: (one.experts, one.place))
    return max(known, key=lambda one: one.context, default=None)


def suggested(
    candidates: Iterable[Candidate], usable: int, use: Use, card_speed: float | None = None
) -> tuple[list[Way], list[Left]]:
    """The best way of each file that can be served for that use, the best file first; and those that cannot, and why.

    First those that have its context, then those not below the floor, then those that can write faster than anybody
    reads, then those with all experts on the card, then those whose cache loses nothing; of equals the one with more
    bits of a weight, then the one that writes faster, by what was measured, else by its bound. ``card_speed``: bytes in
    a second that the card's memory is read with, None where nobody knows.
    """
    ways: list[Way] = []
    left: list[Left] = []
    for candidate in candidates:
        obstacle = _obstacle(candidate, use)
        found = best_way(ways_of(candidate, usable), use) if not obstacle else None
        if found is None:
            left.append(Left(candidate, obstacle or _why_not(candidate, usable)))
        else:
            ways.append(found)
    good = [one for one in ways if not one.candidate.is_below_floor]
    for one in ways:
        if good and one not in good:
            why = f"below {FLOOR}, and a better one fits"
            left.append(Left(one.candidate, why))
    ways = good or ways
    return sorted(ways, key=lambda one: _rank(one, use, card_speed)), left


def _obstacle(candidate: Candidate, use: Use) -> str:
    """Why a file is not suggested, however large the card is; empty where nothing is in the way."""
    if candidate.unknown:
        return candidate.unknown
    if use.sees and candidate.form:
        return "what images take of a card with a model that is a folder is not added up"
    if use.sees and not candidate.sees:
        return "it has no projector, and sees nothing"
    if not candidate.load.weights:
        return "nobody tells how large it is"
    return "; ".join(candidate.load.shape.unread)


def _rank(way: Way, use: Use, card_speed: float | None) -> Rank:
    speed = speed_of(way, card_speed)
    return Rank(
        is_too_short=way.context < use.context,
        is_below_floor=way.candidate.is_below_floor,
        is_slow=speed is not None and speed < SLOW_PER_S,
        experts=way.experts,
        cache=way.place,
        lacking_weights=-way.candidate.load.weights,
        seconds=1 / speed if speed else 0.0,
        name=way.candidate.name,
    )


def _why_not(candidate: Candidate, usable: int) -> str:
    """By how much it is too large, at its smallest."""
    smallest = replace(candidate.caches[-1].load, context=LEAST_CONTEXT)
    *_, most_away = _places_of_experts(smallest)
    least = needed_bytes(replace(smallest, placing=Placing(None, most_away)))
    left = room_of(candidate, usable)
    room = min(left, smallest.share or left)
    missing = -(-(least - room) // MIB)
    besides = ", with all experts in the host's memory" if most_away else ", and a dense model is not split"
    if candidate.is_mixture and not most_away:
        besides = ""
    return f"{missing:,} MiB too much even with {LEAST_CONTEXT:,} tokens{besides}"


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
