"""The verbs of the file: ``init validate schema``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from provisioner.catalog import load_catalog
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.report.style import count_text
from provisioner.values.errors import ExitCode
from provisioner.values.events import Diagnostic


@click.command()
@verb
@lab_words(names=False)
@option("--secrets", "with_secrets", is_flag=True, help="Write each missing secret, generated, into secrets.env.")
def init(session: Session, words: Words, *, with_secrets: bool) -> int:
    """Write a first file, its schema, and its missing secrets.

    What is there is kept: a file is never overwritten, a secret that has a value keeps it.
    """
    from provisioner.labfile.starter import write_schema, write_starter

    console, file = session.console, words.file
    is_new = not file.exists()
    if is_new:
        write_starter(file, load_catalog())
    else:
        write_schema(file, load_catalog())
    console.say(f"{'Wrote' if is_new else 'Kept'} {file}.")
    generated = _generate_secrets(session, file) if with_secrets else ()
    console.line("result", {"file": file, "written": is_new, "secrets": generated})
    return ExitCode.DONE


@click.command()
@verb
@lab_words(names=False)
def validate(session: Session, words: Words) -> int:
    """Check the file and say everything that is wrong with it, each with its line."""
    lab = session.open_lab(words.existing())
    containers = count_text(len(lab.spec.containers), "container")
    services = count_text(sum(len(one.services) for one in lab.spec.containers.values()), "service")
    session.console.result(
        f"{words.file} is valid: lab {lab.name}, {containers}, {services}.", file=words.file, lab=lab.name, valid=True
    )
    return ExitCode.DONE


@click.command()
@verb
def schema(session: Session) -> int:
    """Print the JSON schema of the file, for editors."""
    from provisioner.labfile.schema import file_schema

    made = file_schema(load_catalog())
    session.console.result(json.dumps(made, indent=2, ensure_ascii=False), schema=made)
    return ExitCode.DONE


def _generate_secrets(session: Session, file: Path) -> tuple[str, ...]:
    """The names of the secrets that were written; one that only another system can give is named in a warning."""
    from provisioner.labfile.loader import environment_name
    from provisioner.labfile.starter import write_missing_secrets

    written = write_missing_secrets(file, load_catalog())
    names = ", ".join(written.generated)
    session.console.say(
        f"Wrote {names} into {written.file}." if names else "No secret is missing that can be generated."
    )
    for name in written.needed:
        session.console.emit(
            Diagnostic(
                "warning",
                f"Secret {name} has no value and cannot be generated: it belongs to another system",
                resolution=f"Write {name}=VALUE into {written.file}, or set {environment_name(name)}.",
            )
        )
    return written.generated
