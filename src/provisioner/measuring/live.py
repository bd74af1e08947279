"""The verb ``top``: what services do at this moment, and how fast, shown until somebody stops it."""

from __future__ import annotations

import json
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from provisioner.hosts.base import Provider
from provisioner.inside import activity, agent
from provisioner.inside.answers import DamagedAnswerError, live_answer
from provisioner.inside.bundle import program_of
from provisioner.lab.opening import Lab
from provisioner.measuring.pause import switch_socket
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.gather import COMMAND
from provisioner.report.style import PLAIN, Style, safe_line
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService
from provisioner.values.address import Address
from provisioner.values.errors import InputError, ProvisionError
from provisioner.values.plain_data import answer_value, foreign
from provisioner.values.state import Execution, Fleet, Instance, Status

# Two looks at a service's counters, and the time between them: what it does, and how fast. Pure.

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
    """What ``inside.activity`` says of one service; ``series``: what is called how.

    ``named``: the models of the file, where it has no others in memory and does not say their names.
    """
    state = _state(said)
    is_there = state is State.ANSWERS
    models = [_Model.of(one, series) for one in said["models"]]
    at_engine = _sum(one.running for one in models)
    told = tuple(one.name for one in models if one.name)  # one that is alone has none
    return Look(
        state=state,
        at_s=float(said["at_s"]),
        start=said["start"],
        running=_known(said["running"]) if at_engine is None else at_engine,
        waiting=_sum([_known(said["waiting"]), *(one.waiting for one in models)]),
        cache=_mean(one.cache for one in models),
        vram=_known(said["vram"]),
        models=told or tuple(named) * is_there,
        counted=_counters(models) if is_there and series and not said["problem"] else None,
        problem=said["problem"],
    )


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


# The watch, which looks at the engines and gateways of a lab: nobody is woken, and nothing is changed.

STAGES = ("engine", "team", "gateway")
"""Whoever answers requests of clients; people look at the others."""
LIVE = "live"
LONGEST_LOOK_S = 10.0
"""A container that has not answered by then is told as silent."""
LONGEST_WORDS = 200
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Picture:
    """What was seen in one look: a row for each service, and the cards of containers that have one."""

    rows: tuple[Row, ...]
    cards: tuple[CardUse, ...] = ()


@dataclass
class Watch:
    """Looks at the services of a lab again and again; from two looks at a counter follows how fast it grows."""

    lab: Lab
    effects: Effects
    services: Sequence[ResolvedService]
    _before: dict[Address, Look] = field(default_factory=dict)

    def picture(self) -> Picture:
        """Look once at all of them; raises ``ProvisionError`` where no host answers."""
        there, silent = self._observed()
        containers = dict.fromkeys(one.container for one in self.services)
        running = [name for name in containers if name in there and there[name].status is Status.RUNNING]
        answers = self._answers(there, running)
        rows, cards = [], []
        for service in self.services:
            look = self._look(service, there, silent, answers)
            rows.append(Row(service.address, look, rates_between(self._before.get(service.address), look)))
            self._before[service.address] = look
        for name in running:
            answer = answers.get(name)
            if isinstance(answer, dict):
                cards += [CardUse(name, *card) for card in answer["cards"]]
        return Picture(tuple(rows), tuple(cards))

    def _observed(self) -> tuple[dict[str, Instance], dict[str, str]]:
        """The containers that are there, by their names, and of hosts that do not answer why."""
        providers = self.effects.providers
        seen = _all_of(lambda host: providers[host].observe(self.lab.name, detailed=False), providers)
        errors = {host: found for host, found in seen.items() if isinstance(found, ProvisionError)}
        if errors and len(errors) == len(seen):
            raise next(iter(errors.values()))
        there: dict[str, Instance] = {}
        for found in seen.values():
            if isinstance(found, Fleet):
                there |= {one.name: one for one in found.instances}
        return there, {host: error.message for host, error in errors.items()}

    def _answers(self, there: Mapping[str, Instance], running: Sequence[str]) -> dict[str, dict[str, Any] | str]:
        """What each running container says, or why it says nothing; all hosts are asked at once."""
        by_host: dict[str, list[str]] = {}
        for name in running:
            by_host.setdefault(there[name].host, []).append(name)
        told = _all_of(lambda host: self._asked(host, by_host[host]), by_host)
        answers: dict[str, dict[str, Any] | str] = {}
        for host, found in told.items():
            if isinstance(found, ProvisionError):
                answers |= dict.fromkeys(by_host[host], found.message)
            else:
                answers |= found
        return answers

    def _asked(self, host: str, names: Sequence[str]) -> dict[str, dict[str, Any] | str]:
        """What each of these containers says, or why it says nothing: one run of a program in each, all at once."""
        provider: Provider = self.effects.providers[host]
        requests = {name: json.dumps(self._request(name)).encode() for name in names}
        looked = provider.look(COMMAND, requests, shared=program_text(), timeout_s=LONGEST_LOOK_S)
        found: dict[str, dict[str, Any] | str] = {name: error.message for name, error in looked.failures.items()}
        for name, ran in looked.executions.items():
            found[name] = _answer(ran, [str(one.address) for one in self._of(name)])
        return found

    def _of(self, container: str) -> list[ResolvedService]:
        return [one for one in self.services if one.container == container]

    def _request(self, container: str) -> dict[str, Any]:
        """What a container is asked."""
        asked = []
        for one in self._of(container):
            metrics = knowledge_of(one.role).metrics(one)
            engine: dict[str, Any] = {"address": str(one.address), "unit": one.page.unit, "socket": switch_socket(one)}
            engine |= {"port": one.own_port, "health": one.health or ""}
            asked.append({**engine, "metrics": asdict(metrics) if metrics else None})
        has_card = self.lab.spec.containers[container].gpu is not None
        return {"do": LIVE, "card": has_card, "services": asked}

    def _look(
        self,
        service: ResolvedService,
        there: Mapping[str, Instance],
        silent: Mapping[str, str],
        answers: Mapping[str, dict[str, Any] | str],
    ) -> Look:
        """What is seen of one service."""
        host = self.lab.resolved.containers[service.container].host
        instance = there.get(service.container)
        if instance is None:
            away = silent.get(host or "", next(iter(silent.values()), "") if host is None else "")
            return Look(State.NO_ANSWER, problem=away) if away else Look(State.NOT_THERE)
        if instance.status is not Status.RUNNING:
            return Look(State.STOPPED)
        answer = answers.get(service.container, "it was not asked")
        if isinstance(answer, str):
            return Look(State.NO_ANSWER, problem=answer)
        metrics = knowledge_of(service.role).metrics(service)
        tells_models = metrics is not None and (metrics.models or metrics.held)
        named = [] if tells_models else [service.name_of(name) for name in service.served_models]
        return look_of(answer["services"][service.address], metrics.series if metrics else {}, named)


