"""The verbs that end a lab: ``down`` (stops, keeps) and ``destroy`` (deletes)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from provisioner.cli.confirm import DECLINED, confirm_destruction, confirm_plan
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.lab.opening import Lab
from provisioner.values.errors import ExitCode
from provisioner.values.plan import Plan

NOTHING_RUNS = "Nothing to stop: no container of the file runs."


@click.command()
@verb
@lab_words(names=True)
@option("-y", "--yes", is_flag=True, help="Stop without asking.")
def down(session: Session, words: Words, *, yes: bool) -> int:
    """Stop the containers; their data is kept, and up starts them again."""
    from provisioner.reconcile import stop

    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    confirm = _only_known(lab, words.names, confirm_plan(session.console, yes=yes, nothing=NOTHING_RUNS))
    outcome = stop.down(lab, session.effects(lab, confirm), words.names)
    return ExitCode.DONE if outcome.applied else session.console.fail(DECLINED)


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
    effects = session.effects(lab, _only_known(lab, words.names, confirm))
    outcome = stop.destroy(lab, effects, words.names, prune=prune)
    if not outcome.applied:
        return session.console.fail(DECLINED)
    if any(container.copy_of for container in lab.spec.containers.values()):
        from provisioner.reconcile import clone  # nothing that a lab without copies needs

        for name in clone.take_out(lab, words.names, effects):
            session.console.say(f"{name} was taken out of {lab.loaded.path}: it was a copy.")
    return ExitCode.DONE


def _only_known(lab: Lab, names: Sequence[str], confirm: Callable[[Plan], bool]) -> Callable[[Plan], bool]:
    """Refuses a name that is neither in the file nor on a host (an orphan is not in the file, and may be named)."""

    def confirm_known(plan: Plan) -> bool:
        there = {change.target for change in plan.changes}
        lab.check_targets([name for name in names if name not in there])
        return confirm(plan)

    return confirm_known
