"""The verb ``validate``: everything that is wrong with the file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner.cli.options import existing, lab_files, option, verb
from provisioner.cli.session import Session
from provisioner.report.style import count_text
from provisioner.values.errors import ExitCode, ProvisionError

if TYPE_CHECKING:
    from provisioner.labfile.loader import Needs


@click.command()
@verb
@lab_files
@option("--without-secrets", is_flag=True, help="Look up no secret, and do not miss any: for machines without them.")
def validate(session: Session, files: tuple[Path, ...], *, without_secrets: bool) -> int:
    """Check the file and say everything that is wrong with it, each with its line.

    Of several files each is checked, whatever is wrong with others; the exit code is the worst. With --without-secrets
    everything is checked but the values of secrets: neither the environment nor secrets.env is read.
    """
    needs: Needs = "unread" if without_secrets else "all"
    codes = []
    for file in dict.fromkeys(files):
        try:
            codes.append(_validate(session, file, needs))
        except ProvisionError as error:
            if len(files) == 1:  # said where all errors are, with what to do where the system refused something
                raise
            codes.append(session.console.fail(error))
    return max(codes)


def _validate(session: Session, file: Path, needs: Needs) -> int:
    lab = session.open_lab(existing(file), needs=needs)
    containers = count_text(len(lab.spec.containers), "container")
    services = count_text(sum(len(one.services) for one in lab.spec.containers.values()), "service")
    session.console.result(
        f"{file} is valid: lab {lab.name}, {containers}, {services}.", file=file, lab=lab.name, valid=True
    )
    return ExitCode.DONE
