"""What Incus says when something fails, in our words: what failed, what it said, what to do now."""

from __future__ import annotations

import grp
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

from provisioner.providers.incus.endpoint import Endpoint
from provisioner.providers.incus.wire import UnreachableError, WireError
from provisioner.values.errors import ProviderError, UnavailableError

_UNREACHED = "Unable to reach Incus at {}"
_PREPARE = "Run: sudo provision host prepare"
_NAME_TAKEN = ("unique constraint failed", "already exists")
_RESOLUTIONS = {
    "no space left on device": "Storage pool {pool} is full. See: incus storage info {pool}; grow it with: "
    "incus storage set {pool} size=<more>GiB; or delete what is not needed.",
    "disk quota exceeded": "Its disk is too small, or storage pool {pool} is full. See: incus storage info {pool}",
    "unique constraint failed": "The name is taken: choose another one, or look who has it: incus list",
    "already exists": "The name is taken: choose another one, or look who has it: incus list",
    "address already in use": "Another program on this host listens on that port: give another port, or stop it.",
    "volume is still in use": "Another run on this host makes it, or a container has it mounted: run this again when "
    "that has ended.",
    "cannot be restored due to subsequent": "This storage goes back to the newest snapshot only: delete the newer ones "
    "of this container first, or move it to a btrfs pool.",
    "setting cgroup item": "It uses more than that now: stop what uses it, or stop the container, and run this again.",
    "failed to detect requested gpu": "The host has no such card any more. See which it has: provision doctor",
    "invalid pci address": "The host has no such card any more. See which it has: provision doctor",
    "nvidia container tools couldn't be found": "Install NVIDIA's container toolkit on the host: "
    "sudo provision host prepare --gpu",
    "required device path doesn't exist": "The host's driver has not made it: load it (modprobe amdgpu), and see: "
    "provision doctor",
    "setgid/uid": "This user has no subordinate ids. " + _PREPARE,
    "newuidmap": "Root has no subordinate ids. " + _PREPARE,
}


@contextmanager
def worded(message: str, endpoint: Endpoint, pool: Callable[[], str]) -> Iterator[None]:
    """Turn whatever Incus or its socket answers into a ``ProviderError`` that begins with ``message``."""
    try:
        yield
    except (WireError, OSError, HTTPException) as error:
        if isinstance(error, UnreachableError) or _lets_nothing(endpoint, error):
            why = unavailable(endpoint, error)
            raise ProviderError(message, details=f"{why.message}: {why.details}", resolution=why.resolution) from error
        raise ProviderError(message, details=_words(error), resolution=_resolution(error, pool)) from error


def is_name_clash(error: WireError) -> bool:
    """Whether a creation failed because somebody else has the name (Incus shows its database's words)."""
    return any(words in str(error).lower() for words in _NAME_TAKEN)


@contextmanager
def reachable(endpoint: Endpoint) -> Iterator[None]:
    """Turn a socket that is missing, refused or forbidden into an ``UnavailableError`` that says what to do."""
    try:
        yield
    except (WireError, OSError, HTTPException) as error:
        raise unavailable(endpoint, error) from error


def unavailable(endpoint: Endpoint, error: Exception) -> UnavailableError:
    """Why Incus at ``endpoint`` does not answer this user, and what to do."""
    message = _UNREACHED.format(endpoint)
    if endpoint.is_remote:
        from provisioner.providers.incus import distrust

        details, resolution = distrust.reason(endpoint, error)
        return UnavailableError(message, details=details, resolution=resolution)
    socket = Path(endpoint.address)
    if not socket.parent.is_dir() or (os.access(socket.parent, os.X_OK) and not socket.exists()):
        return UnavailableError(message, details="There is no such socket.", resolution=_PREPARE)
    if not os.access(socket, os.W_OK):
        group = _group(socket)
        resolution = f"Run: sudo usermod -aG {group} $USER, then log in again"
        return UnavailableError(message, details=f"This user is not in group {group}.", resolution=resolution)
    return UnavailableError(message, details=_words(error), resolution=f"Is incusd running? {_PREPARE}")


def require_trust(endpoint: Endpoint, server: Mapping[str, Any]) -> None:
    """Raise ``UnavailableError`` when ``server``, what an Incus says of itself, does not take our certificate."""
    if server["auth"] == "trusted":
        return
    from provisioner.providers.incus import distrust

    details, resolution = distrust.untrusted(endpoint)
    raise UnavailableError(_UNREACHED.format(endpoint), details=details, resolution=resolution)


def _lets_nothing(endpoint: Endpoint, error: Exception) -> bool:
    if not endpoint.is_remote:
        return False
    from provisioner.providers.incus import distrust

    return distrust.is_refusal(error)


def _group(socket: Path) -> str:
    try:
        return grp.getgrgid(socket.stat().st_gid).gr_name
    except (OSError, KeyError):
        return "incus-admin"


def _words(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def _resolution(error: Exception, pool: Callable[[], str]) -> str:
    text = str(error).lower()
    words = next((words for part, words in _RESOLUTIONS.items() if part in text), "")
    return words.format(pool=pool()) if "{pool}" in words else words
