"""What does not fit on its card, in the words of a refusal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from provisioner.loads.advice import advice_on
from provisioner.loads.budgets import Budget
from provisioner.loads.terms import MIB, lacking_bytes, largest_context, needed_bytes

SWITCH = "fit_check: warn"
IN_TURNS = "in turns: the largest counts"
"""Said of a sum in which engines that take turns count once."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One card that cannot hold what is to lie on it: what is missing, the sum in short, and what to do."""

    message: str
    details: str
    resolution: str


def refusals(found: Iterable[Budget]) -> tuple[Refusal, ...]:
    """A refusal for each card with too little memory; a card whose memory nobody tells refuses nothing."""
    return tuple(_refusal(budget) for budget in found if budget.missing)


def mib(size: int) -> str:
    """Bytes as MiB, rounded up."""
    return f"{-(-size // MIB):,} MiB"


def share_lines(budget: Budget) -> Iterator[str]:
    """Each model that needs more than the share of the card that its engine may take, in words."""
    for name, load in budget.in_small_shares:
        needed, lacking = mib(needed_bytes(load)), mib(lacking_bytes(load))
        yield f"{name} needs {needed}, and its share of the card is {mib(load.share)}: {lacking} too much"


def contexts(budget: Budget) -> Iterator[tuple[str, int | None, int]]:
    """Each model with the largest context that fits, None where its layers are not known, and what is asked for.

    What keeps nothing of tokens, such as a model that speaks, is left out.
    """
    for name, load in budget.named:
        if not load.is_guessed and not load.has_context:
            continue
        is_known = load.told_each or not (load.is_guessed or load.uncounted)
        yield name, largest_context(load, budget.free_for(load)) if is_known else None, load.context


def _refusal(budget: Budget) -> Refusal:
    added, usable = budget.added, budget.usable or 0
    terms = ", ".join(f"{term.name} {mib(term.bytes)}" for term in added.terms)
    turns = f", {IN_TURNS}" if budget.uncounted else ""
    lines = [f"{terms}; {mib(added.total)} of {mib(usable)} that are usable{turns}"]
    lines += [*share_lines(budget), *_context_lines(budget)]
    for engine in budget.engines:
        lines += [f"guessed: {word}" for word in engine.unread]
    return Refusal(
        f"Unable to fit {budget.title}: {mib(budget.missing)} too much",
        "\n".join(lines),
        f"{_first_way(budget)}All ways: provision fit. To start it all the same, write `{SWITCH}` in the file.",
    )


def _context_lines(budget: Budget) -> Iterator[str]:
    """The largest context of each model whose layers are known."""
    for name, largest, asked in contexts(budget):
        if largest is not None:
            fitting = f"{largest:,} tokens" if largest else "none"
            yield f"largest context of {name} that fits: {fitting} (asked for {asked:,})"


def _first_way(budget: Budget) -> str:
    """The first advice with which it fits, as a sentence; empty without one."""
    for advice in advice_on(budget):
        if advice.fits and advice.write:
            return f"Write {advice.write} ({advice.text}). "
    return ""
