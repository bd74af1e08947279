"""The verb ``show``: the file as it is understood, what it resolves to, or what its clients need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import click

from provisioner.catalog import Catalog
from provisioner.cli.gateways import address_of, answering
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.lab import desired_fleet
from provisioner.lab.opening import Lab, find_files
from provisioner.page.clients import CLIENTS, Gateway, client_text
from provisioner.services.base import ResolvedService
from provisioner.values.errors import ExitCode, InputError
from provisioner.values.events import ApplyProgress, Diagnostic, Event
from provisioner.values.state import Secret


@click.command()
@verb
@lab_words(names=False)
@option("--expanded", is_flag=True, help="Everything that it resolves to: devices, variables, artifacts.")
@option("--ca", is_flag=True, help="The root certificate that devices have to trust, as PEM.")
@option("--client", type=click.Choice(CLIENTS), help="What this program's own configuration needs.")
def show(session: Session, words: Words, *, expanded: bool, ca: bool, client: str | None) -> int:
    """Print the file as it is understood, defaults filled in and secrets masked.

    With --client: the settings of a program that uses the lab. The key is named by its variable, never shown.
    With --ca: the root of the lab's own authority, which signs the certificate of its door.
    """
    from provisioner.reconcile.text import file_value, fleet_value, yaml_text

    if sum(map(bool, (expanded, ca, client))) > 1:
        raise click.UsageError("--expanded, --ca and --client exclude each other.")
    if ca:
        roots = _roots(session.open_lab(words.existing(), needs="none"), session)
        certificates = dict.fromkeys(root.certificate.strip() for root in roots)
        session.console.result("\n".join(certificates), roots=roots)
        return ExitCode.DONE
    # Where the gateway answers may be known to its host alone; all else is in the file.
    lab = session.open_lab(words.existing(), with_secrets=bool(client), needs="hosts" if client else "none")
    if client:
        gateway = _gateway(session, lab)
        session.console.result(client_text(client, gateway), client=client, gateway=gateway)
        return ExitCode.DONE
    lab.check_stacks({})
    found = find_files(lab)
    files = (found.hashed(partial(_tell, session)) if expanded else found).files
    fleet = desired_fleet(lab.resolved, files)
    value = fleet_value(lab.resolved, fleet) if expanded else file_value(lab.resolved, fleet)
    session.console.result(yaml_text(value), value=value)
    return ExitCode.DONE


def _tell(session: Session, event: Event) -> None:
    """Say beside the result that a large file is read."""
    match event:
        case ApplyProgress(goes_on=False):
            session.console.emit(Diagnostic("note", f"{event.target}: {event.message}"))


@dataclass(frozen=True, slots=True)
class Root:
    """The root certificate of a door's authority (PEM), its SHA-256 as devices show it, and the door's sites."""

    service: str
    certificate: str
    fingerprint: str
    sites: tuple[str, ...]


def _roots(lab: Lab, session: Session) -> list[Root]:
    """The root of each door of the file; those with one secret have one."""
    from provisioner.tls.authority import Authority, AuthorityError

    doors = [service for service in lab.resolved.services.values() if service.authority is not None]
    if not doors:
        raise InputError(
            f"Unable to show the root of lab {lab.name}: no service of the file has an authority of its own",
            resolution=f"Add a door{_example_of_door(lab.resolved.catalog)}.",
        )
    roots = []
    for door in doors:
        secret = _authority_secret(lab, door, session)
        try:
            authority = Authority(secret.reveal())
        except AuthorityError as error:
            raise InputError(f"Unable to make the root certificate of {door.address}: {error}") from error
        roots.append(Root(door.address, authority.root, authority.fingerprint, tuple(door.sites)))
    return roots


def _authority_secret(lab: Lab, door: ResolvedService, session: Session) -> Secret:
    """The secret with its value, for which the file's command is asked where nothing else gives it."""
    from provisioner.labfile.loader import SecretUse, looked_up

    secret: Secret = door.authority
    if not secret.is_known:
        option = next(reference.signed_by for reference in door.page.references.values() if reference.signed_by)
        secret = looked_up(lab.loaded, SecretUse(secret.name, (*door.path, option)))
        session.console.hide([secret])
    return secret


def _example_of_door(catalog: Catalog) -> str:
    """The first role whose sites have an authority, as words to be added; empty where there is none."""
    for role, page in catalog.offered.items():
        if any(reference.signed_by for reference in page.references.values()):
            return f", such as {role}"
    return ""


def _gateway(session: Session, lab: Lab) -> Gateway:
    found = answering(lab, partial(address_of, session, lab))
    if found.needs_root:
        words = f"{found.gateway.url} has a certificate of the lab's own authority: clients have to trust its root"
        session.console.emit(Diagnostic("note", words, resolution=f"provision show --ca {lab.loaded.path} prints it."))
    return found.gateway
