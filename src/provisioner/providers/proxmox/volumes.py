"""Artifact volumes on Proxmox: a packed folder on the node, of which each consumer has an unpacked copy on a disk.

A disk that several containers share would have to be a folder of the host, and a container with one of those can take
no snapshots. A volume is ``<ROOT>/<name>/``: ``digest``, ``content.tar.zst`` (``.gz`` where there is no zstd) and,
written last, ``ready`` with the bytes that its files take. Only programs that every node has are used, as root.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from provisioner.providers.proxmox import volume_scripts as scripts
from provisioner.providers.proxmox.inside import blocks, whole
from provisioner.providers.proxmox.pct import plain
from provisioner.providers.proxmox.shell import Shell
from provisioner.values import limits
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Execution

ROOT = "/var/lib/provisioner/volumes"
FILLED = ".provisioner-volume"
"""Lies at the root of a copy and says what it is a copy of, so that a rollback takes that back, too."""
SLACK_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def ready(shell: Shell) -> frozenset[str]:
    """The names of the volumes whose content is complete."""
    done = _run(shell, "Unable to list the artifact volumes", scripts.READY, ROOT)
    return frozenset(done.stdout.decode(errors="replace").split())


def create(shell: Shell, volume: str, digest: str) -> None:
    """Make the volume empty and not ready; one of that name that is not ready is replaced."""
    _run(shell, f"Unable to create volume {volume}", scripts.CREATE, _folder(volume), digest)


def mark_ready(shell: Shell, volume: str, builder: tuple[int, str] | None = None) -> None:
    """Pack what a builder has made, and say that it is complete.

    ``builder``: the number of a stopped container and the folder in it; without one the volume stays empty.
    """
    vmid, path = builder or ("", "")
    _run(shell, f"Unable to mark volume {volume}", scripts.PACK, _folder(volume), str(vmid), path, FILLED)


def size(shell: Shell, volume: str) -> int:
    """The bytes that a disk must have to hold a copy of it; ``ProviderError`` when there is no such volume."""
    done = _run(shell, f"Unable to use volume {volume}", scripts.SIZE, _folder(volume))
    files = int(done.stdout)
    return files + files // 16 + SLACK_BYTES


def fill(shell: Shell, vmid: int, volume: str, path: str) -> bool:
    """Make the disk at ``path`` of a running container a copy of the volume; whether that was not so before.

    Everything else on that disk is removed. A volume that is not ready leaves the disk as it is.
    """
    what = f"Unable to fill {path} of container {vmid} with volume {volume}"
    inside = plain(vmid, ["sh", "-c", scripts.UNPACK, "sh", path, FILLED])
    return _run(shell, what, scripts.FILL, _folder(volume), *inside).stdout.strip() == b"filled"


def open_folder(shell: Shell, vmid: int, path: str) -> None:
    """Make the plain folder of a running builder in which a volume's content grows."""
    what = f"Unable to make {path} in container {vmid}"
    done = shell.run(plain(vmid, ["mkdir", "-p", "-m", "0755", "--", path]))
    _require(done, what)


def export(shell: Shell, volume: str, target: Path) -> None:
    """Write the volume's content as one compressed file; ``target`` appears when it is whole."""
    with whole(target) as file:
        _run(shell, f"Unable to export volume {volume}", scripts.EXPORT, _folder(volume), stdout=file)


def restore(shell: Shell, volume: str, digest: str, source: Path) -> None:
    """Make the volume from an exported file and mark it ready; one of that name is replaced."""
    arguments = (_folder(volume), digest, str(source.stat().st_size))
    _run(shell, f"Unable to import volume {volume} from {source}", scripts.IMPORT, *arguments, stdin=blocks(source))


def delete(shell: Shell, volume: str) -> None:
    """Delete the volume; a missing one is success. Copies of it stay; the caller knows whether there are any."""
    _run(shell, f"Unable to delete volume {volume}", scripts.DELETE, _folder(volume))


def _folder(volume: str) -> str:
    if not _NAME.fullmatch(volume):
        raise ProviderError(f"Unable to use volume {volume!r}", details="That is no name of a volume.")
    return f"{ROOT}/{volume}"


def _run(
    shell: Shell,
    what: str,
    script: str,
    *arguments: str,
    stdin: bytes | Iterable[bytes] = b"",
    stdout: IO[bytes] | None = None,
) -> Execution:
    command = ["bash", "-c", script, "bash", *arguments]
    limit = limits.OUTPUT_BYTES if stdout is None else limits.FILE_BYTES
    done = shell.run(command, stdin=stdin, stdout=stdout, timeout_s=limits.LONGEST_S, limit=limit)
    _require(done, what)
    return done


def _require(done: Execution, what: str) -> None:
    if done.returncode:
        details = Foreign.of_output(done.stderr) or f"It ended with {done.returncode}."
        raise ProviderError(what, details=details)
