"""The verb ``suggest``: which file of a model a card is best given, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.loads.suggestions import USES
from provisioner.values.errors import ExitCode, InputError, with_hint
from provisioner.values.quantities import SizeError, parse_size

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card
    from provisioner.lab import ModelFile
    from provisioner.lab.opening import Lab
    from provisioner.loads.suggestions import Left, Occupied, Way
    from provisioner.suggest.text import Asked


def card_option(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Card | None:
    """A card by its memory, such as ``8GiB``, or by its name, such as ``RTX 3060 12GB``."""
    from provisioner.suggest.suggest import card_called, card_of

    if value is None:
        return None
    try:
        return card_of(parse_size(value))
    except SizeError:
        pass  # then it is a name
    try:
        return card_called(value)
    except InputError as error:
        raise click.BadParameter(with_hint(error.message, error.resolution)) from error


@click.command()
@verb
@lab_words(names=True, shape="[FILE] MODEL|FOLDER|ORG/REPO[@REVISION]...")
@option(
    "--gpu",
    callback=card_option,
    metavar="SIZE|NAME",
    help='The card: its memory, such as 8GiB, or its name, such as "RTX 3060 12GB"; else the file\'s own.',
)
@option("--exclusive", is_flag=True, help="As if the card of the file had nothing else on it.")
@option("--use", type=click.Choice(tuple(USES)), default="chat", show_default=True, help="What it is for.")
def suggest(session: Session, words: Words, *, gpu: Card | None, exclusive: bool, use: str) -> int:
    """Say which file of a model a card is best given, with which cache and context, and print what to write for it.

    Looked at are the heads of all GGUF files of a repository or of a folder, its config.json where it is one of EXL3,
    EXL2, AWQ, GPTQ, FP8 or whole weights, and models of the file. All of it lies on the card, or of a mixture all but
    some experts; a dense model is never split, and below Q4_K_M nothing is suggested while anything better fits. How
    fast it writes is shown as bench has measured it on such a card, else at most, where it is known how fast the card's
    memory is. Without --gpu, what services of the file take of that card is taken off, but for the one that serves the
    model. Exit code 4 when nothing fits.
    """
    from provisioner.suggest.text import occupied_content, occupied_lines, suggest_content, suggest_text

    if not words.names:
        raise InputError("Unable to suggest anything: nothing is named", resolution="Name ORG/REPO of a hub.")
    lab = session.open_lab(words.existing(), needs="none") if words.file.is_file() else None
    if gpu is not None and exclusive:
        hint = "Leave out one of them: of a card that is named nothing is taken off."
        raise InputError("Unable to suggest with --gpu and --exclusive", resolution=hint)
    found = suggestions(session, words.names, lab, gpu, use, is_exclusive=exclusive)
    text = suggest_text(found.ways, found.left, found.asked, session.console.style)
    lines = occupied_lines(found.occupied, is_exclusive=exclusive)
    content = suggest_content(found.ways, found.left, found.asked.speed)
    content |= occupied_content(found.occupied)
    session.console.result("\n".join([*lines, text]), usable=found.usable, use=use, **content)
    return ExitCode.DONE if found.ways else ExitCode.REFUSED


@dataclass(frozen=True, slots=True)
class Suggestions:
    """The files that can be served, the best first, and those that cannot; what was asked, and of how large a card.

    ``occupied``: the card of the file's containers that is meant; None where one is named.
    """

    ways: Sequence[Way]
    left: Sequence[Left]
    asked: Asked
    usable: int
    occupied: Occupied | None = None


def suggestions(
    session: Session,
    targets: Sequence[str],
    lab: Lab | None,
    gpu: Card | None,
    use: str,
    *,
    is_exclusive: bool = False,
) -> Suggestions:
    """What is suggested of what is named, for that card, else for the largest of the file's containers.

    Of that one what lies there already is taken off, unless ``is_exclusive``.
    """
    from provisioner.gpus.bandwidth import memory_speed
    from provisioner.lab.opening import find_files, look_at_models
    from provisioner.loads.suggestions import suggested, with_taken
    from provisioner.suggest.speeds import with_measured
    from provisioner.suggest.suggest import candidates_of, on_card, served_by, usable_bytes
    from provisioner.suggest.text import Asked

    files: Mapping[str, ModelFile] = {}
    asks_for_card = gpu is None and lab is not None and lab.resolved.wants_cards
    if lab is not None and (asks_for_card or not lab.spec.models.keys().isdisjoint(targets)):
        files = find_files(lab).files
        lab, new = look_at_models(lab, files)
        for said in new:
            session.console.emit(said)
    found = [one for target in targets for one in candidates_of(target, lab, files)]
    occupied = _largest(session, lab, files) if gpu is None else None
    if occupied is not None and lab is not None and not is_exclusive:
        found, occupied = with_taken(served_by(lab, found), occupied)
    card = occupied.card if gpu is None and occupied is not None else gpu
    assert card is not None  # noqa: S101  # one of both is there
    usable, speed = usable_bytes(card), memory_speed(card)
    candidates = with_measured(on_card(found, card, usable), lab, card)
    ways, left = suggested(candidates, usable, USES[use], speed.bytes_per_s if speed is not None else None)
    return Suggestions(ways, left, Asked(use, USES[use].context, speed), usable, occupied)


def _largest(session: Session, lab: Lab | None, files: Mapping[str, ModelFile]) -> Occupied:
    """The largest card of the file's containers, with what lies there; raises ``InputError`` where there is none."""
    from provisioner.reconcile.observe import cards_of
    from provisioner.suggest.suggest import largest_card

    cards = cards_of(lab, session.effects(lab).providers) if lab is not None and lab.resolved.wants_cards else {}
    if lab is None or not cards:
        raise InputError(
            "Unable to suggest anything: no container of the file has a card", resolution="Say its memory: --gpu 8GiB"
        )
    return largest_card(lab, files, cards)
