"""The report of ``fit``: a table of terms, what follows from it, and what was measured; as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.loads.advice import IN_TURNS, Advice, advice_on, contexts, mib, share_lines
from provisioner.loads.budgets import Budget
from provisioner.loads.engines import EngineLoads
from provisioner.loads.measured import Measured
from provisioner.report.style import Style, safe_line

COLUMN = 10


def fit_text(budget: Budget, known: Mapping[str, Measured], style: Style) -> str:
    """The terms and their sum; where the card is known what is missing, the largest contexts, and advice."""
    added = budget.added
    width = max((len(term.name) for term in added.terms), default=0)
    lines = [style.paint(safe_line(budget.title), "bold")]
    lines += [_term_line(term.name, term.bytes, width) for term in added.terms]
    lines += _sum_lines(budget, width, style)
    lines += [f"  in its turn: {safe_line(engine.address)} {mib(engine.total)}" for engine in budget.uncounted]
    lines += [style.paint(f"  {safe_line(line)}", "red") for line in _shares(budget)]
    lines += [
        style.paint(f"  unknown: {safe_line(one.address)}: {safe_line(one.unknown)}", "yellow")
        for one in budget.unknown
    ]
    lines += [f"  {line}" for line in (*_contexts(budget), *_measured(budget, known))]
    lines += _guesses(budget, style)
    lines += [f"  advice: {_advice(advice)}" for advice in advice_on(budget)]
    return "\n".join(lines)


def _guesses(budget: Budget, style: Style) -> list[str]:
    """What the files of the engines' models do not tell."""
    lines: list[str] = []
    for engine in budget.engines:
        lines += [style.paint(f"  guessed: {safe_line(word)}", "yellow") for word in engine.unread]
    return lines


def fit_content(budget: Budget, known: Mapping[str, Measured]) -> dict[str, Any]:
    """The same terms, contexts and advice for machine-readable output; sizes in bytes."""
    return {
        "title": budget.title,
        "card": budget.card.pci if budget.card else None,
        "terms": budget.added.terms,
        "total": budget.added.total if budget.loads else None,
        "usable": budget.usable,
        "missing": budget.missing,
        "contexts": [
            {"model": model, "largest": largest, "asked": asked} for model, largest, asked in _known_contexts(budget)
        ],
        "services": [_service_content(engine, known) for engine in budget.engines],
        "advice": advice_on(budget),
    }


def _service_content(engine: EngineLoads, known: Mapping[str, Measured]) -> dict[str, Any]:
    measured = _measured_of(engine, known)
    return {
        "address": engine.address,
        "total": None if engine.unknown and not engine.loads else engine.total,
        "guessed": engine.unread,
        "unknown": engine.unknown or None,
        "turns": engine.turns,
        "measured": measured.measured if measured else None,
        "error": measured.error if measured else None,
        "correction": sum(load.correction for load in engine.loads),
    }


def _term_line(name: str, size: int, width: int) -> str:
    return f"  {name:<{width}}  {mib(size):>{COLUMN + 4}}"


def _sum_lines(budget: Budget, width: int, style: Style) -> list[str]:
    """The sum with its verdict; of engines that nobody knows anything of there is no sum."""
    verdict = _verdict(budget, style)
    if budget.loads:
        return [_term_line("total", budget.added.total, width) + verdict]
    return [verdict] if verdict else []


def _verdict(budget: Budget, style: Style) -> str:
    if budget.usable is None:
        return ""
    from_card = f" ({mib(budget.reserved)} of the card are not)" if budget.card else ""
    turns = f"; {IN_TURNS}" if budget.uncounted else ""
    if budget.added.missing:
        missing = mib(budget.added.missing)
        return style.paint(f"  of {mib(budget.usable)} usable{from_card}: {missing} too much{turns}", "red")
    if budget.missing:
        return style.paint(f"  of {mib(budget.usable)} usable{from_card}: a share of it is too small{turns}", "red")
    if budget.unknown:
        return style.paint(
            f"  of {mib(budget.usable)} usable{from_card}: whether it fits is not known{turns}", "yellow"
        )
    return style.paint(f"  of {mib(budget.usable)} usable{from_card}: it fits{turns}", "green")


def _shares(budget: Budget) -> Iterator[str]:
    """Which shares of the card are too small; nothing where nobody tells its memory."""
    return share_lines(budget) if budget.usable is not None else iter(())


def _known_contexts(budget: Budget) -> Iterator[tuple[str, int | None, int]]:
    """The contexts that fit; none where nobody knows how much of the card is left for them."""
    is_known = budget.usable is not None and not budget.unknown
    return contexts(budget) if is_known else iter(())


def _contexts(budget: Budget) -> Iterator[str]:
    for name, largest, asked in _known_contexts(budget):
        line = f"largest context of {name}: {_tokens(largest)}"
        yield f"{line} (asked for {asked:,})" if asked else line


def _tokens(largest: int | None) -> str:
    if largest is None:
        return "not known"
    if largest == 0:
        return "none, the rest is too large alone"
    return f"{largest:,} tokens"


def _measured(budget: Budget, known: Mapping[str, Measured]) -> Iterator[str]:
    for engine in budget.engines:
        measured = _measured_of(engine, known)
        if measured is None:
            continue
        way = "more" if measured.error < 0 else "less"
        share = abs(measured.error) / max(measured.measured, 1)
        yield (
            f"measured of {engine.address}: {mib(measured.measured)}, "
            f"{mib(abs(measured.error))} {way} than the sum of then, {mib(measured.estimate)} ({share:.1%})"
        )


def _measured_of(engine: EngineLoads, known: Mapping[str, Measured]) -> Measured | None:
    """What was measured of a service with the same models and options."""
    measured = known.get(engine.address)
    if measured is None or not measured.is_of(engine.loads):
        return None
    return measured


def _advice(advice: Advice) -> str:
    words = f"{advice.write} ({advice.text})" if advice.write else advice.text
    if advice.total is not None:
        outcome = "fits" if advice.fits else "not enough alone"
        words += f": {mib(advice.total)}, {outcome}"
    return safe_line(words)
