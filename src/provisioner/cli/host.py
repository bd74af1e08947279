"""The verb ``host prepare``: this machine, a node of Proxmox VE, or an Incus elsewhere is made ready."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli.options import Words, complete_host_names, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.labfile.hosts import ProxmoxHost
from provisioner.values.errors import ExitCode, InputError, PreflightError
from provisioner.values.events import ApplyComplete, ApplyProgress, ApplyStart, Diagnostic
from provisioner.values.state import Secret

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card
    from provisioner.hosts.base import Provider
    from provisioner.hosts.incus.api import Endpoint
    from provisioner.hosts.incus.trust import Token
    from provisioner.hosts.proxmox.prepare_for_lab import Way

# `host prepare`: this machine, and the verb itself.

TARGET = "this machine"
ACTION = "prepare"
PROXMOX = Path("/usr/bin/pct")
"""What only a Proxmox node has, whose containers are its own."""


@click.group()
def host() -> None:
    """Prepare the machine that containers live on."""


@host.command()
@verb
@option("--gpu", is_flag=True, help="Have graphics cards ready for containers, too; on a Proxmox node only that.")
@option("--image", "images", multiple=True, metavar="NAME", help="An image to have, such as debian/13 (repeatable).")
@option("--image-server", metavar="URL", help="Where images come from when it answers.")
@option("--pool-driver", type=click.Choice(["btrfs", "dir"]), help="Kind of storage pool to make.")
@option("--pool-size", metavar="SIZE", help="Most that the storage pool may take, such as 30GiB.")
@option("--bridge", metavar="NAME", help="Bridge to make for the containers.")
@option("--subnet", metavar="ADDRESS/BITS", help="Address and prefix of that bridge.")
@option("--user", "users", multiple=True, metavar="NAME", help="Account that may use Incus without root (repeatable).")
@option("--state-dir", "dir", metavar="PATH", help="Folder of the daemon's state; another one makes a second daemon.")
@option("--print", "only_print", is_flag=True, help="With FILE HOST: print what to type on that node, and do nothing.")
@option("--trust", metavar="TOKEN", help="Be trusted by an Incus elsewhere; - asks for the token or reads it. Alone.")
@option("--address", metavar="URL", help="With --trust: where that Incus is, if not where its token says.")
@lab_words(names=True, shape="[FILE HOST]", complete=complete_host_names)
def prepare(
    session: Session,
    words: Words,
    *,
    gpu: bool,
    only_print: bool,
    trust: str | None,
    address: str | None,
    **given: Any,
) -> int:
    """Install and set up Incus: storage, network, images; with --gpu graphics cards, too. Needs root.

    Adds only what is absent; the second run changes nothing. What is not given has the role's default.

    With FILE HOST, a Proxmox node of that file: over ssh a role, a user and a token with no more rights than are
    needed, and the templates of the file's containers. The token's secret is written into secrets.env.

    With --trust nothing of that: a client certificate is made where there is none, and an Incus elsewhere learns to
    trust it. Its token is what `incus config trust add NAME` prints there. Needs no root.
    """
    others = [name for name, value in {"gpu": gpu, **given}.items() if value]
    if trust is not None:
        if words.names or only_print:
            raise InputError("Unable to use --trust with a host: it stands alone", resolution="Leave FILE HOST out.")
        return enrol(session, trust, address, others=others)
    if address is not None:
        raise InputError("Unable to use --address: it belongs to --trust", resolution="Give both, or neither.")
    if words.names or only_print:
        return prepare_named(session, words, only_print=only_print, others=others)
    return _prepare_this_machine(session, gpu=gpu, given=given)


def _prepare_this_machine(session: Session, *, gpu: bool, given: dict[str, Any]) -> int:
    if os.geteuid() != 0:
        raise PreflightError(
            "Unable to prepare this machine: it takes root",
            resolution="Run: sudo provision host prepare --user $USER",
        )
    from functools import partial
    from time import monotonic

    from provisioner.reconcile import prepare
    from provisioner.reconcile.runner import TaskEvent
    from provisioner.values import paths

    def on_task(event: TaskEvent) -> None:
        if event.status == "start":
            session.console.emit(ApplyProgress(TARGET, event.task))

    if gpu:
        prepare.require_cards(cards_here())
    run_playbook = partial(session.playbooks(paths.cache() / "host"), on_task=on_task)
    steps = [partial(prepare.prepare_cards, run_playbook)] if gpu else []
    if not (gpu and PROXMOX.exists()):
        steps.insert(0, partial(prepare.prepare_host, _variables(given, paths.cache()), run_playbook))
    started, changed = monotonic(), 0
    session.console.emit(ApplyStart(TARGET, ACTION))
    for step in steps:
        result = step()
        result.raise_for_failure("prepare this machine")
        changed += sum(result.changed.values())
    session.console.emit(ApplyComplete(TARGET, ACTION, monotonic() - started))
    outcome = "This machine is ready." if changed else "This machine was ready: nothing was changed."
    session.console.say(outcome)
    return ExitCode.DONE


def here() -> Provider:
    """This machine as a host of containers, whether it can be one yet or not."""
    from provisioner.hosts import provider_for

    return provider_for(TARGET, "incus")


def cards_here() -> tuple[Card, ...]:
    """The graphics cards of this machine."""
    return here().cards.read()


def _variables(given: dict[str, Any], cache: Path) -> dict[str, Any]:
    """The variables of role ``incus_host`` that follow from the options and the environment."""
    given["dir"] = given["dir"] or os.environ.get("INCUS_DIR")  # as Incus' own client finds its daemon
    given["users"] = given["users"] or tuple(filter(None, [os.environ.get("SUDO_USER")]))
    given["image_cache"] = str(cache / "images")
    said = {f"incus_host_{name}": value for name, value in given.items() if value}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in said.items()}


# `host prepare FILE HOST`: a node of Proxmox VE is made ready for the lab of a file, or the commands are printed.

COMMAND = "the command of secrets:"


def prepare_named(session: Session, words: Words, *, only_print: bool, others: list[str]) -> int:
    """Prepare the one host that is named; ``others``: options that were given and belong to this machine."""
    from functools import partial

    from provisioner.hosts.proxmox import ProxmoxProvider, prepare_for_lab

    way = _way(session, words)
    if others:
        raise InputError(f"Unable to use {', '.join(others)} for host {way.name}: that is for this machine's Incus")
    if only_print:
        made = prepare_for_lab.commands(way)
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
    count = prepare_for_lab.prepare_node(
        way, partial(ProxmoxProvider, way.name), lambda text: session.console.emit(Diagnostic("note", text))
    )
    outcome = f"Host {way.name} is ready." if count else f"Host {way.name} was ready: nothing was changed."
    session.console.result(outcome, host=way.name, changed=count)
    return ExitCode.DONE


def _way(session: Session, words: Words) -> Way:
    """The host that is named; ``InputError`` where that is no Proxmox of the file."""
    from provisioner.hosts.proxmox import access_of
    from provisioner.hosts.proxmox.prepare_for_lab import Way

    lab = session.open_lab(words.existing(), needs="none")
    name, hosts = " ".join(words.names), lab.resolved.hosts
    page = hosts.get(name)
    if page is None:
        unknown = name or "a host without its name"
        raise InputError(f"Unable to prepare {unknown}", resolution=f"Name one host of the file: {', '.join(hosts)}")
    if not isinstance(page, ProxmoxHost):
        raise InputError(f"Unable to prepare host {name}: it is no Proxmox", resolution="Leave its name out.")
    return Way(lab, name, page, access_of(page, lab.loaded.path.parent))


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


# `host prepare --trust`: an Incus elsewhere learns to trust this user, and what to write into the file is said.

STANDARD_INPUT = "-"
"""In place of a token, which others on this machine could see among the arguments of processes."""
MAX_TOKEN_CHARACTERS = 65536


def enrol(session: Session, text: str, address: str | None, *, others: Sequence[str]) -> int:
    """Have this user's client certificate trusted by the Incus that made the token ``text``."""
    from provisioner.hosts.incus import client_pair, trust
    from provisioner.labfile.fields import https_address

    if others:
        names = ", ".join(sorted(others))
        raise InputError(f"Unable to use --trust together with {names}", resolution="Run host prepare twice.")
    if address is not None:
        try:
            https_address(address)
        except ValueError as error:
            raise InputError("Unable to use --address", details=str(error)) from error
    token = trust.token_in(_token() if text == STANDARD_INPUT else text)
    session.console.hide([Secret("token", token.text)])
    endpoint, server = _enrolled(token, client_pair(), (address or "").rstrip("/"))
    environment = server["environment"]
    name = label(str(environment["server_name"]))
    line = f'{name}: {{ incus: "{endpoint}", fingerprint: "{endpoint.fingerprint}" }}'
    said = f"Incus {environment['server_version']} at {endpoint} trusts {endpoint.cert}."
    text = f"{said} Write under `hosts`:\n\n  {line}\n"
    session.console.result(text, incus=str(endpoint), fingerprint=endpoint.fingerprint, cert=endpoint.cert, name=name)
    return ExitCode.DONE


def _enrolled(token: Token, pair: tuple[Path, Path], address: str) -> tuple[Endpoint, dict[str, Any]]:
    """Where that Incus is, and what it says of itself; else ``PreflightError``, also where a file or the line fails."""
    from http.client import HTTPException

    from provisioner.hosts.incus import api, trust

    try:
        return trust.enrol(token, pair, address)
    except (api.WireError, OSError, HTTPException) as error:
        file = getattr(error, "filename", None)
        again = "Run the same command again: where that Incus trusts this user by now, that is success."
        raise PreflightError(
            f"Unable to make the client certificate {pair[0]}" if file else "Unable to be trusted by that Incus",
            details=str(error) or type(error).__name__,
            resolution=f"See to {file}: this user must be able to write there." if file else again,
        ) from error


def _token() -> str:
    """What is typed, unseen, or what comes by standard input."""
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("Trust token: ")
    return sys.stdin.read(MAX_TOKEN_CHARACTERS)


def label(name: str) -> str:
    """The server's own name as a host of the file may be called."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-")[:63].strip("-").lstrip("0123456789-") or "box"
