"""How a Proxmox host is reached, and what is used there unless a container says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from provisioner.state import Secret


@dataclass(frozen=True, slots=True)
class Access:
    """What the file says of a host; at least one of ``token_secret`` and ``password`` is there.

    ``url``: https address of the API. ``user``: with its realm. ``ssh``: [USER@]HOST[:PORT], ``ssh_config`` a file
    for ``ssh -F``. ``ca``: who signed the server's certificate, ``fingerprint``: its sha256 in lower-case hexadecimal
    digits. ``node``, ``storage`` and ``templates`` are chosen by the driver when they are None.
    """

    url: str
    user: str
    token_id: str | None = None
    token_secret: Secret | None = None
    password: Secret | None = None
    ssh: str | None = None
    ssh_config: Path | None = None
    ca: Path | None = None
    fingerprint: str | None = None
    node: str | None = None
    storage: str | None = None
    templates: str | None = None
    bridge: str = "vmbr0"
    pool: str | None = None
