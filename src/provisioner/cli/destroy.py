"""The verb ``destroy``: containers and what is in them are deleted."""

from __future__ import annotations

import click

from provisioner.cli.confirm import DECLINED, confirm_destruction, only_known
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode


@click.command()
@verb
@lab_words(names=True)
@option("-y", "--yes", is_flag=True, help="Do not ask; needs --lab as well.")
@option("--lab", "lab_name", metavar="NAME", help="The lab's name, instead of typing it at the prompt.")
@option("--prune", is_flag=True, help="Delete containers of the lab that are not in the file, too.")
def destroy(session: Session, words: Words, *, yes: bool, lab_name: str | None, prune: bool) -> int:
    """Delete the containers that the file names, and what is in them.

    Asks for the lab's name. Without a terminal: --yes --lab NAME.
    """
    from provisioner.reconcile import stop

    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    confirm = confirm_destruction(session.console, lab.name, yes=yes, typed=lab_name)
    effects = session.effects(lab, only_known(lab, words.names, confirm))
    outcome = stop.destroy(lab, effects, words.names, prune=prune)
    if not outcome.applied:
        return session.console.fail(DECLINED)
    if any(container.copy_of for container in lab.spec.containers.values()):
        from provisioner.reconcile import clone  # nothing that a lab without copies needs

        for name in clone.take_out(lab, words.names, effects):
            session.console.say(f"{name} was taken out of {lab.loaded.path}: it was a copy.")
    return ExitCode.DONE
