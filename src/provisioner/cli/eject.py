"""The verb ``eject``: leave provision with everything that was made."""

from __future__ import annotations

from pathlib import Path

import click

from provisioner.cli.options import Words, complete_folders, lab_words, verb
from provisioner.cli.session import Session
from provisioner.lab.opening import Lab, open_lab
from provisioner.values.errors import ExitCode


@click.command()
@verb
@lab_words(names=True, shape="DIR [FILE]", complete=complete_folders)
def eject(session: Session, words: Words) -> int:
    """Write plain Ansible that configures the lab without provision: provision eject DIR [FILE].

    DIR, which must be empty or new, gets an inventory, playbooks, the roles, and a README that says the three commands.
    Secrets are left as references to the environment. Nothing is changed on the hosts.
    """
    from provisioner.eject import eject

    if len(words.names) != 1:
        raise click.UsageError("Name one folder: provision eject DIR.")
    folder = Path(words.names[0])
    lab = _open(session, words.existing())
    names = eject.eject(lab, session.effects(lab), folder)
    session.console.result(
        f"Wrote {folder}: {folder / 'README.md'} says how to run it.", folder=folder, lab=lab.name, files=names
    )
    return ExitCode.DONE


def _open(session: Session, file: Path) -> Lab:
    """The lab; a secret needs a value only where a host does not let us look without one."""
    hosts = open_lab(file, needs="none").spec.hosts.values()
    is_guarded = any(host.needs_secrets for host in hosts)
    return session.open_lab(file, with_secrets=is_guarded, needs="all" if is_guarded else "none")
