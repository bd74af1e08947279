"""What lies on each card by the sums and by what was measured: a bar for each, and a row for each service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from provisioner.loads.budgets import Budget
from provisioner.loads.engines import EngineLoads
from provisioner.loads.measured import Measured, identity_of
from provisioner.loads.refusals import mib
from provisioner.report.elements import NOTHING, Markup, join, moment, opened, quiet, state, table, tag
from provisioner.report.lab_page.content import LabContent

COLOURS = 6
HEIGHT = 30
LEAST_PERCENT = 4.0
"""A number fits into a part of a bar that is at least so wide."""
NEVER = "never measured"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar: its bytes, its class, and its number in the table; empty where it has none."""

    size: int
    kind: str
    number: str = ""


def cards(content: LabContent) -> Iterator[Markup]:
    """A panel for each card, or for what is taken for one."""
    if not content.budgets:
        yield quiet("No engine of the file computes on a card.")
    for budget in content.budgets:
        yield tag("article", tag("h3", budget.title), *_card(content, budget), class_="panel")


def _card(content: LabContent, budget: Budget) -> Iterator[Markup]:
    if not _wants_card(content, budget):
        yield tag(
            "p", state("dim", "not checked on a card"), ": the file gives them none; this is what they would take."
        )
    elif budget.card is None:
        yield tag("p", state("mind", "not checked on a card"), ": which one they get is not known.")
        yield _verdict(content, budget)
    else:
        yield _verdict(content, budget)
    estimated = [engine.total for engine in budget.counted]
    taken = [_measured_of(content, engine) for engine in budget.counted]
    words = f"Estimated: {mib(sum(estimated))}{_of_usable(budget)}"
    yield tag("p", words, ", ", moment(content.at))
    yield _bar(budget, words, estimated)
    known = [one for one in taken if one is not None]
    if known:
        sizes = [one.measured if one else 0 for one in taken]
        is_all = len(known) == len(taken)
        others = "" if is_all else "; what the others take of the rest is not known"
        words = f"Measured: {mib(sum(sizes))} of {len(known)} of {len(taken)} services{others}"
        yield tag("p", words, ", the last ", moment(max(one.at for one in known)))
        yield _bar(budget, words, sizes, "free" if is_all else "rest")
    else:
        yield tag("p", "Measured: ", state("dim", NEVER))
    rows = [*_rows(content, budget), *_rest_rows(budget, estimated, taken)]
    yield table(f"Memory of {budget.title}", ("mark", "service", "estimated", "measured", "measured at"), rows)
    yield _terms(content, budget)


def _wants_card(content: LabContent, budget: Budget) -> bool:
    """Whether the file gives a card to the containers of these engines."""
    containers = {engine.container for engine in budget.engines}
    return any(box.gpu for box in content.graph.boxes if box.name in containers)


def _of_usable(budget: Budget) -> str:
    if budget.usable is None:
        return "; how much memory the card has is not known"
    return f" of {mib(budget.usable)} usable"


def _verdict(content: LabContent, budget: Budget) -> Markup:
    if budget.missing:
        shown = state("bad", f"{mib(budget.missing)} too much by the sums")
    elif budget.usable is None or budget.unknown:
        shown = state("mind", "whether it fits is not known")
    else:
        shown = state("good", "it fits by the sums")
    return tag("p", shown, ", ", moment(content.at))


def _measured_of(content: LabContent, engine: EngineLoads) -> Measured | None:
    """What was measured of the same models and options."""
    record = content.measured.get(engine.address)
    return record if record is not None and engine.loads and record.is_of(engine.loads) else None


def _bar(budget: Budget, words: str, sizes: Sequence[int], left: str = "free") -> Markup:
    """Each service, what is left, and what of the card nobody can have; all of it as wide as the page.

    ``left``: "free", or "rest" where nobody knows how much of it is. One service alone of an unknown whole is no bar.
    """
    if budget.usable is None and len(sizes) == 1:
        return NOTHING
    parts = []
    for number, size in enumerate(sizes):
        parts.append(Part(size, f"e{number % COLOURS}", str(number + 1)))
    usable = budget.usable or 0
    free = usable - sum(sizes)
    if budget.usable is not None and free > 0:
        parts.append(Part(free, left))
    elif budget.usable is not None and free < 0:
        return _drawn(words, [part for part in parts if part.size > 0], over=-free)
    if budget.card is not None:
        parts.append(Part(budget.reserved, "reserved"))
    return _drawn(words, [part for part in parts if part.size > 0])


