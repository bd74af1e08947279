"""The verb ``show``: the file as it is understood, what it resolves to, or what its clients need."""

from __future__ import annotations

import click

from provisioner.catalog import Catalog
from provisioner.cli.addresses import address_of
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import SPEECH_PROTOCOL
from provisioner.report.client import CLIENTS, Gateway, Speech, client_text
from provisioner.report.gateway import PROTOCOL, Entrance, SpeechEndpoint, entrance_of, speech_endpoint_of
from provisioner.values.errors import ExitCode, InputError


@click.command()
@verb
@lab_words(names=False)
@option("--expanded", is_flag=True, help="Everything that it resolves to: devices, variables, artifacts.")
@option("--client", type=click.Choice(CLIENTS), help="What this program's own configuration needs.")
def show(session: Session, words: Words, *, expanded: bool, client: str | None) -> int:
    """Print the file as it is understood, defaults filled in and secrets masked.

    With --client: the settings of a program that uses the lab. The key is named by its variable, never shown.
    """
    from provisioner.report.file import file_value, fleet_value, yaml_text

    if expanded and client:
        raise click.UsageError("--expanded and --client exclude each other.")
    # Where the gateway answers may be known to its host alone; all else is in the file.
    lab = session.open_lab(words.existing(), with_secrets=bool(client), needs="hosts" if client else "none")
    if client:
        gateway = _gateway(session, lab)
        session.console.result(client_text(client, gateway), client=client, gateway=gateway)
        return ExitCode.DONE
    fleet = lab.fleet(needs_wheels=False)
    value = fleet_value(lab.resolved, fleet) if expanded else file_value(lab.resolved, fleet)
    session.console.result(yaml_text(value), value=value)
    return ExitCode.DONE


def _gateway(session: Session, lab: Lab) -> Gateway:
    entrance = entrance_of(lab.resolved)
    endpoint = speech_endpoint_of(lab.resolved, entrance)
    first = entrance or (endpoint.entrance if endpoint else None)
    if first is None:
        raise InputError(
            f"Unable to tell clients where lab {lab.name} answers: no service of the file speaks their protocol",
            resolution=_what_to_add(lab.resolved.catalog),
        )
    url = _url(session, lab, first)
    speech = _speech(session, lab, endpoint, url if endpoint.entrance == first else "") if endpoint else None
    return Gateway(lab.name, url, first.key_variable, first.models, speech)


def _what_to_add(catalog: Catalog) -> str:
    gateway, engine = catalog.example(PROTOCOL, "gateway"), catalog.example(PROTOCOL, "engine")
    return f"Add a gateway{gateway}, an engine{engine}, or speech{catalog.example(SPEECH_PROTOCOL)}."


def _speech(session: Session, lab: Lab, endpoint: SpeechEndpoint, url: str) -> Speech:
    return Speech(
        url or _url(session, lab, endpoint.entrance), endpoint.entrance.key_variable, endpoint.model, endpoint.voice
    )


def _url(session: Session, lab: Lab, entrance: Entrance) -> str:
    address = address_of(session, lab, entrance.container, is_on_lan=entrance.is_on_lan)
    return f"http://{address}:{entrance.port}/v1"
