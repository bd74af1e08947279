"""``host prepare FILE HOST``: a node of Proxmox VE made ready for the lab of a file, or the commands for that."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from provisioner.cli.options import Words
from provisioner.cli.session import Session
from provisioner.labfile.hosts import ProxmoxHost
from provisioner.values.errors import ExitCode, InputError, PreflightError
from provisioner.values.events import Diagnostic

if TYPE_CHECKING:
    from provisioner.reconcile.prepare import Way

COMMAND = "the command of secrets:"


def prepare_named(session: Session, words: Words, *, only_print: bool, others: list[str]) -> int:
    """Prepare the one host that is named; ``others``: options that were given and belong to this machine."""
    from functools import partial

    from provisioner.providers.proxmox import ProxmoxProvider
    from provisioner.reconcile import prepare

    way = _way(session, words)
    if others:
        raise InputError(f"Unable to use {', '.join(others)} for host {way.name}: that is for this machine's Incus")
    if only_print:
        made = prepare.commands(way)
        nothing = f"Nothing is to be typed on the node: {way.page.user} may do everything there."
        session.console.result("\n".join(made) or nothing, host=way.name, commands=made)
        return ExitCode.DONE
    if way.page.ssh is None:
        raise PreflightError(
            f"Unable to prepare host {way.name}: the file gives no way into the node",
            resolution=f"Write ssh: root@NODE on its page; or type there what this prints: "
            f"provision host prepare {words.file} {way.name} --print",
        )
    way = _with_secrets(way)
    looked_up = (way.access.token_secret, way.access.password)
    session.console.hide([*way.lab.loaded.secrets.values(), *filter(None, looked_up)])
    count = prepare.prepare_node(
        way, partial(ProxmoxProvider, way.name), lambda text: session.console.emit(Diagnostic("note", text))
    )
    outcome = f"Host {way.name} is ready." if count else f"Host {way.name} was ready: nothing was changed."
    session.console.result(outcome, host=way.name, changed=count)
    return ExitCode.DONE


def _way(session: Session, words: Words) -> Way:
    """The host that is named; ``InputError`` where that is no Proxmox of the file."""
    from provisioner.cli.effects import access_of
    from provisioner.reconcile import prepare

    lab = session.open_lab(words.existing(), needs="none")
    name, hosts = " ".join(words.names), lab.resolved.hosts
    page = hosts.get(name)
    if page is None:
        unknown = name or "a host without its name"
        raise InputError(f"Unable to prepare {unknown}", resolution=f"Name one host of the file: {', '.join(hosts)}")
    if not isinstance(page, ProxmoxHost):
        raise InputError(f"Unable to prepare host {name}: it is no Proxmox", resolution="Leave its name out.")
    return prepare.Way(lab, name, page, access_of(page, lab.loaded.path.parent))


def _with_secrets(way: Way) -> Way:
    """The same with what logs in, for which the file's command is run; only a token may be one that is made yet."""
    from provisioner.labfile.loader import SecretUse, environment_name, looked_up

    loaded, password, token = way.lab.loaded, way.access.password, way.access.token_secret
    if password is not None and not password.is_known:
        password = looked_up(loaded, SecretUse(password.name, ("hosts", way.name, "password")))
        way = replace(way, access=replace(way.access, password=password))
    if token is None:
        return way
    if os.environ.get(environment_name(token.name)):
        return replace(way, giver=environment_name(token.name))
    if token.is_known or loaded.spec.secrets is None:
        return way
    try:
        token = looked_up(loaded, SecretUse(token.name, ("hosts", way.name, "token", "secret")))
    except InputError as error:
        return replace(way, giver=COMMAND, said=error.details)
    return replace(way, giver=COMMAND, access=replace(way.access, token_secret=token))
