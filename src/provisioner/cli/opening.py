"""The verb ``open``: a desktop on this screen, or the file that an RDP client opens."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.errors import ExitCode, InputError
from provisioner.lab import Lab
from provisioner.report.rdp import Desktop, client_command, rdp_text
from provisioner.resolve.desktops import PROTOCOL
from provisioner.resolve.engines import port_of, services_of

SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")


@click.command("open")
@verb
@lab_words(names=True, shape="[FILE] CONTAINER")
@option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.rdp", help="Write this file.")
def open(session: Session, words: Words, *, output: Path | None) -> int:  # noqa: A001  # a verb's function bears its name
    """Open the desktop of a container with this machine's RDP client.

    Where there is none, or no screen, and with --output, a file is written that RDP clients open, on Windows as well.
    Nothing holds the password: the client asks for it.
    """
    lab = session.open_lab(words.existing(), needs_secrets=False)
    lab.check_targets(words.names)
    desktop = _desktop(session, lab, words)
    file = output or Path(f"{desktop.name}.rdp")
    has_screen = any(os.environ.get(name) for name in SCREENS) or sys.platform != "linux"
    command = client_command(desktop, str(file), shutil.which) if has_screen and output is None else None
    if command is None or str(file) in command:
        _write(file, rdp_text(desktop))
    content = {"address": desktop.address, "port": desktop.port, "user": desktop.user}
    if command is None:
        said = f"Wrote {file}: open it with an RDP client ({desktop.address}:{desktop.port}, user {desktop.user})."
        session.console.result(said, **content, file=str(file))
        return ExitCode.DONE
    subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    said = f"Started {Path(command[0]).name} for {desktop.address}:{desktop.port}, user {desktop.user}."
    session.console.result(said, **content, command=list(command))
    return ExitCode.DONE


def _desktop(session: Session, lab: Lab, words: Words) -> Desktop:
    from provisioner.cli.addresses import address_of

    found = {
        name: (service, page)
        for name, service, page in services_of(lab.spec, lab.catalog)
        if page.protocol == PROTOCOL and (not words.names or name in words.names)
    }
    if len(found) != 1 or len(words.names) > 1:
        named = " ".join(words.names) or "the file"
        raise InputError(
            f"Unable to open one desktop: {named} has {', '.join(found) or 'none'}",
            resolution="Name one container with service desktop: provision open FILE NAME",
        )
    ((name, (service, page)),) = found.items()
    port = port_of(service, page) or 0
    address = address_of(session, lab, name, is_on_lan=service.expose == "lan")
    return Desktop(name, address, port, str(service.options["user"]))


def _write(file: Path, text: str) -> None:
    try:
        file.write_bytes(text.encode())
    except OSError as error:
        raise InputError(f"Unable to write {file}", details=str(error)) from error
