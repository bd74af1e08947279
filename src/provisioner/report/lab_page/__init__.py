"""A lab on one web page that needs nothing else: warnings first, then what it is made of, with the evidence.

``content`` (the values), ``style`` (the sheet), and a module for each part of the page:
``warnings``, ``topology``, ``services``, ``cards``, ``routes``, ``measurements``, ``changes``, ``clients``.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.report.elements import Markup, moment, quiet, section, tag
from provisioner.report.graph.elements import escaped as in_picture
from provisioner.report.lab_page.cards import cards
from provisioner.report.lab_page.changes import changes
from provisioner.report.lab_page.clients import clients
from provisioner.report.lab_page.content import Asked, Clients, LabContent, Pending
from provisioner.report.lab_page.measurements import measurements
from provisioner.report.lab_page.routes import routes
from provisioner.report.lab_page.services import services
from provisioner.report.lab_page.style import SHEET, sheet_digest
from provisioner.report.lab_page.summary import summary
from provisioner.report.lab_page.topology import picture_of
from provisioner.report.lab_page.warnings import warnings
from provisioner.report.style import markup_text
from provisioner.values.masking import MASK, hidden_forms
from provisioner.values.state import Secret

__all__ = ["Asked", "Clients", "LabContent", "Pending", "lab_page"]

PARTS = {
    "warnings": ("Warnings", warnings),
    "topology": ("Topology", picture_of),
    "services": ("Services and their proofs", services),
    "cards": ("Memory of cards", cards),
    "routes": ("Routes of aliases", routes),
    "measurements": ("Probes and benchmarks", measurements),
    "changes": ("Drift and last runs", changes),
    "clients": ("Clients", clients),
}


def lab_page(content: LabContent, secrets: Sequence[Secret] = ()) -> str:
    """The whole page: well-formed whatever the names are, and without any value of ``secrets``, whoever said it."""
    title = f"Lab {content.lab}"
    body = tag("body", _header(title, content), tag("main", *_sections(content)), _footer(content))
    return f'<!doctype html>\n<html lang="en">{_head(title, secrets)}\n{_without(body, secrets)}</html>\n'


def _head(title: str, secrets: Sequence[Secret]) -> str:
    rule = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{sheet_digest()}'; base-uri 'none'; form-action 'none'"
    )
    parts = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=rule),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        _without(tag("title", title), secrets),
    )
    return f"<head>{''.join(parts)}<style>{SHEET}</style></head>"


def _header(title: str, content: LabContent) -> Markup:
    links = [tag("li", tag("a", words, href=f"#{name}")) for name, (words, _) in PARTS.items()]
    return tag(
        "header",
        tag("h1", title),
        quiet("As it was ", moment(content.at), ", by ", tag("code", content.file)),
        summary(content),
        tag("nav", tag("ul", *links), aria_label="Parts of this page"),
    )


def _sections(content: LabContent) -> list[Markup]:
    parts = []
    for name, (title, write) in PARTS.items():
        parts.append(section(name, title, *write(content)))
    return parts


def _footer(content: LabContent) -> Markup:
    how = ("Written by ", tag("code", "provision report"), " at ", moment(content.at))
    return tag("footer", quiet(*how, ". It needs no other file, and asks nobody anything. Keys are not in it."))


def _without(markup: str, secrets: Sequence[Secret]) -> str:
    """The same without values of secrets, also where they were escaped: the last line of defence, not the first."""
    for form in hidden_forms(secrets):
        for written in (form, markup_text(form), in_picture(form)):
            markup = markup.replace(written, MASK)
    return markup
