"""``host prepare FILE HOST``: a node of Proxmox VE made ready for the lab of a file, or the commands for that."""

from __future__ import annotations

from provisioner.cli.options import Words
from provisioner.cli.session import Session
from provisioner.errors import ExitCode, InputError, PreflightError
from provisioner.events import Diagnostic
from provisioner.resolve import hosts_of
from provisioner.spec import ProxmoxHost


def prepare_named(session: Session, words: Words, *, only_print: bool, others: list[str]) -> int:
    """Prepare the one host that is named; ``others``: options that were given and belong to this machine."""
    from functools import partial

    from provisioner.cli.effects import access_of
    from provisioner.providers.proxmox import ProxmoxProvider
    from provisioner.workflow import preparing_node
    from provisioner.workflow.preparing_node import Way

    lab = session.open_lab(words.existing(), needs="none")
    name, hosts = words.names[0], hosts_of(lab.spec)
    page = hosts.get(name)
    if len(words.names) > 1 or page is None:
        unknown = " ".join(words.names)
        raise InputError(f"Unable to prepare {unknown}", resolution=f"Name one host of the file: {', '.join(hosts)}")
    if not isinstance(page, ProxmoxHost):
        raise InputError(f"Unable to prepare host {name}: it is no Proxmox", resolution="Leave its name out.")
    if others:
        raise InputError(f"Unable to use {', '.join(others)} for host {name}: that is for this machine's Incus")
    way = Way(lab, name, page, access_of(page, lab.loaded.path.parent))
    if only_print:
        made = preparing_node.commands(way)
        session.console.result("\n".join(made), host=name, commands=made)
        return ExitCode.DONE
    if page.ssh is None:
        raise PreflightError(
            f"Unable to prepare host {name}: the file gives no way into the node",
            resolution=f"Write ssh: root@NODE on its page; or type there what this prints: "
            f"provision host prepare {words.file} {name} --print",
        )
    count = preparing_node.prepare_node(
        way, partial(ProxmoxProvider, name), lambda text: session.console.emit(Diagnostic("note", text))
    )
    outcome = f"Host {name} is ready." if count else f"Host {name} was ready: nothing was changed."
    session.console.result(outcome, host=name, changed=count)
    return ExitCode.DONE
