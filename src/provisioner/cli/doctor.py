"""The verb ``doctor``: what is in the way of a lab on its hosts."""

from __future__ import annotations

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode


@click.command()
@verb
@lab_words(names=False)
@option("--fix", is_flag=True, help="Do what is safe: make device files that cards of this machine lack.")
def doctor(session: Session, words: Words, *, fix: bool) -> int:
    """Look at every host of the file: does it answer, has it what the lab needs, may we do what we have to?

    Looks at the cards that containers want, too, at what of them arrived there, and whether the name of each site of a
    door leads to that door from this machine. Without --fix it changes nothing.
    Exits with 3 when something is in the way, and says what to do about it. Warns of packages in running containers
    of which newer versions are known there; no list of packages is refreshed.
    """
    from provisioner.doctor import examine
    from provisioner.doctor.examine import diagnoses_text
    from provisioner.report.messages import finding_diagnostic
    from provisioner.values.events import Diagnostic

    console = session.console
    lab = session.open_lab(words.existing(), with_secrets=True)
    providers = session.effects(lab).providers
    found = examine.examine(lab, providers)
    if fix and (done := examine.mend(found, providers)):
        for words_said in done:
            console.emit(Diagnostic("note", words_said))
        found = examine.examine(lab, providers)
    console.say(diagnoses_text(found, console.style))
    for one in found:
        console.line("check", one.check)
    for one in found:
        if one.warning is not None:
            console.emit(one.warning)
    findings = [one.finding for one in found if one.finding is not None]
    for finding in findings:
        console.line("diagnostic", finding_diagnostic(finding))
    return ExitCode.VERIFICATION_FAILED if findings else ExitCode.DONE
