"""Containers that are frozen: the API calls them running, and nothing in them answers."""

from __future__ import annotations

from provisioner.providers.proxmox.shell import Shell
from provisioner.values.errors import ProviderError, UnavailableError

TIMEOUT_S = 10.0
FROZEN = b"FROZEN"


def is_frozen(shell: Shell, vmid: int) -> bool:
    """Whether the node says so; False where it cannot tell."""
    try:
        done = shell.run(["lxc-info", "-n", str(vmid), "-s", "-H"], timeout_s=TIMEOUT_S)
    except (ProviderError, UnavailableError):
        return False
    return done.stdout.strip() == FROZEN


def explained(shell: Shell, vmid: int, details: str) -> str:
    """Why nothing was answered, with what to do where the container is frozen."""
    if not is_frozen(shell, vmid):
        return details
    return f"{details}\nCT {vmid} is frozen: nothing in it runs. Resume it, on its node: lxc-unfreeze -n {vmid}"
