"""The lab as it is now as a web page, with the pictures that proofs took in it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from provisioner.report.page import page, table_html
from provisioner.report.status import HEAD, listed_below, status_rows
from provisioner.report.style import markup_text
from provisioner.state import ContainerStatus, Screen

SHOWS = {
    "mate": "a desktop",
    "background": "a desktop without panels",
    "log": "xrdp's own window, which says why there is no session",
    "dialog": "a login window or a message",
    "blank": "nothing",
}


def status_html(lab: str, containers: Sequence[ContainerStatus], pictures: Mapping[str, bytes], at: str) -> str:
    """The page; ``pictures`` holds the PNG of each screen's file, ``at`` is when (ISO 8601)."""
    parts = [f'<p class="dim">{markup_text(at)}</p>', table_html(HEAD, status_rows(containers))]
    for title, lines in listed_below(containers).items():
        items = "".join(f"<li>{markup_text(line)}</li>" for line in lines)
        parts += [f"<h2>{title}</h2>", f"<ul>{items}</ul>"] if lines else []
    for container in containers:
        for service in container.services:
            address = f"{container.name}/{service.role}"
            shown = [_figure(address, one, pictures[one.file]) for one in service.screens if one.file in pictures]
            parts += [f"<h2>{markup_text(address)}</h2>", *shown] if shown else []
    return page(f"Lab {lab}", parts)


def _figure(address: str, screen: Screen, picture: bytes) -> str:
    what = f"{screen.name}: judged to show {SHOWS.get(screen.shows, screen.shows or 'something unknown')}"
    source = f"data:image/png;base64,{base64.b64encode(picture).decode('ascii')}"
    title = markup_text(f"{address} {what}")
    return f'<figure><img src="{source}" alt="{title}"><figcaption>{markup_text(what)}</figcaption></figure>'
