"""The verb ``import``: an existing container as a block of the file."""

from __future__ import annotations

import click

from provisioner.cli.options import Words, complete_hosts, lab_words, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode


@click.command("import")
@verb
@lab_words(names=True, shape="HOST/NAME [FILE]", complete=complete_hosts)
def import_(session: Session, words: Words) -> int:
    """Print the block of an existing container: provision import HOST/NAME [FILE].

    Paste it under `containers:`; the next up then adopts the container: it gets the lab's mark, is kept as a snapshot,
    and what the file says is put into it. NAME may be the host's own id, as in pve1/105. Nothing is touched.
    """
    from provisioner.eject import import_block
    from provisioner.eject.import_block import block_text

    if len(words.names) != 1:
        raise click.UsageError("Name one container with its host: provision import HOST/NAME.")
    lab = session.open_lab(words.existing(), with_secrets=True)
    found = import_block.imported(lab, session.effects(lab).providers, words.names[0])
    text = block_text(found.name, found.written, found.changes, found.notes)
    session.console.result(
        text, name=found.name, container=found.written, changes=found.changes, notes=found.notes, yaml=text
    )
    return ExitCode.DONE
