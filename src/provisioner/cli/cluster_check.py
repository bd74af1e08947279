"""The verb ``cluster check``: what is wrong with a cluster, and what proves it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner.cli.cluster import file_option, host_argument, last_version, last_version_option, reach_host
from provisioner.cli.options import option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode

if TYPE_CHECKING:  # imported when a verb touches a cluster
    from provisioner.cluster.facts import ClusterFacts, Diagnosis


@click.command()
@verb
@host_argument
@file_option
@last_version_option
@option("--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it as a web page, too.")
def check(session: Session, *, host: str, file: Path, last: tuple[str, ...], html: Path | None) -> int:
    """Ask every node of a cluster what it knows, and say what is wrong, what proves it, and what to do.

    Changes nothing. Exits with 3 when something is wrong or not known, with 4 when HOST does not answer.
    """
    from provisioner.cluster.diagnosis import diagnose, is_healthy
    from provisioner.cluster.gather import gather
    from provisioner.cluster.text import cluster_content, cluster_text

    versions = dict(last_version(words) for words in last)
    console = session.console
    facts = gather(reach_host(host, file), console.emit)
    found = diagnose(facts, versions)
    console.stop_progress()
    if html is not None:
        _write_page(html, facts, found)
    console.result(cluster_text(facts, found, console.style), **cluster_content(facts, found))
    return ExitCode.DONE if is_healthy(found) else ExitCode.VERIFICATION_FAILED


def _write_page(file: Path, facts: ClusterFacts, found: Sequence[Diagnosis]) -> None:
    from provisioner.cluster.page import check_html
    from provisioner.values.errors import InputError

    try:
        file.write_text(check_html(facts, found, datetime.now(UTC).isoformat(timespec="seconds")), encoding="utf-8")
    except OSError as error:
        raise InputError(f"Unable to write {file}", details=str(error)) from error
