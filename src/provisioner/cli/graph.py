"""The verb ``graph``: what of a file is connected with what, as text, as a picture, or for other tools."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError


@click.command()
@verb
@lab_words(names=False)
@option("--svg", "svg", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a picture.")
@option("--dot", "dot", is_flag=True, help="Print it in Graphviz' language, for other tools.")
def graph(session: Session, words: Words, *, svg: Path | None, dot: bool) -> int:
    """Draw what is connected with what: hosts, containers, services, aliases, models, upstreams.

    Touches no host. The picture (SVG) is one file that any browser shows, light or dark.
    """
    from provisioner.page.picture import graph_dot, graph_svg
    from provisioner.page.topology import ASCII, UNICODE, graph_text, topology

    if svg is not None and dot:
        raise click.UsageError("Choose one of --svg FILE and --dot.")
    lab = session.open_lab(words.existing(), needs="none")
    made = topology(lab.resolved)
    content = {"lab": made.lab, "hosts": made.hosts, "nodes": (*made.boxes, *made.outside), "edges": made.edges}
    if dot:
        session.console.result(graph_dot(made), **content)
        return ExitCode.DONE
    if svg is None:
        signs = UNICODE if _is_unicode(sys.stdout.encoding) else ASCII
        session.console.result(graph_text(made, session.console.style, signs), **content)
        return ExitCode.DONE
    try:
        svg.write_text(graph_svg(made), encoding="utf-8")
    except OSError as error:
        raise InputError(f"Unable to write {svg}", details=str(error), resolution="Name another file.") from error
    session.console.result(f"Wrote {svg}.", **content, file=str(svg))
    return ExitCode.DONE


def _is_unicode(encoding: str | None) -> bool:
    return (encoding or "utf-8").lower().replace("-", "").startswith("utf")
