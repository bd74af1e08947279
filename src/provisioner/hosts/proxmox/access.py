"""How a Proxmox host is reached, and what is used there unless a container says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from provisioner.values.state import Secret

ROOT = "root@pam"
ROLE = "Provisioner"
ROLE_PRIVILEGES = frozenset(
    "VM.Allocate VM.Audit VM.Clone VM.Config.CPU VM.Config.Disk VM.Config.Memory VM.Config.Network VM.Config.Options "  # noqa: SIM905
    "VM.PowerMgmt VM.Snapshot Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit Pool.Allocate "
    "Pool.Audit SDN.Use".split()
)
"""What is needed on the paths below ``/`` on which we work."""
SSH_CONFIG = "PROVISION_SSH_CONFIG"
"""The variable that names the file that ssh reads instead of the user's own configuration."""


@dataclass(frozen=True, slots=True)
class Direct:
    """The containers that Ansible reaches by an ssh of their own instead of ``pct exec`` on their node.

    ``ways``: ``ssh`` or ``jump`` (through the node), by their names. ``key``: a private key; without one it is made in
    ``folder``, where what is known of their host keys lies, too.
    """

    folder: Path
    ways: Mapping[str, str]
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """What the file says of a host; at least one of ``token_secret`` and ``password`` is there.

    ``url``: https address of the API. ``user``: with its realm. ``ssh``: [USER@]HOST[:PORT], ``ssh_config`` a file
    for ``ssh -F``. ``ca``: who signed the server's certificate, ``fingerprint``: its sha256 in lower-case hexadecimal
    digits. ``node``, ``storage`` and ``templates`` are chosen by the driver when they are None. ``direct``: which
    containers' own sshd is used.
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
    direct: Direct | None = None
