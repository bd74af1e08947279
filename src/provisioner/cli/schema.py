"""The verb ``schema``: the JSON schema of the file, for editors."""

from __future__ import annotations

import json

import click

from provisioner.cli.options import verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode


@click.command()
@verb
def schema(session: Session) -> int:
    """Print the JSON schema of the file, for editors."""
    from provisioner.catalog import load_catalog
    from provisioner.labfile.schema import file_schema

    made = file_schema(load_catalog())
    session.console.result(json.dumps(made, indent=2, ensure_ascii=False), schema=made)
    return ExitCode.DONE
