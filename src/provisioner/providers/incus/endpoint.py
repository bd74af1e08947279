"""The address of an Incus, and the certificates by which it and provision know each other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

PORT = 8443
"""The port on which Incus listens by default."""
_HTTPS = "https://"
_VARIABLE = "provision_"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A unix socket's path, or the https address of an Incus elsewhere and what both sides show each other there.

    ``cert`` and ``key`` are files of ours. ``fingerprint`` is the sha256 of its certificate; without one, an authority
    of this machine must have signed that.
    """

    address: str
    cert: str = ""
    key: str = ""
    fingerprint: str = ""

    def __str__(self) -> str:
        return self.address

    @property
    def is_remote(self) -> bool:
        """Whether it is on another machine, as far as we know."""
        return self.address.startswith(_HTTPS)

    @property
    def place(self) -> tuple[str, int]:
        """Name or address, and port, of an Incus elsewhere."""
        parts = urlsplit(self.address)
        return parts.hostname or "", parts.port or PORT

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which our connection plugin finds it; files are named, never what is in them."""
        given = {"endpoint": self.address, "cert": self.cert, "key": self.key, "fingerprint": self.fingerprint}
        return {f"{_VARIABLE}{name}": value for name, value in given.items() if value}

    def prepare(self, options: str = "") -> str:
        """The command that prepares the machine of this Incus, said to somebody who sits here."""
        command = f"sudo provision host prepare{options}"
        return f"On the machine of that Incus, run: {command}" if self.is_remote else f"Run: {command}"


def local_endpoint() -> Endpoint:
    """This machine's socket: ``$INCUS_SOCKET``, else ``unix.socket`` in ``$INCUS_DIR``, else in Incus' usual folder."""
    folder = os.environ.get("INCUS_DIR") or "/var/lib/incus"
    return Endpoint(os.environ.get("INCUS_SOCKET") or str(Path(folder) / "unix.socket"))


def endpoint_in(variables: Mapping[str, str | None]) -> Endpoint:
    """The endpoint of such ``variables``, by the names of its fields; this machine's where they hold none."""
    address = variables.get("endpoint")
    if not address:
        return local_endpoint()
    return Endpoint(
        address,
        cert=variables.get("cert") or "",
        key=variables.get("key") or "",
        fingerprint=variables.get("fingerprint") or "",
    )
