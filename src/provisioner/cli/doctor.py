"""The verb ``doctor``: what is in the way of a lab on its hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner.cli.options import DEFAULT_FILE, Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode

if TYPE_CHECKING:
    from provisioner.doctor.diagnosis import Diagnosis


@click.command()
@verb
@lab_words(names=False)
@option("--fix", is_flag=True, help="Do what is safe: make device files that cards of this machine lack.")
def doctor(session: Session, words: Words, *, fix: bool) -> int:
    """Look at every host of the file: does it answer, has it what the lab needs, may we do what we have to?

    Where no file is named and there is none yet, this machine alone is looked at: whether it can hold containers.

    Looks at the cards that containers want, too, at what of them arrived there, and whether the name of each site of a
    door leads to that door from this machine. Without --fix it changes nothing.
    Exits with 3 when something is in the way, and says what to do about it. Warns of packages in running containers
    of which newer versions are known there; no list of packages is refreshed.
    """
    from provisioner.doctor.examine import diagnoses_text
    from provisioner.report.messages import finding_diagnostic

    console = session.console
    if words.file == Path(DEFAULT_FILE) and not words.file.exists():
        found, subject = _of_this_machine(session), "a lab on this machine"
    else:
        found, subject = _of_lab(session, words.existing(), fix=fix), "this lab"
    console.say(diagnoses_text(found, console.style, subject))
    for one in found:
        console.line("check", one.check)
    for one in found:
        if one.warning is not None:
            console.emit(one.warning)
    findings = [one.finding for one in found if one.finding is not None]
    for finding in findings:
        console.line("diagnostic", finding_diagnostic(finding))
    return ExitCode.VERIFICATION_FAILED if findings else ExitCode.DONE


def _of_this_machine(session: Session) -> tuple[Diagnosis, ...]:
    from provisioner.cli.host import here
    from provisioner.doctor.examine import examine_machine
    from provisioner.values.events import Diagnostic

    session.console.emit(Diagnostic("note", f"There is no {DEFAULT_FILE} here: this machine alone is looked at."))
    return examine_machine(here())


def _of_lab(session: Session, file: Path, *, fix: bool) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of the file's hosts, after what is safe was done about them."""
    from provisioner.doctor import examine
    from provisioner.values.events import Diagnostic

    lab = session.open_lab(file, with_secrets=True)
    providers = session.effects(lab).providers
    found = examine.examine(lab, providers)
    done = examine.mend(found, providers) if fix else ()
    for said in done:
        session.console.emit(Diagnostic("note", said))
    return examine.examine(lab, providers) if done else found
