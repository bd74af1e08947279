"""The verb ``up``: the file is made true, and proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from provisioner.cli.confirm import DECLINED, confirm_plan
from provisioner.cli.options import Words, lab_words, option, verb, wishes
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, ProvisionError
from provisioner.values.events import Diagnostic

if TYPE_CHECKING:  # the plan is made when a verb touches the world
    from provisioner.values.plan import Wishes


@click.command()
@verb
@lab_words(names=True)
@wishes
@option("-y", "--yes", is_flag=True, help="Apply without asking; never deletes what --replace and --prune do not name.")
@option("--no-rollback", is_flag=True, help="Keep no way back, and leave what fails its proof as it is.")
def up(session: Session, words: Words, wishes: Wishes, *, full: bool, yes: bool, no_rollback: bool) -> int:
    """Make the file true and prove it.

    Shows the plan and asks. When it ends with 0, every service that was changed has proved that it works. A container
    that fails its proof after a change is rolled back to the state that had proved itself. Its last
    lines say where to go from here.
    """
    from provisioner.cli.gateways import asked_addresses, say_endpoints
    from provisioner.reconcile.up import How
    from provisioner.reconcile.up import up as bring_up

    lab = session.open_lab(words.existing(), with_secrets=True)
    effects = session.effects(lab, confirm_plan(session.console, yes=yes, replaceable=wishes.replace))
    outcome = bring_up(lab, effects, wishes, How(full=full, rollback=not no_rollback))
    if not outcome.applied:
        return session.console.fail(DECLINED)
    try:  # a run that changes nothing asks no host again: those of doors and of hosts are known without
        providers = {} if outcome.plan.is_empty else effects.providers
        addresses = asked_addresses(lab, providers, words.names)
    except ProvisionError as error:  # what was done is done, and proved
        session.console.emit(Diagnostic("warning", "Unable to say where to go", error.message))
        return ExitCode.DONE
    say_endpoints(session, lab, addresses, words.names)
    return ExitCode.DONE
