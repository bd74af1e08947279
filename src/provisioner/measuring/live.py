"""What a service does at a moment, and how fast: two looks at its counters, with the time between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from provisioner.values.address import Address

UP, DOWN = "UP", "DOWN"
REFUSED, ANSWERED_NO = ("L4CON",), ("L7STS", "L7RSP")
"""The switch's words for a server to which nobody can connect yet, and for one whose health page says that it loads."""
UNIT_ENDED = {"inactive": "stopped", "failed": "failed", "not there": "not there", "asleep": "asleep"}
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
    models = [_Model.of(one, series) for one in said["models"]]
    running = _sum(one.running for one in models)
    at_switch, at_engine = _known(said["waiting"]), _sum(one.waiting for one in models)
    own_names = tuple(one.name for one in models if one.name)
    is_there = state is State.ANSWERS
    shares = [one.cache for one in models if one.cache is not None]
    return Look(
        state=state,
        at_s=float(said["at_s"]),
        start=said["start"],
        running=_known(said["running"]) if running is None else running,
        waiting=_sum((at_switch, at_engine)),
        cache=sum(shares) / len(shares) if shares else None,
        vram=_known(said["vram"]),
        models=own_names or (tuple(named) if is_there else ()),
        counted=_counters(models) if is_there and series and not said["problem"] else None,
        problem=said["problem"],
    )


def _counters(models: Iterable[_Model]) -> dict[str, Counted] | None:
    """What each model has counted; None where one of them does not say it."""
    found = {}
    for one in models:
        if one.counted is None:
            return None
        found[one.name] = one.counted
    return found


def rates_between(before: Look | None, now: Look) -> Rates | None:
    """What it read and wrote in a second between two looks; None where that cannot be known.

    A counter that begins again says nothing of that time, nor does one that was not there before.
    """
    if before is None or before.counted is None or now.counted is None or before.start != now.start:
        return None
    passed_s = now.at_s - before.at_s
    if passed_s < SHORTEST_S:
        return None
    read = written = 0
    for name, counted in now.counted.items():
        was = before.counted.get(name)
        if was is None:
            continue
        if counted.read < was.read or counted.written < was.written:
            return None
        read += counted.read - was.read
        written += counted.written - was.written
    return Rates(read / passed_s, written / passed_s)


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
        by_word = {word: found[name] for word, name in series.items() if name in found}
        slots: Sequence[Sequence[int]] | None = said["slots"]
        counted = None
        if READ in by_word and WRITTEN in by_word and slots is not None:
            counted = _with_running(int(sum(by_word[READ])), int(sum(by_word[WRITTEN])), slots)
        running = int(sum(by_word[RUNNING])) if RUNNING in by_word else None
        waiting = int(sum(by_word[WAITING])) if WAITING in by_word else None
        shares = by_word.get(CACHE, [])
        cache = sum(shares) / len(shares) if shares else _cache_of(slots or ())
        if CACHE not in series and running == 0:
            cache = 0.0  # nobody holds anything
        return cls(said["name"], counted, running, waiting, cache)


def _with_running(read: int, written: int, slots: Sequence[Sequence[int]]) -> Counted:
    """With what running requests have read and written, which the counters of an engine that has slots do not count.

    Those count what is read once all of a prompt is, and what is written once a request has ended.
    """
    for _, _, read_so_far, written_so_far in slots:
        written += written_so_far
        if not written_so_far:
            read += read_so_far
    return Counted(read, written)


def _cache_of(slots: Sequence[Sequence[int]]) -> float | None:
    """The part of all slots that running requests hold; None where there are none."""
    room = held = 0
    for size, of_request, *_ in slots:
        room += size
        held += min(of_request, size)
    return held / room if room else None


def _state(said: Mapping[str, Any]) -> State:
    """What it does, by its unit, by the switch before it, and by what it said itself."""
    unit, status = said["unit"], said["status"]
    if unit in UNIT_ENDED:
        return State(UNIT_ENDED[unit])
    if unit == "deactivating" or status.startswith(("DRAIN", "NOLB")):
        return State.ENDS
    if unit != "active":
        return State.LOADS
    return State.ASLEEP if said["sleeps"] else _state_of_running(said)


def _state_of_running(said: Mapping[str, Any]) -> State:
    """What it does whose unit runs."""
    status, check = said["status"], said["check"]
    if status.startswith(UP):
        return State.ANSWERS
    if not status:  # nobody knows it better than who asked it
        return State.NO_ANSWER if said["problem"] else State.ANSWERS
    is_silent = status.startswith(DOWN) and check and check.lstrip("* ") not in (*REFUSED, *ANSWERED_NO)
    return State.NO_ANSWER if is_silent else State.LOADS


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum of those that are known; None where none is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
