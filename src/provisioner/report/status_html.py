"""The lab as it is now as a web page, with the pictures that proofs took in it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from provisioner.report.page import page, table_html
from provisioner.report.status import HEAD, listed_below, shown_text, status_rows
from provisioner.report.style import markup_text
from provisioner.values.state import ContainerStatus, Screen


def status_html(lab: str, containers: Sequence[ContainerStatus], pictures: Mapping[str, bytes], at: str) -> str:
    """The page; ``pictures`` holds the PNG of each screen's file, ``at`` is when (ISO 8601)."""
    parts = [f'<p class="dim">{markup_text(at)}</p>', table_html(HEAD, status_rows(containers))]
    for title, lines in listed_below(containers).items():
        if lines:
            items = "".join(f"<li>{markup_text(line)}</li>" for line in lines)
            parts += [f"<h2>{title}</h2>", f"<ul>{items}</ul>"]
    for container in containers:
        for service in container.services:
            parts += _screens(f"{container.name}/{service.role}", service.screens, pictures)
    return page(f"Lab {lab}", parts)


def _screens(address: str, screens: Sequence[Screen], pictures: Mapping[str, bytes]) -> list[str]:
    """A service's screens below its address; nothing where there is no picture of any."""
    figures = [_figure(address, screen, pictures[screen.file]) for screen in screens if screen.file in pictures]
    return [f"<h2>{markup_text(address)}</h2>", *figures] if figures else []


def _figure(address: str, screen: Screen, picture: bytes) -> str:
    caption = shown_text(screen)
    source = f"data:image/png;base64,{base64.b64encode(picture).decode('ascii')}"
    title = markup_text(f"{address} {caption}")
    return f'<figure><img src="{source}" alt="{title}"><figcaption>{markup_text(caption)}</figcaption></figure>'
