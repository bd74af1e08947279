"""A lab on one web page that needs nothing else: warnings first, then what it is made of, with the evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from provisioner.page.clients import CLIENTS, client_text
from provisioner.page.content import LabContent
from provisioner.page.picture import graph_svg
from provisioner.page.plots import measurements
from provisioner.page.sections import all_warnings, cards, changes, routes, services, warnings
from provisioner.page.style import SHEET, sheet_digest, without_style
from provisioner.page.topology import graph_text
from provisioner.report.html import Markup, moment, opened, quiet, section, state, tag, wide
from provisioner.report.style import markup_text
from provisioner.report.svg import escaped as in_picture
from provisioner.values.masking import MASK, hidden_forms
from provisioner.values.state import Secret, Status

# What is connected with what: the picture of `graph`, and the same as text.


LEGIBLE = 1500
"""A picture that is wider, in pixels, would be too small to read as wide as the page."""
WIDTH = re.compile(r'width="(\d+)')


def picture_of(content: LabContent) -> Iterator[Markup]:
    """The picture, which may be wider than the page, and its words below it."""
    picture = Markup(without_style(graph_svg(content.graph)))
    found = WIDTH.search(picture)
    width = int(found[1]) if found else 0
    yield quiet("What the file connects, read ", moment(content.at), ".")
    yield wide("Picture of what is connected with what", picture, "large" if width > LEGIBLE else "")
    yield opened("The same as text", wide("What is connected with what", tag("pre", graph_text(content.graph))))


# The lab in four numbers.


def summary(content: LabContent) -> Markup:
    """How many containers run, services are healthy, whose last proof went well, and what there is to warn of."""
    warned = [one for one in all_warnings(content) if one.severity != "note"]
    addresses = content.graph.services
    proved = [address for address, one in content.proofs.items() if address in addresses and not one.failure]
    wanted = {box.name for box in content.graph.boxes}
    running = healthy = 0
    for container in content.containers:
        if container.name not in wanted:
            continue
        running += container.status is Status.RUNNING
        healthy += sum(service.healthy is True for service in container.services)
    tiles = (
        (str(len(warned)), "to warn of"),
        (f"{running} of {len(wanted)}", "containers run"),
        (f"{healthy} of {len(addresses)}", "services are healthy"),
        (f"{len(proved)} of {len(addresses)}", "last proofs went well"),
    )
    items = [tag("li", tag("span", number, class_="number"), words) for number, words in tiles]
    return tag("ul", *items, class_="tiles")


# What programs that use the lab put into their own configuration: keys are named, never shown.


def clients(content: LabContent) -> Iterator[Markup]:
    """A snippet for each program, or why nobody can tell where the lab answers."""
    gateway = content.clients.gateway
    if gateway is None:
        yield tag("p", state("dim", content.clients.unknown or "No service of the file speaks to clients."))
        return
    yield tag("p", "The lab answers at ", tag("code", gateway.url), ", as seen ", moment(content.at), ".")
    if gateway.key_variable:
        yield tag("p", "The key is what ", tag("code", gateway.key_variable), " holds; it is not on this page.")
    if content.clients.needs_root:
        yield tag("p", "Clients have to trust the lab's own root: ", tag("code", "provision show --ca"), " prints it.")
    for client in CLIENTS:
        snippet = wide(f"Settings of {client}", tag("pre", client_text(client, gateway)))
        yield opened(f"Settings of {client}", snippet, is_open=client == CLIENTS[0])
    yield quiet(tag("code", "provision show --client NAME"), " prints the same.")


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
