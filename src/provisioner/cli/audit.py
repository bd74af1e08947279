"""The verb ``audit``: what of a lab is open that is on no page."""

from __future__ import annotations

import click

from provisioner.cli.options import Words, lab_words, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode


@click.command()
@verb
@lab_words(names=True)
def audit(session: Session, words: Words) -> int:
    """Ask every service as strangers do, and say what is open that its page does not list.

    Each container tells which sockets listen in it. Its services are asked without a key, with a wrong one, from a
    foreign page and in disguise: from its loopback, from its network, and, where the LAN reaches them, at the address
    of the host. Changes nothing: what is not only looked at is asked with a body that no server can use. Exits with 3
    when something answers that is on no page, with the request to repeat it.
    """
    from provisioner.reconcile import audit
    from provisioner.report.messages import finding_diagnostic
    from provisioner.serving.audit import audited_text

    console = session.console
    lab = session.open_lab(words.existing(), with_secrets=True)
    lab.check_targets(words.names)
    found = audit.audit(lab, session.effects(lab), words.names)
    console.stop_progress()
    console.say(audited_text(found, console.style))
    for check in found.checks:
        console.line("check", check)
    for finding in found.findings:
        console.line("diagnostic", finding_diagnostic(finding))
    return ExitCode.VERIFICATION_FAILED if found.findings else ExitCode.DONE
