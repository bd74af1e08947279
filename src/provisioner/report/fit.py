"""What engines need on their cards: a table of terms, what follows from it, and what was measured; as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.fit.advice import Advice, advice_on
from provisioner.fit.budgets import RESERVED, Budget
from provisioner.fit.measured import Measured
from provisioner.fit.refusals import contexts, mib
from provisioner.report.style import Style, safe_line

COLUMN = 10


def fit_text(budget: Budget, known: Mapping[str, Measured], style: Style) -> str:
    """The terms and their sum; where the card is known what is missing, the largest contexts, and advice."""
    added = budget.added
    width = max((len(term.name) for term in added.terms), default=0)
    rows = [(term.name, mib(term.bytes)) for term in added.terms]
    lines = [style.paint(safe_line(budget.title), "bold")]
    lines += [f"  {name:<{width}}  {size:>{COLUMN + 4}}" for name, size in rows]
    lines.append(f"  {'total':<{width}}  {mib(added.total):>{COLUMN + 4}}{_verdict(budget, style)}")
    lines += [f"  {line}" for line in (*_contexts(budget), *_measured(budget, known))]
    lines += [style.paint(f"  guessed: {safe_line(word)}", "yellow") for one in budget.engines for word in one.unread]
    lines += [f"  advice: {_advice(one)}" for one in advice_on(budget)]
    return "\n".join(lines)


def fit_content(budget: Budget, known: Mapping[str, Measured]) -> dict[str, Any]:
    """The same for programs; sizes in bytes."""
    return {
        "title": budget.title,
        "card": budget.card.pci if budget.card else None,
        "terms": budget.added.terms,
        "total": budget.added.total,
        "usable": budget.usable,
        "missing": budget.missing,
        "contexts": [{"model": one, "largest": most, "asked": asked} for one, most, asked in _known_contexts(budget)],
        "services": [
            {
                "address": one.address,
                "total": one.total,
                "guessed": one.unread,
                "measured": found.measured if found else None,
                "error": found.error if found else None,
            }
            for one in budget.engines
            for found in [_of(one.address, budget, known)]
        ],
        "advice": advice_on(budget),
    }


def _verdict(budget: Budget, style: Style) -> str:
    if budget.usable is None:
        return ""
    from_card = f" ({mib(RESERVED)} of the card are not)" if budget.card else ""
    if budget.missing:
        return style.paint(f"  of {mib(budget.usable)} usable{from_card}: {mib(budget.missing)} too much", "red")
    return style.paint(f"  of {mib(budget.usable)} usable{from_card}: it fits", "green")


def _known_contexts(budget: Budget) -> Iterator[tuple[str, int | None, int]]:
    return contexts(budget) if budget.usable is not None else iter(())


def _contexts(budget: Budget) -> Iterator[str]:
    for name, largest, asked in _known_contexts(budget):
        if largest is None:
            said = "not known, as its layers are not"
        else:
            said = f"{largest:,} tokens" if largest else "none, the rest is too large alone"
        yield f"largest context of {name}: {said}" + (f" (asked for {asked:,})" if asked else "")


def _measured(budget: Budget, known: Mapping[str, Measured]) -> Iterator[str]:
    for engine in budget.engines:
        found = _of(engine.address, budget, known)
        if found:
            way = "more" if found.error < 0 else "less"
            share = abs(found.error) / max(found.measured, 1)
            yield (
                f"measured of {engine.address}: {mib(found.measured)}, "
                f"{mib(abs(found.error))} {way} than the sum of then, {mib(found.estimate)} ({share:.1%})"
            )


def _of(address: str, budget: Budget, known: Mapping[str, Measured]) -> Measured | None:
    """What was measured of a service with the same models and options."""
    engine = next(one for one in budget.engines if one.address == address)
    found = known.get(address)
    return found if found and found.is_of(engine.loads) else None


def _advice(advice: Advice) -> str:
    parts = [f"{advice.write} ({advice.text})" if advice.write else advice.text]
    if advice.total is not None:
        parts.append(f"{mib(advice.total)}, {'fits' if advice.fits else 'not enough alone'}")
    return safe_line(": ".join(parts))
