"""The verbs of a living lab: ``plan up status verify``."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli.confirm import DECLINED, confirm_plan, show_plan
from provisioner.cli.options import Function, Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode
from provisioner.values.events import Diagnostic

if TYPE_CHECKING:  # the plan is made when a verb touches the world
    from provisioner.lab.opening import Lab
    from provisioner.values.plan import Wishes

PENDING = "Exit with 2 when there are changes to be made."


def wishes(function: Function) -> Function:
    """The options by which ``plan`` and ``up`` are asked for more than the file says: the function gets ``wishes``."""

    @option("--prune", is_flag=True, help="Delete containers of the lab that are no longer in the file.")
    @option("--replace", multiple=True, metavar="NAME", help="Delete this container and make it anew; may be repeated.")
    @option("--full", is_flag=True, help="Look at every byte and run everything again, whatever the stamps say.")
    @wraps(function)
    def call(*args: Any, words: Words, prune: bool, replace: tuple[str, ...], **rest: Any) -> Any:
        from provisioner.values.plan import Wishes

        # What is to be replaced is meant, also where the verb is limited to others.
        targets = frozenset((*words.names, *replace)) if words.names else frozenset()
        return function(*args, words=words, wishes=Wishes(targets, frozenset(replace), prune), **rest)

    return call


@click.command()
@verb
@lab_words(names=True)
@wishes
@option("--detailed-exitcode", is_flag=True, help=PENDING)
@option("--markdown", is_flag=True, help="Say it in Markdown, for a comment on a merge request.")
def plan(session: Session, words: Words, wishes: Wishes, *, full: bool, detailed_exitcode: bool, markdown: bool) -> int:
    """Say what up would do; change nothing."""
    from provisioner.reconcile import up

    if markdown and session.console.json:
        raise click.UsageError("Choose one of --markdown and --json.")
    lab = session.open_lab(words.existing(), with_secrets=True)
    made = up.plan(lab, session.effects(lab), wishes, full=full)
    if markdown:
        from provisioner.reconcile.text import plan_markdown

        session.console.say(plan_markdown(made, lab.name))
    else:
        show_plan(session.console, made)
    session.console.count_planned(change.action for change in made.changes)
    return ExitCode.CHANGES_PENDING if detailed_exitcode and not made.is_empty else ExitCode.DONE


@click.command()
@verb
@lab_words(names=True)
@wishes
@option("-y", "--yes", is_flag=True, help="Apply without asking; never deletes what --replace and --prune do not name.")
@option("--no-rollback", is_flag=True, help="Keep no way back, and leave what fails its proof as it is.")
def up(session: Session, words: Words, wishes: Wishes, *, full: bool, yes: bool, no_rollback: bool) -> int:
    """Make the file true and prove it.

    Shows the plan and asks. When it ends with 0, every service has proved that it works. A container that fails its
    proof after a change is rolled back to the state that had proved itself.
    """
    from provisioner.reconcile.up import How
    from provisioner.reconcile.up import up as bring_up

    lab = session.open_lab(words.existing(), with_secrets=True)
    effects = session.effects(lab, confirm_plan(session.console, yes=yes, replaceable=wishes.replace))
    outcome = bring_up(lab, effects, wishes, How(full=full, rollback=not no_rollback))
    return ExitCode.DONE if outcome.applied else session.console.fail(DECLINED)


@click.command()
@verb
@lab_words(names=True)
@option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The same as: report FILE; for one more release.",
)
def status(session: Session, words: Words, *, html: Path | None) -> int:
    """Say what runs where, how it does, and what drifted from the file."""
    from provisioner.reconcile import observe
    from provisioner.reconcile.text import status_text

    console = session.console
    lab = session.open_lab(words.existing(), with_secrets=True)
    lab.check_targets(words.names)
    if html is not None:
        return _write_page(session, lab, html)
    containers = observe.status(lab, session.effects(lab), words.names)
    console.say(status_text(containers, console.style))
    for one in containers:
        console.line("container", one)
        if one.drift:
            console.line("drift", {"target": one.name, "changes": one.drift})
        if one.orphan:
            console.line("orphan", {"target": one.name, "host": one.host})
    return ExitCode.DONE


def _write_page(session: Session, lab: Lab, file: Path) -> int:
    """The page of ``report``, of the whole lab, and a line that says whose it is."""
    from provisioner.cli.report import page_named, written

    page = page_named(str(file))
    note = "status --html is the verb report from now on, and goes with the next release"
    session.console.emit(Diagnostic("warning", note, resolution=f"Write: provision report {page}"))
    return written(session, lab, page)


@click.command()
@verb
@lab_words(names=True)
@option("--after-reboot", is_flag=True, help="Stop and start the containers before: prove what a reboot leaves.")
@option("--wake", is_flag=True, help="Also prove what is asleep, which starts it.")
@option("--detailed-exitcode", is_flag=True, help=PENDING)
def verify(session: Session, words: Words, *, after_reboot: bool, wake: bool, detailed_exitcode: bool) -> int:
    """Prove that everything works; without --after-reboot change and stop nothing."""
    from provisioner.reconcile import prove, up
    from provisioner.report.messages import finding_diagnostic, findings_text
    from provisioner.values.plan import Wishes

    console = session.console
    lab = session.open_lab(words.existing(), with_secrets=True)
    lab.check_targets(words.names)
    effects = session.effects(lab)
    if after_reboot:
        prove.restart(lab, effects, words.names)
    verified = prove.verify(lab, effects, words.names, wake=wake)
    findings = verified.findings
    console.stop_progress()
    console.say(findings_text(findings, console.style, verified.not_asked))
    for finding in findings:
        console.line("diagnostic", finding_diagnostic(finding))
    if findings:
        return ExitCode.VERIFICATION_FAILED
    if not detailed_exitcode:
        return ExitCode.DONE
    made = up.plan(lab, effects, Wishes(frozenset(words.names)))
    show_plan(console, made)
    return ExitCode.DONE if made.is_empty else ExitCode.CHANGES_PENDING