def watch(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> Watch:
    """Who looks at the engines and gateways of these containers (none: of all); ``InputError`` where there are none."""
    found = []
    for service in lab.resolved.services.values():
        is_wanted = not targets or service.container in targets
        if is_wanted and service.page.stage in STAGES and service.page.unit:
            found.append(service)
    if not found:
        raise InputError(
            f"Unable to watch {' '.join(targets) or lab.name}: no container there has an engine or a gateway",
            resolution="Run: provision status, which says what runs in all containers.",
        )
    return Watch(lab, effects, found)


@cache
def program_text() -> bytes:
    """The program with what it needs, as it is sent: what follows it is the request."""
    return zlib.compress(program_of(activity, agent).encode())


def _answer(ran: Execution, addresses: Sequence[str]) -> dict[str, Any] | str:
    """What a container said, or why it said nothing that can be read."""
    if ran.returncode:
        last = ran.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return f"python3 ended with {ran.returncode}: {''.join(last)[:LONGEST_WORDS]}"
    try:
        return foreign(live_answer(answer_value(ran.stdout), addresses))
    except (DamagedAnswerError, ValueError) as error:
        return f"its answer is damaged: {str(error)[:LONGEST_WORDS]}"


def _all_of(ask: Callable[[str], Found], names: Iterable[str]) -> dict[str, Found | ProvisionError]:
    """What each gave, all asked at once; in the place of one that failed its error."""

    def caught(name: str) -> Found | ProvisionError:
        try:
            return ask(name)
        except ProvisionError as error:
            return error

    names = list(names)
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        return dict(zip(names, pool.map(caught, names), strict=True))


# The table, no wider and no longer than a terminal.

HEAD = ("CONTAINER/SERVICE", "STATE", "RUNNING", "WAITING", "TOKENS/S IN", "OUT", "CACHE", "VRAM", "MODEL")
STATE_COLUMN, CACHE_COLUMN, VRAM_COLUMN, MODEL_COLUMN = 1, 6, 7, 8
DROPPED = (MODEL_COLUMN, CACHE_COLUMN, VRAM_COLUMN, 3, 4, 2, 5)
"""The columns that are left out where a terminal is too narrow, the first of them first."""
NONE = "-"
PADDING = "  "
SHORTEST_MODEL = 10
GIB = 2**30
NARROWEST = 20
MOOD = {
    State.ANSWERS: "green",
    State.LOADS: "yellow",
    State.ENDS: "yellow",
    State.ASLEEP: "dim",
    State.STOPPED: "yellow",
    State.FAILED: "red",
    State.NOT_THERE: "red",
    State.NO_ANSWER: "red",
}
MORE = "…"


def live_text(
    rows: Sequence[Row], cards: Sequence[CardUse], columns: int = 0, lines: int = 0, style: Style = PLAIN
) -> str:
    """The table, below it the cards and what was said in words; ``columns`` and ``lines`` of a terminal, 0: any."""
    width = max(columns, NARROWEST) if columns else 0
    table = _fitted([HEAD, *map(_cells, rows)], width)
    text = [style.paint(_line(table[0], table), "bold")]
    for row, cells in zip(rows, table[1:], strict=True):
        text.append(_line(cells, table, MOOD[row.look.state], style))
    below = list(map(_card_text, cards))
    below += [f"{row.address}: {safe_line(row.look.problem)}" for row in rows if row.look.problem]
    if below:
        text += ["", *(_cut(line, width) for line in below)]
    if lines and len(text) > lines:
        left_out = len(text) - lines + 1
        text = [*text[: lines - 1], _cut(f"{MORE} {left_out} lines more", width)]
    return "\n".join(text)


def live_lines(rows: Sequence[Row], cards: Sequence[CardUse]) -> dict[str, Any]:
    """The same for programs; null is what nobody told."""
    return {"services": list(map(_plain, rows)), "cards": list(map(_plain_card, cards))}


def _plain(row: Row) -> dict[str, Any]:
    look, rates = row.look, row.rates
    told: dict[str, Any] = {
        "target": row.address,
        "state": look.state,
        "running": look.running,
        "waiting": look.waiting,
    }
    told |= {"read_per_s": round(rates.read, 3) if rates else None}
    told |= {"written_per_s": round(rates.written, 3) if rates else None}
    told |= {"cache": look.cache, "vram": look.vram, "models": look.models, "problem": look.problem}
    return told


def _plain_card(card: CardUse) -> dict[str, Any]:
    return {"container": card.container, "name": card.name, "used": card.used, "size": card.size}


def _cells(row: Row) -> tuple[str, ...]:
    look = row.look
    read, written = _rates_text(row.rates)
    return (
        safe_line(row.address),
        str(look.state),
        _count_text(look.running),
        _count_text(look.waiting),
        read,
        written,
        NONE if look.cache is None else f"{100 * look.cache:.0f} %",
        _vram_text(look),
        safe_line(", ".join(look.models)) or NONE,
    )


def _rates_text(rates: Rates | None) -> tuple[str, str]:
    return (NONE, NONE) if rates is None else (f"{rates.read:.1f}", f"{rates.written:.1f}")


def _count_text(number: int | None) -> str:
    return NONE if number is None else str(number)


def _vram_text(look: Look) -> str:
    return NONE if look.vram is None else f"{look.vram / GIB:.1f} GiB"


def _card_text(card: CardUse) -> str:
    """What all that use a card have of it, of which a container may see one part only."""
    return f"{card.container}: {card.used / GIB:.1f} of {card.size / GIB:.1f} GiB of {safe_line(card.name)} are used"


def _fitted(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """The rows no wider than that: the models' names are cut first, then columns are left out, then the rest is cut."""
    kept = list(map(list, rows))
    if not width:
        return kept
    over = _width_of(kept) - width
    if over > 0:
        longest = max(cells_of(row[MODEL_COLUMN]) for row in kept)
        for row in kept:
            row[MODEL_COLUMN] = _cut(row[MODEL_COLUMN], max(longest - over, SHORTEST_MODEL))
    shown = kept
    for count in range(len(DROPPED) + 1):
        shown = [[cell for number, cell in enumerate(row) if number not in DROPPED[:count]] for row in kept]
        if _width_of(shown) <= width:
            return shown
    over = _width_of(shown) - width
    for row in shown:
        if over > 0:
            row[0] = _cut(row[0], max(max(cells_of(one[0]) for one in shown) - over, 1))
    return shown


def _width_of(rows: Sequence[Sequence[str]]) -> int:
    return sum(_widths(rows)) + len(PADDING) * (len(rows[0]) - 1)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cells_of, column)) for column in zip(*rows, strict=True)]


def _line(cells: Sequence[str], rows: Sequence[Sequence[str]], colour: str = "", style: Style = PLAIN) -> str:
    parts = []
    for number, (cell, width) in enumerate(zip(cells, _widths(rows), strict=True)):
        padded = cell + " " * (width - cells_of(cell))
        parts.append(style.paint(padded, colour) if colour and number == STATE_COLUMN else padded)
    return PADDING.join(parts).rstrip()


def cells_of(text: str) -> int:
    """How many places of a terminal a text takes: two for each wide character, none for one that combines."""
    if text.isascii():
        return len(text)
    return sum(map(_cells_of_character, text))


def _cells_of_character(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _cut(text: str, width: int) -> str:
    """The text in so many places, with a mark where something of it is left out; 0: all of it."""
    if not width or cells_of(text) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += _cells_of_character(character)
        if used > width - 1:
            break
        kept += character
    return kept + MORE
