"""What a service does at a moment, and how fast: two looks at its counters, with the time between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from provisioner.values.address import Address

UP, DOWN = "UP", "DOWN"
LEAVES = ("DRAIN", "NOLB")
LOADING = ("", "L4CON", "L7STS", "L7RSP")
"""The switch's words for a server to which nobody can connect yet, and for one whose health page says that it loads."""
SHORTEST_S = 0.05
"""Two looks that are closer to each other say nothing of a speed."""
READ, WRITTEN, RUNNING, WAITING, CACHE = "read", "written", "running", "waiting", "cache"


class State(StrEnum):
    """What a service does, in one or two words."""

    ANSWERS = "answers"
    LOADS = "loads"
    ASLEEP = "asleep"
    ENDS = "ends"
    STOPPED = "stopped"
    FAILED = "failed"
    NOT_THERE = "not there"
    NO_ANSWER = "no answer"


UNIT_ENDED = {
    "inactive": State.STOPPED,
    "failed": State.FAILED,
    "not there": State.NOT_THERE,
    "asleep": State.ASLEEP,
    "deactivating": State.ENDS,
}
"""What a service does whose unit does not run, by systemd's words and those of ``agent``."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Tokens that one model has read and written since it was loaded."""

    read: int
    written: int


@dataclass(frozen=True, slots=True)
class Look:
    """What a service said of itself at one moment; None is what nobody told.

    ``at_s``: by a clock that never goes back, ``start``: another one after each start of it; ``counted`` by models;
    ``cache``: the part of it that running requests hold, 0 to 1; ``vram``: bytes; ``problem``: why it said no more.
    """

    state: State
    at_s: float = 0.0
    start: str = ""
    running: int | None = None
    waiting: int | None = None
    cache: float | None = None
    vram: int | None = None
    models: tuple[str, ...] = ()
    counted: Mapping[str, Counted] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens that are read and written in a second."""

    read: float
    written: float


@dataclass(frozen=True, slots=True)
class Row:
    """One service with what it does; ``rates`` are None where nobody tells, or where it was not looked at before."""

    address: Address
    look: Look
    rates: Rates | None = None


@dataclass(frozen=True, slots=True)
class CardUse:
    """A card as it is seen in a container: bytes that all processes together use, and all that it has."""

    container: str
    name: str
    used: int
    size: int


def look_of(said: Mapping[str, Any], series: Mapping[str, str], named: Sequence[str]) -> Look:
    """What ``live_in_container`` says of one service; ``series``: what is called how.

    ``named``: the models of the file, where it has no others in memory and does not say their names.
    """
    state = _state(said)
    is_there = state is State.ANSWERS
    models = [_Model.of(one, series) for one in said["models"]]
    at_engine = _sum(one.running for one in models)
    told = _named(models) or tuple(named) * is_there
    return Look(
        state=state,
        at_s=float(said["at_s"]),
        start=said["start"],
        running=_known(said["running"]) if at_engine is None else at_engine,
        waiting=_sum([_known(said["waiting"]), *(one.waiting for one in models)]),
        cache=_mean(one.cache for one in models),
        vram=_known(said["vram"]),
        models=told,
        counted=_counters(models) if is_there and series and not said["problem"] else None,
        problem=said["problem"],
    )


def _named(models: Iterable[_Model]) -> tuple[str, ...]:
    """The models by the names that they were told with; one that is alone has none."""
    return tuple(filter(None, (one.name for one in models)))


def _counters(models: Sequence[_Model]) -> dict[str, Counted] | None:
    """What each model has counted; None where one of them does not say it."""
    known = {one.name: one.counted for one in models if one.counted is not None}
    return known if len(known) == len(models) else None


def rates_between(before: Look | None, now: Look) -> Rates | None:
    """What it read and wrote in a second between two looks; None where that cannot be known.

    A counter that begins again says nothing of that time, nor does one that was not there before.
    """
    if before is None or before.start != now.start:
        return None
    were, are = before.counted, now.counted
    passed_s = now.at_s - before.at_s
    if were is None or are is None or passed_s < SHORTEST_S:
        return None
    read = written = 0
    for name in were.keys() & are.keys():
        grown = _grown(were[name], are[name])
        if grown is None:
            return None
        read += grown.read
        written += grown.written
    return Rates(read / passed_s, written / passed_s)


def _grown(was: Counted, now: Counted) -> Counted | None:
    """By how much a model has counted more; None where it began again."""
    grown = Counted(now.read - was.read, now.written - was.written)
    return grown if min(grown.read, grown.written) >= 0 else None


@dataclass(frozen=True, slots=True)
class _Model:
    """What one model does; None is what nobody told."""

    name: str
    counted: Counted | None
    running: int | None
    waiting: int | None
    cache: float | None

    @classmethod
    def of(cls, said: Mapping[str, Any], series: Mapping[str, str]) -> _Model:
        """What was said of it."""
        found = dict[str, list[float]]()
        for name, number in said["samples"]:
            found.setdefault(name, []).append(float(number))
        by_word = {word: found.get(name, []) for word, name in series.items()}
        added = {word: int(sum(numbers)) for word, numbers in by_word.items() if numbers}
        slots: Sequence[Sequence[int]] | None = said["slots"]
        counted = None
        if {READ, WRITTEN} <= added.keys() and slots is not None:
            counted = _with_running(added[READ], added[WRITTEN], slots)
        cache = _mean(by_word[CACHE]) if CACHE in by_word else _cache_of(slots or (), added.get(RUNNING))
        return cls(said["name"], counted, added.get(RUNNING), added.get(WAITING), cache)


def _with_running(read: int, written: int, slots: Sequence[Sequence[int]]) -> Counted:
    """With what running requests have read and written, which the counters of an engine that has slots do not count.

    Those count what is read once all of a prompt is, and what is written once a request has ended.
    """
    for _, _, read_so_far, written_so_far in slots:
        written += written_so_far
        if not written_so_far:
            read += read_so_far
    return Counted(read, written)


def _cache_of(slots: Sequence[Sequence[int]], running: int | None) -> float | None:
    """The part of all slots that running requests hold: nothing where none runs, None where slots are not told."""
    if running == 0:
        return 0.0
    room = held = 0
    for size, of_request, *_ in slots:
        room += size
        held += min(of_request, size)
    return held / room if room else None


def _state(said: Mapping[str, Any]) -> State:
    """What it does, by its unit, by the switch before it, and by what it said itself."""
    unit = said["unit"]
    if unit != "active":
        return UNIT_ENDED.get(unit, State.LOADS)
    return State.ASLEEP if said["sleeps"] else _state_of_running(said["status"], said["check"], said["problem"])


def _state_of_running(status: str, check: str, problem: str) -> State:
    """What it does whose unit runs."""
    if status.startswith(UP):
        return State.ANSWERS
    if status.startswith(LEAVES):
        return State.ENDS
    if not status:  # nobody knows it better than who asked it
        return State.NO_ANSWER if problem else State.ANSWERS
    is_expected = not status.startswith(DOWN) or check.lstrip("* ") in LOADING
    return State.LOADS if is_expected else State.NO_ANSWER


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum of those that are known; None where none is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _mean(numbers: Iterable[float | None]) -> float | None:
    """The mean of those that are known; None where none is."""
    known = [number for number in numbers if number is not None]
    return sum(known) / len(known) if known else None
