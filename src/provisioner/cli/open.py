"""The verb ``open``: a desktop on this screen, or the file that an RDP client opens."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.lab.opening import Lab
from provisioner.page.clients import Client, Desktop, certificate_word, client, rdp_text
from provisioner.services import knowledge_of
from provisioner.values.errors import ExitCode, InputError, PreflightError, ProvisionError
from provisioner.values.plain_data import Foreign

PROTOCOL = "rdp"
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")
FINGERPRINT = re.compile(r"(?:[0-9A-F]{2}:)+[0-9A-F]{2}")
STDERR = 2
FREERDP_FAILED = 128
"""FreeRDP's exit codes from here on are its own failures; below it the session's end is told."""


@click.command("open")
@verb
@lab_words(names=True, shape="[FILE] CONTAINER")
@option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.rdp", help="Write this file.")
def open(session: Session, words: Words, *, output: Path | None) -> int:  # noqa: A001  # a verb's function bears its name
    """Open the desktop of a container with this machine's RDP client.

    Where there is none that could ask for the password, in a window or on this terminal, or no screen, and with
    --output, a file is written that RDP clients open, on Windows as well. Nothing holds the password.
    """
    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    lab.check_targets(words.names)
    desktop = _desktop(session, lab, words)
    file = output or Path(f"{desktop.name}.rdp")
    has_screen = any(os.environ.get(name) for name in SCREENS) or sys.platform != "linux"
    found = client(desktop, str(file), _found, has_terminal=sys.stdin.isatty()) if has_screen and not output else None
    if found is None or str(file) in found.command:
        _write(file, rdp_text(desktop))
    content = {"address": desktop.address, "port": desktop.port, "user": desktop.user}
    where = f"{desktop.address}:{desktop.port}, user {desktop.user}"
    if found is None:
        said = f"Wrote {file}: open it with an RDP client ({where})."
        session.console.result(said, **content, file=str(file))
        return ExitCode.DONE
    if found.on_terminal and desktop.certificate:
        found = replace(found, command=(*found.command, certificate_word(_fingerprint(session, lab, desktop))))
    did = _started(found)
    session.console.result(f"{did} {Path(found.command[0]).name} for {where}.", **content, command=list(found.command))
    return ExitCode.DONE


def _found(name: str) -> str | None:
    """A program; on other systems than macOS ``open`` is another one."""
    return None if name == "open" and sys.platform != "darwin" else shutil.which(name)


def _fingerprint(session: Session, lab: Lab, desktop: Desktop) -> str:
    """What the client knows the server by, as the container itself tells it: nobody between them can."""
    from provisioner.cli.containers import Containers

    ask = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", desktop.certificate]
    told = Containers(session, lab).running(desktop.name).execute(desktop.name, ask)
    if told.returncode:
        raise PreflightError(
            f"Unable to read the certificate of {desktop.name}",
            details=Foreign.of_output(told.stderr),
            resolution=f"Run: provision up {lab.loaded.path} {desktop.name}",
        )
    found = FINGERPRINT.search(told.stdout.decode(errors="replace"))
    if found is None:
        raise PreflightError(
            f"Unable to read the certificate of {desktop.name}: openssl there says no fingerprint",
            resolution=f"Run: provision up {lab.loaded.path} {desktop.name}",
        )
    return found[0]


def _started(found: Client) -> str:
    """Start it, what it says apart from what we say; wait for one that uses the terminal. Says which was done."""
    if not found.on_terminal:
        subprocess.Popen(
            found.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return "Started"
    code = subprocess.run(found.command, stdout=STDERR, check=False).returncode
    if code < 0 or code >= FREERDP_FAILED:
        raise ProvisionError(
            f"Unable to use the desktop with {Path(found.command[0]).name}: it ended with {code}",
            resolution="See what it said above; provision verify tells whether the desktop works.",
        )
    return "Ended"


def _desktop(session: Session, lab: Lab, words: Words) -> Desktop:
    from provisioner.cli.gateways import address_of

    found = {
        service.container: service
        for service in lab.resolved.services.values()
        if service.page.protocol == PROTOCOL and (not words.names or service.container in words.names)
    }
    if len(found) != 1 or len(words.names) > 1:
        named = " ".join(words.names) or "the file"
        roles = [role for role, page in lab.resolved.catalog.offered.items() if page.protocol == PROTOCOL]
        raise InputError(
            f"Unable to open one desktop: {named} has {', '.join(found) or 'none'}",
            resolution=f"Name one container with service {' or '.join(roles)}: provision open FILE NAME",
        )
    ((name, service),) = found.items()
    address = address_of(session, lab, name, is_on_lan=service.is_on_lan)
    screen = knowledge_of(service.role).screen(service)
    return Desktop(
        name,
        address,
        service.port or 0,
        screen.user,
        clipboard=screen.clipboard,
        drives=screen.drives,
        certificate=screen.certificate,
    )


def _write(file: Path, text: str) -> None:
    try:
        file.write_bytes(text.encode())
    except OSError as error:
        raise InputError(f"Unable to write {file}", details=str(error)) from error
