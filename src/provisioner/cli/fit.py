"""The verb ``fit``: what the engines of a file need on a card, term by term."""

from __future__ import annotations

from pathlib import Path

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.errors import ExitCode
from provisioner.lab import Lab
from provisioner.sizes import SizeError, parse_size


def _size(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except SizeError as error:
        raise click.BadParameter(f"{error}; {error.hint}") from error


@click.command()
@verb
@lab_words(names=True)
@option("--memory", callback=_size, metavar="SIZE", help="What is usable of the card, such as 7360MiB.")
def fit(session: Session, words: Words, *, memory: int | None) -> int:
    """Add up what each engine needs on a card: weights, cache, recurrent state, buffers, encoder.

    With --memory it says whether that fits, and the largest context that does; exit code 4 when one does not fit.
    """
    from provisioner.fit.loads import engines_on_cards
    from provisioner.fit.terms import added_up
    from provisioner.report.fit import fit_text

    lab = session.open_lab(words.existing(), needs_secrets=False)
    lab.check_targets(words.names)
    found = [
        one
        for one in engines_on_cards(lab.spec, lab.catalog, lab.headers, _sizes(lab))
        if not words.names or one.container in words.names
    ]
    sums = [added_up(one.loads, memory or 0) for one in found]
    engines = [
        {"container": one.container, "terms": added.terms, "total": added.total, "guessed": one.unread}
        for one, added in zip(found, sums, strict=True)
    ]
    text = "\n\n".join(fit_text(one, memory, session.console.style) for one in found)
    session.console.result(text or "No engine of the file computes on a card.", engines=engines, memory=memory)
    return ExitCode.REFUSED if memory is not None and any(one.missing for one in sums) else ExitCode.DONE


def _sizes(lab: Lab) -> dict[str, int]:
    """Bytes of each model's files that are here, or that a hub has told."""
    sizes = {}
    for name, file in lab.models().files.items():
        here = Path(file.path)
        own = here.stat().st_size if here.is_file() else file.size or 0
        sizes[name] = own + sum(part.size or 0 for part in file.rest)
    return sizes
