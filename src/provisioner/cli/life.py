"""The verbs of a living lab: ``plan up status verify``."""

from __future__ import annotations

import click

from provisioner.cli.confirm import DECLINED, confirm_plan, show_plan
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.errors import ExitCode

PENDING = "Exit with 2 when there are changes to be made."


@click.command()
@verb
@lab_words(names=True)
@option("--detailed-exitcode", is_flag=True, help=PENDING)
def plan(session: Session, words: Words, *, detailed_exitcode: bool) -> int:
    """Say what up would do; change nothing."""
    from provisioner import workflow

    lab = session.open_lab(words.existing(), with_secrets=True)
    made = workflow.plan(lab, session.effects(lab), words.names)
    show_plan(session.console, made)
    return ExitCode.CHANGES_PENDING if detailed_exitcode and not made.is_empty else ExitCode.DONE


@click.command()
@verb
@lab_words(names=True)
@option("-y", "--yes", is_flag=True, help="Apply without asking.")
def up(session: Session, words: Words, *, yes: bool) -> int:
    """Make the file true and prove it.

    Shows the plan and asks. When it ends with 0, every service has proved that it works.
    """
    from provisioner import workflow

    lab = session.open_lab(words.existing(), with_secrets=True)
    effects = session.effects(lab, confirm_plan(session.console, yes=yes))
    outcome = workflow.up(lab, effects, words.names)
    return ExitCode.DONE if outcome.applied else session.console.fail(DECLINED)


@click.command()
@verb
@lab_words(names=True)
def status(session: Session, words: Words) -> int:
    """Say what runs where, how it does, and what drifted from the file."""
    from provisioner import workflow
    from provisioner.report.status import status_text

    console = session.console
    lab = session.open_lab(words.existing(), with_secrets=True)
    lab.check_targets(words.names)
    containers = workflow.status(lab, session.effects(lab), words.names)
    console.say(status_text(containers, console.style))
    for one in containers:
        console.line("container", one)
        if one.drift:
            console.line("drift", {"target": one.name, "attributes": one.drift})
        if one.orphan:
            console.line("orphan", {"target": one.name, "host": one.host})
    return ExitCode.DONE


@click.command()
@verb
@lab_words(names=True)
@option("--detailed-exitcode", is_flag=True, help=PENDING)
def verify(session: Session, words: Words, *, detailed_exitcode: bool) -> int:
    """Prove that everything works; change and stop nothing."""
    from provisioner import workflow
    from provisioner.report.messages import finding_diagnostic, findings_text

    console = session.console
    lab = session.open_lab(words.existing(), with_secrets=True)
    lab.check_targets(words.names)
    effects = session.effects(lab)
    findings = workflow.verify(lab, effects, words.names)
    console.stop_progress()
    console.say(findings_text(findings, console.style))
    for finding in findings:
        console.line("diagnostic", finding_diagnostic(finding))
    if findings:
        return ExitCode.VERIFICATION_FAILED
    if not detailed_exitcode:
        return ExitCode.DONE
    made = workflow.plan(lab, effects, words.names)
    show_plan(console, made)
    return ExitCode.DONE if made.is_empty else ExitCode.CHANGES_PENDING
