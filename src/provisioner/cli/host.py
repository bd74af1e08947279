"""The verbs of the machine: ``host prepare``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli.options import Words, complete_host_names, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError, PreflightError
from provisioner.values.events import ApplyComplete, ApplyProgress, ApplyStart

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card

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
        from provisioner.cli.trusting import enrol

        if words.names or only_print:
            raise InputError("Unable to use --trust with a host: it stands alone", resolution="Leave FILE HOST out.")
        return enrol(session, trust, address, others=others)
    if address is not None:
        raise InputError("Unable to use --address: it belongs to --trust", resolution="Give both, or neither.")
    if words.names or only_print:
        from provisioner.cli.proxmox_node import prepare_named

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
    session.console.say(_outcome(changed))
    return ExitCode.DONE


def cards_here() -> tuple[Card, ...]:
    """The graphics cards of this machine."""
    from provisioner.providers import provider_for

    return provider_for(TARGET, "incus").cards()


def _variables(given: dict[str, Any], cache: Path) -> dict[str, Any]:
    """The variables of role ``incus_host`` that follow from the options and the environment."""
    given["dir"] = given["dir"] or os.environ.get("INCUS_DIR")  # as Incus' own client finds its daemon
    given["users"] = given["users"] or tuple(filter(None, [os.environ.get("SUDO_USER")]))
    given["image_cache"] = str(cache / "images")
    return {f"incus_host_{name}": _plain(value) for name, value in given.items() if value}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _outcome(changed: int) -> str:
    return "This machine is ready." if changed else "This machine was ready: nothing was changed."