def _drawn(words: str, parts: Sequence[Part], over: int = 0) -> Markup:
    """The parts from left to right; where they are ``over`` bytes too much, a line where the memory ends."""
    whole = sum(part.size for part in parts) or 1
    drawn, left = [], 0.0
    for part in parts:
        wide = 100 * part.size / whole
        drawn.append(tag("rect", x=f"{left:.2f}%", width=f"{wide:.2f}%", height=HEIGHT, class_=part.kind))
        if part.number and wide >= LEAST_PERCENT:
            middle = f"{left + wide / 2:.2f}%"
            drawn.append(tag("text", part.number, x=middle, y=HEIGHT / 2 + 4, text_anchor="middle"))
        left += wide
    if over:
        drawn.append(_limit(left - 100 * over / whole))
    return tag("svg", tag("title", words), *drawn, class_="bars", height=HEIGHT, role="img", aria_label=words)


def _limit(percent: float) -> Markup:
    """Where the card's memory ends, where the services want more."""
    return tag("rect", x=f"{percent:.2f}%", width="4", height=HEIGHT, class_="over")


def _key(kind: str) -> Markup:
    return tag("svg", tag("rect", width=10, height=10), class_=f"key {kind}", viewBox="0 0 10 10", aria_hidden="true")


def _rows(content: LabContent, budget: Budget) -> Iterator[tuple[object, ...]]:
    """A row for each service: those that lie there together, then those that do at their turn."""
    for number, engine in enumerate(budget.counted):
        key = join([_key(f"e{number % COLOURS}"), str(number + 1)])
        yield (key, engine.address, *_sizes(content, budget, engine))
    for engine in budget.uncounted:
        yield ("", f"{engine.address}, in its turn", *_sizes(content, budget, engine))


def _sizes(content: LabContent, budget: Budget, engine: EngineLoads) -> tuple[object, object, object]:
    estimated: object = mib(engine.total) if engine.loads else "not known"
    if engine.unknown:
        estimated = join([estimated, " ", state("mind", engine.unknown)])
    measured = _measured_of(content, engine)
    if measured is None:
        return estimated, state("dim", NEVER), ""
    other = "" if _is_here(budget, measured, engine) else ", on another card"
    way = "more" if measured.error < 0 else "less"
    compared = f"{mib(measured.measured)}, {mib(abs(measured.error))} {way} than the sum of then{other}"
    return estimated, compared, moment(measured.at)


def _is_here(budget: Budget, measured: Measured, engine: EngineLoads) -> bool:
    """Whether it was measured on this very card, as far as that is known."""
    if budget.card is None or not measured.card:
        return True
    return measured.card == identity_of(budget.card, engine.host)


def _rest_rows(
    budget: Budget, estimated: Sequence[int], taken: Sequence[Measured | None]
) -> Iterator[tuple[object, ...]]:
    """What is free, and what nobody can have."""
    if budget.usable is not None:
        left = budget.usable - sum(estimated)
        by_measure: object = state("dim", "not known: not all were measured")
        sizes = [one.measured for one in taken if one is not None]
        if len(sizes) == len(taken) and sizes:
            by_measure = mib(max(budget.usable - sum(sizes), 0))
        if left < 0:
            yield _key("over"), "too much, beyond the line", mib(-left), "", ""
        yield _key("free"), "free", mib(max(left, 0)), by_measure, ""
    if budget.card is not None:
        yield _key("reserved"), "kept for the driver, a display and contexts", mib(budget.reserved), "", ""


def _terms(content: LabContent, budget: Budget) -> Markup:
    rows = [(term.name, mib(term.bytes)) for term in budget.added.terms]
    if not rows:
        return quiet("Nothing can be added up: what the engines need is not known.")
    summary = join(["What was added up, ", moment(content.at)])
    return opened(summary, table(f"Terms of {budget.title}", ("term", "estimated"), rows))
