"""The verb ``verify``: everything proves that it works."""

from __future__ import annotations

import click

from provisioner.cli.confirm import show_plan
from provisioner.cli.options import PENDING, Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode


@click.command()
@verb
@lab_words(names=True)
@option("--after-reboot", is_flag=True, help="Stop and start the containers before: prove what a reboot leaves.")
@option("--wake", is_flag=True, help="Also prove what is asleep, which starts it.")
@option("--detailed-exitcode", is_flag=True, help=PENDING)
def verify(session: Session, words: Words, *, after_reboot: bool, wake: bool, detailed_exitcode: bool) -> int:
    """Prove that everything works; without --after-reboot and --wake it changes, starts and stops nothing."""
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
