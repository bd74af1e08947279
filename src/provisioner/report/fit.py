"""What an engine needs on a card, as a table of its terms."""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.fit.loads import Engine
from provisioner.fit.terms import MIB, Sum, added_up, largest_context
from provisioner.report.style import Style


def fit_text(engine: Engine, usable: int | None, style: Style) -> str:
    """The terms, their sum, and, where the card is known, what is missing and the largest context."""
    added = added_up(engine.loads, usable or 0)
    width = max((len(term.name) for term in added.terms), default=0)
    lines = [style.paint(engine.container, "bold")]
    lines += [f"  {term.name:<{width}}  {_mib(term.bytes)}" for term in added.terms]
    lines.append(f"  {'total':<{width}}  {_mib(added.total)}{_verdict(added, usable, style)}")
    if usable is not None:
        lines += [f"  {line}" for line in _contexts(engine, added)]
    lines += [style.paint(f"  guessed: {word}", "yellow") for word in engine.unread]
    return "\n".join(lines)


def _verdict(added: Sum, usable: int | None, style: Style) -> str:
    if usable is None:
        return ""
    if added.missing:
        return style.paint(f"  of {_mib(usable).strip()}: {_mib(added.missing).strip()} too much", "red")
    return style.paint(f"  of {_mib(usable).strip()}: it fits", "green")


def _contexts(engine: Engine, added: Sum) -> Iterable[str]:
    for load in engine.loads:
        others = added_up([one for one in engine.loads if one is not load], added.usable).total
        largest = largest_context(load, added.usable - others)
        said = f"{largest:,} tokens" if largest else "none, the weights alone are too large"
        yield f"largest context of {load.name}: {said} (asked for {load.context:,})"


def _mib(size: int) -> str:
    return f"{-(-size // MIB):>9,} MiB"
