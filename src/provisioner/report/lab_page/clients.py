"""What programs that use the lab put into their own configuration: keys are named, never shown."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.report.client import CLIENTS, client_text
from provisioner.report.elements import Markup, moment, opened, quiet, state, tag, wide
from provisioner.report.lab_page.content import LabContent


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
