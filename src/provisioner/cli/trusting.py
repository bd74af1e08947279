"""``host prepare --trust``: an Incus elsewhere learns to trust this user, and what to write into the file is said."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError, PreflightError
from provisioner.values.state import Secret

if TYPE_CHECKING:
    from provisioner.providers.incus.endpoint import Endpoint
    from provisioner.providers.incus.trust import Token

STANDARD_INPUT = "-"
"""In place of a token, which others on this machine could see among the arguments of processes."""
MAX_TOKEN_CHARACTERS = 65536


def enrol(session: Session, text: str, address: str | None, *, others: Sequence[str]) -> int:
    """Have this user's client certificate trusted by the Incus that made the token ``text``."""
    from provisioner.cli.effects import client_pair
    from provisioner.labfile.fields import https_address
    from provisioner.providers.incus import trust

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

    from provisioner.providers.incus import trust, wire

    try:
        return trust.enrol(token, pair, address)
    except (wire.WireError, OSError, HTTPException) as error:
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
