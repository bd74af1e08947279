"""The verbs of the file: ``init validate schema``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from provisioner import paths
from provisioner.catalog import load_catalog
from provisioner.cli.first_file import add_secrets, first_file, generated_secrets, write_again, write_new
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.errors import ExitCode
from provisioner.events import Diagnostic
from provisioner.loader import environment_name, missing_secrets, secrets_file
from provisioner.report.style import count_text
from provisioner.schema import file_schema

SCHEMA = "homelab.schema.json"


@click.command()
@verb
@lab_words(names=False)
@option("--secrets", "with_secrets", is_flag=True, help="Write each missing secret, generated, into secrets.env.")
def init(session: Session, words: Words, *, with_secrets: bool) -> int:
    """Write a first file, its schema, and its missing secrets.

    What is there is kept: a file is never overwritten, a secret that has a value keeps it.
    """
    console, file = session.console, words.file
    written = write_new(file, first_file(file))
    console.say(f"{'Wrote' if written else 'Kept'} {file}.")
    schema = paths.lab_folder(file) / SCHEMA
    write_again(schema, _schema_text())
    generated = _generate_secrets(session, file) if with_secrets else []
    console.line("result", {"file": file, "written": written, "schema": schema, "secrets": generated})
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
    session.console.result(_schema_text().rstrip(), schema=file_schema(load_catalog()))
    return ExitCode.DONE


def _schema_text() -> str:
    return json.dumps(file_schema(load_catalog()), indent=2, ensure_ascii=False) + "\n"


def _generate_secrets(session: Session, file: Path) -> list[str]:
    catalog = load_catalog()
    missing = missing_secrets(file, catalog)
    values = generated_secrets(missing, catalog)
    target = secrets_file(file)
    if values:
        add_secrets(target, values)
    names = ", ".join(sorted(values))
    session.console.say(f"Wrote {names} into {target}." if values else f"No secret is missing that {target} could get.")
    for name in sorted({use.name for use in missing} - values.keys()):
        session.console.emit(
            Diagnostic(
                "warning",
                f"Secret {name} has no value and cannot be generated: it belongs to another system",
                resolution=f"Write {environment_name(name)}=VALUE into {target}, or set that variable.",
            )
        )
    return sorted(values)
