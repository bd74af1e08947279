"""The verb ``fit``: what the engines of a file need on their cards, term by term."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, PreflightError, with_hint
from provisioner.values.quantities import SizeError, parse_size

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card
    from provisioner.lab.opening import Lab


def size_option(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """A size such as ``8GiB``, in bytes."""
    try:
        return None if value is None else parse_size(value)
    except SizeError as error:
        raise click.BadParameter(with_hint(str(error), error.hint)) from error


@click.command()
@verb
@lab_words(names=True)
@option("--memory", callback=size_option, metavar="SIZE", help="What is usable of each card, such as 7360MiB.")
def fit(session: Session, words: Words, *, memory: int | None) -> int:
    """Add up what the engines need on their cards: weights, cache, recurrent state, buffers, encoders.

    Where the hosts tell which cards the containers get, or with --memory, it says whether that fits, the largest
    context that does, and what to do; exit code 4 when it does not fit, 3 when nobody knows what an engine needs.
    """
    from provisioner.lab.opening import find_files, look_at_models
    from provisioner.loads.measured import measured
    from provisioner.serving.fit import budgets_of
    from provisioner.serving.text import fit_content, fit_text

    lab = session.open_lab(words.existing(), needs="none")
    lab.check_targets(words.names)
    files = find_files(lab).files
    lab, new = look_at_models(lab, files)
    for said in new:
        session.console.emit(said)
    cards = _cards(session, lab) if memory is None else {}
    found = [
        one
        for one in budgets_of(lab, files, cards, memory)
        if not words.names or any(engine.container in words.names for engine in one.engines)
    ]
    known = measured(lab.name)
    text = "\n\n".join(fit_text(one, known, session.console.style) for one in found)
    session.console.result(
        text or "No engine of the file computes on a card.", cards=[fit_content(one, known) for one in found]
    )
    if any(budget.missing for budget in found):
        return ExitCode.REFUSED
    return ExitCode.VERIFICATION_FAILED if any(budget.is_undecided for budget in found) else ExitCode.DONE


def _cards(session: Session, lab: Lab) -> dict[str, Card]:
    """The cards of the containers that want one; a host that tells none is warned of, for the sums need none."""
    if all(container.gpu is None for container in lab.spec.containers.values()):
        return {}
    from provisioner.reconcile.observe import cards_of
    from provisioner.values.events import Diagnostic

    try:
        return cards_of(lab, session.effects(lab).providers)
    except PreflightError as error:
        hint = "Write --memory SIZE for what is usable of the card."
        session.console.emit(Diagnostic("warning", error.message, details=error.details, resolution=hint))
        return {}
