"""The verb ``open``: a page in this machine's browser, a desktop on its screen, or the file for an RDP client."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click

from provisioner.cli.gateways import address_of
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.lab.opening import Lab
from provisioner.labfile.loader import place_of_secret
from provisioner.page.clients import Client, Desktop, Endpoint, certificate_word, client, endpoints_of, rdp_text
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService
from provisioner.values.errors import ExitCode, InputError, PreflightError, ProvisionError
from provisioner.values.plain_data import Foreign

SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")
BROWSERS = ("open", "xdg-open", "sensible-browser", "wslview")
"""Programs that open an address in the browser of the user's choice, in the order in which they are looked for."""
PAGE_SUFFIX = ".html"
FINGERPRINT = re.compile(r"(?:[0-9A-F]{2}:)+[0-9A-F]{2}")
STDERR = 2
FREERDP_FAILED = 128
"""FreeRDP's exit codes from here on are its own failures; below it the session's end is told."""


@click.command("open")
@verb
@lab_words(names=True, shape="[FILE] [CONTAINER|PAGE.html]")
@option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.rdp", help="Write this file.")
def open(session: Session, words: Words, *, output: Path | None) -> int:  # noqa: A001  # a verb's function bears its name
    """Open the page or the desktop of a container, or a page that report wrote: provision open chat.

    A page is opened in this machine's browser, a desktop with its RDP client. Without a screen the address of a page
    is printed, with the account and where its password lies. Of a desktop a file is written then that RDP clients
    open, on Windows as well; so it is with --output, and where no client could ask for the password. Nothing holds
    the password.
    """
    if len(words.names) == 1 and words.names[0].endswith(PAGE_SUFFIX):
        return _open_file(session, Path(words.names[0]))
    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    endpoint = _chosen(lab, words)
    if endpoint.kind == "desktop":
        return _open_desktop(session, lab, endpoint.service, output)
    if output is not None:
        raise click.UsageError("--output is for desktops.")
    service = endpoint.service
    address = "" if endpoint.site else address_of(session, lab, service.container, is_on_lan=service.is_on_lan)
    return _open_page(session, endpoint.url(address), endpoint.user, place_of_secret(lab.loaded, endpoint.secret).words)


def _open_file(session: Session, page: Path) -> int:
    """Open a page that lies on this machine; raises ``InputError`` where it does not."""
    if not page.is_file():
        raise InputError(
            f"Unable to open {page}: there is no such file", resolution=f"Run: provision report {page}   to write it"
        )
    return _open_page(session, page.resolve().as_uri())


def _open_page(session: Session, url: str, user: str = "", secret: str = "") -> int:
    """Open a page in a browser, or print where it is."""
    browsers = filter(None, map(_found, BROWSERS))
    browser = next(browsers, None) if _has_screen() else None
    sign_in = f" Sign in as {user}; the password: {secret}." if secret else ""
    if browser is None:
        session.console.result(f"{url}\n{sign_in.lstrip()}".rstrip(), address=url, user=user, secret=secret)
        return ExitCode.DONE
    command = (browser, url)
    _started(Client(command, on_terminal=False))
    session.console.result(f"Opened {url}.{sign_in}", address=url, user=user, secret=secret, command=list(command))
    return ExitCode.DONE


def _has_screen() -> bool:
    """Return True where this session has a screen on which programs can open windows."""
    return any(os.environ.get(name) for name in SCREENS) or sys.platform != "linux"


def _chosen(lab: Lab, words: Words) -> Endpoint:
    """The one page or desktop that is meant: of the only container that has one, or of the one that is named."""
    offered = [endpoint for endpoint in endpoints_of(lab.resolved) if endpoint.kind != "api"]
    wanted = list[Endpoint]()
    for endpoint in offered:
        names = (endpoint.service.container, endpoint.service.address)
        if not words.names or words.names[0] in names:
            wanted.append(endpoint)
    if len(wanted) == 1 and len(words.names) <= 1:
        return wanted[0]
    named = " ".join(words.names) or "the file"
    listed = ", ".join(endpoint.service.address for endpoint in wanted) or "none"
    others = ", ".join(endpoint.service.address for endpoint in offered) or "none"
    hint = f"Run: provision open {lab.loaded.path} NAME   The file has these pages and desktops: {others}."
    raise InputError(f"Unable to open one page or desktop: {named} has {listed}", resolution=hint)


def _open_desktop(session: Session, lab: Lab, service: ResolvedService, output: Path | None) -> int:
    """Start an RDP client that can ask for the password, or write the file that one opens."""
    desktop = _desktop(session, lab, service)
    file = output or Path(f"{desktop.name}.rdp")
    may_start = _has_screen() and output is None
    found = client(desktop, str(file), _found, has_terminal=sys.stdin.isatty()) if may_start else None
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


def _desktop(session: Session, lab: Lab, service: ResolvedService) -> Desktop:
    """Return the address of the desktop; raises ``PreflightError`` where its container does not run."""
    address = address_of(session, lab, service.container, is_on_lan=service.is_on_lan)
    screen = knowledge_of(service.role).screen(service)
    return Desktop(
        service.container,
        address,
        service.port or 0,
        screen.user,
        clipboard=screen.clipboard,
        drives=screen.drives,
        certificate=screen.certificate,
    )


def _write(file: Path, text: str) -> None:
    """Write the file with the line endings that its text has; raises ``InputError`` where that cannot be."""
    try:
        file.write_bytes(text.encode())
    except OSError as error:
        raise InputError(f"Unable to write {file}", details=str(error)) from error
