"""The verb ``init``: a first file, its schema and its secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.catalog import load_catalog
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.cli.suggest import card_option, suggestions
from provisioner.loads.suggestions import USES
from provisioner.values.errors import ExitCode, InputError, PreflightError
from provisioner.values.events import Diagnostic

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card

DEFAULT_USE = "chat"


@click.command()
@verb
@lab_words(names=False)
@option("--secrets", "with_secrets", is_flag=True, help="Write each missing secret, generated, into secrets.env.")
@option("--model", metavar="FOLDER|ORG/REPO", help="Serve the file of it that provision suggest has first.")
@option(
    "--gpu", callback=card_option, metavar="SIZE|NAME", help="With --model: the card, as provision suggest takes it."
)
@option("--use", type=click.Choice(tuple(USES)), help="With --model: what it is for; chat where it is left out.")
def init(
    session: Session, words: Words, *, with_secrets: bool, model: str | None, gpu: Card | None, use: str | None
) -> int:
    """Write a first file, its schema, a .gitignore, and its missing secrets.

    What is there is kept: a file is never overwritten, a secret that has a value keeps it. With --model the file serves
    what provision suggest has first for the card and the use; exit code 4, and nothing written, when nothing fits.
    """
    from provisioner.labfile.starter import write_ignored, write_schema, write_starter

    console, file = session.console, words.file
    is_new = not file.exists()
    chosen = None
    if model is not None:
        chosen = _chosen(session, file, model, gpu, use or DEFAULT_USE)
    elif gpu is not None or use is not None:
        raise InputError("Unable to choose for a card: no model is named", resolution="Say it: --model ORG/REPO")
    if is_new:
        write_starter(file, load_catalog(), chosen.block if chosen else "")
    else:
        write_schema(file, load_catalog())
    console.say(f"{'Wrote' if is_new else 'Kept'} {file}.")
    for line in chosen.lines if chosen else ():
        console.say(line)
    ignore, ignored = write_ignored(file)
    if ignored:
        console.say(f"Added {' and '.join(ignored)} to {ignore}, for git to leave out.")
    generated = _generate_secrets(session, file) if with_secrets else ()
    following = f"provision {'plan' if with_secrets else 'init --secrets'} {file}"
    console.say(f"Next: {following}")
    content = {"file": file, "written": is_new, "secrets": generated, "ignored": ignored, "next": following}
    console.line("result", content | dict(chosen.content if chosen else {}))
    return ExitCode.DONE


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What a first file serves: its block, what people are told of it, and the same as values."""

    block: str
    lines: tuple[str, ...]
    content: Mapping[str, Any]


def _chosen(session: Session, file: Path, model: str, gpu: Card | None, use: str) -> _Chosen:
    """The best file of a model for a card; ``InputError`` where the file is there, ``PreflightError`` without one."""
    from provisioner.labfile.starter import PREFIX, already_there
    from provisioner.suggest.text import before_up, block_text, left_lines, way_content, way_text

    if file.exists():
        raise already_there(file)
    if gpu is None:
        raise InputError("Unable to choose for a card: none is named", resolution="Say its memory: --gpu 8GiB")
    found = suggestions(session, [model], None, gpu, use)
    if not found.ways:
        raise PreflightError(
            f"Unable to write {file}: nothing of {model} fits",
            details="\n".join(left_lines(found.left)),
            resolution="Name another model, or a larger card.",
        )
    best = found.ways[0]
    lines = [way_text(best)]
    if best.context < found.asked.context:
        lines.append(f"It has less than the {found.asked.context:,} tokens that {use} should have.")
    content = {"suggested": way_content(best, found.asked.speed)}
    return _Chosen(block_text(best, PREFIX), (*lines, *before_up([best])), content)


def _generate_secrets(session: Session, file: Path) -> tuple[str, ...]:
    """Return the names of the secrets that were written, and warn of those that only other systems can give."""
    from provisioner.labfile.loader import environment_name
    from provisioner.labfile.starter import write_missing_secrets

    written = write_missing_secrets(file, load_catalog())
    names = ", ".join(written.generated)
    session.console.say(
        f"Wrote {names} into {written.file}." if names else "No secret is missing that can be generated."
    )
    for name in written.needed:
        session.console.emit(
            Diagnostic(
                "warning",
                f"Secret {name} has no value and cannot be generated: it belongs to another system",
                resolution=f"Write {name}=VALUE into {written.file}, or set {environment_name(name)}.",
            )
        )
    return written.generated
