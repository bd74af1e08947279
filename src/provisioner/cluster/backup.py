"""Saves what a repair may destroy on a node: there, and on the controller, where its sums are compared."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

from provisioner.cluster.facts import Guest
from provisioner.cluster.read_node import read_guests
from provisioner.cluster.record import Run
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign

SUMS = "SHA256SUMS"
DATABASE, TREE = "config.db", "etc-pve.tar"
FILES = (DATABASE, "config.db-wal", TREE, "corosync.conf", "authkey", "sshd_config")
"""What there is to save; a node may lack any of them but the tree."""
TIMEOUT_S = 180.0
_TOLD = re.compile(r"(hostname|name|rootfs|mp\d+|unused\d+|(ide|sata|scsi|virtio|efidisk|tpmstate)\d+):")
_SAVE = """
set -eu
umask 077
folder=$1; part=$1.part; database=/var/lib/pve-cluster/config.db
rm -rf -- "$part"; mkdir -p -- "$part"; cd -- "$part"
same() { [ ! -e "$1" ] && [ ! -e "$2" ] || cmp -s -- "$1" "$2"; }
copy() {  # pmxcfs keeps it open and writes: a copy counts when both files are as they were
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        rm -f config.db config.db-wal
        cp -- "$database" config.db
        [ ! -e "$database-wal" ] || cp -- "$database-wal" config.db-wal
        if same "$database" config.db && same "$database-wal" config.db-wal; then return; fi
    done
    echo "$database changes faster than it can be copied" >&2
    exit 1
}
if [ -e "$database" ]; then
    if ! command -v sqlite3 >/dev/null || ! timeout 60 sqlite3 -bail -readonly "$database" ".backup config.db"
    then copy; fi
fi
# 1: a file changed while it was read; the state of other nodes does so all the time
timeout 60 tar -C /etc --exclude=pve/.rrd --exclude=pve/.clusterlog --exclude=pve/.debug -cf etc-pve.tar pve ||
    [ $? -eq 1 ]
for one in /etc/corosync/corosync.conf /etc/corosync/authkey /etc/ssh/sshd_config; do
    [ ! -e "$one" ] || cp -- "$one" .
done
chmod 600 -- *
sha256sum -- * >SHA256SUMS
sync
rm -rf -- "$folder"
mv -- "$part" "$folder"
"""


def save(shell: Shell, run: Run) -> Path:
    """Save the node's cluster state into ``run.remote`` on it and ``run.backup`` here; files 0600, folders 0700.

    What was saved in this run before is replaced. ``ProviderError`` when anything of it could not be read or differs.
    """
    done = shell.run(["sh", "-c", _SAVE, "sh", run.remote], timeout_s=TIMEOUT_S)
    if done.returncode:
        raise _failed(shell, done.stderr)
    _fetch(shell, run)
    return run.backup


def has_copy(shell: Shell, run: Run) -> bool:
    """Return whether the node has its own copy of what that run saved: then it is the node that was saved."""
    done = shell.run(["cat", "--", f"{run.remote}/{SUMS}"], timeout_s=TIMEOUT_S)
    sums = run.backup / SUMS
    return not done.returncode and sums.is_file() and done.stdout == sums.read_bytes()


def _fetch(shell: Shell, run: Run) -> None:
    """Copy what the node saved into a folder of its own, and put that in the backup's place once it is whole."""
    part = run.folder / "backup.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    archive = part / "fetched.tar"
    with os.fdopen(os.open(archive, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as file:
        done = shell.run(["tar", "-C", run.remote, "-cf", "-", "."], stdout=file, timeout_s=TIMEOUT_S)
        if done.returncode:
            raise _failed(shell, done.stderr)
    unpack(archive, part)
    archive.unlink()
    require_whole(part)
    shutil.rmtree(run.backup, ignore_errors=True)
    part.rename(run.backup)


def unpack(archive: Path, folder: Path) -> None:
    """Take out of the archive the files that belong into a backup (0600), and nothing else that a node may send."""
    with tarfile.open(archive) as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            if not member.isfile() or name not in (*FILES, SUMS):
                continue
            source = tar.extractfile(member)
            target = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(target, "wb") as file:
                if source is not None:
                    shutil.copyfileobj(source, file)


def require_whole(folder: Path) -> None:
    """Raise ``ProviderError`` unless every file of the backup is as it was on the node."""
    sums = sums_of(folder)
    wrong = sorted(name for name, known in sums.items() if _digest(folder / name) != known)
    if not wrong and TREE not in sums:
        wrong = [TREE]
    if wrong:
        raise ProviderError(
            f"Unable to trust the backup in {folder}",
            details=f"Missing or not as on the node: {', '.join(wrong)}",
            resolution="Nothing was changed on the node. Is a disk full, there or here?",
        )


def saved_guests(folder: Path, node: str) -> tuple[Guest, ...]:
    """The guests of ``node`` as its own ``/etc/pve`` had them when it was saved."""
    lines: list[str] = []
    pattern = re.compile(rf"(?:\./)?pve/(nodes/{re.escape(node)}/(?:lxc|qemu-server)/\d+\.conf)")
    with tarfile.open(folder / TREE) as tar:
        for member in tar:
            match = pattern.fullmatch(member.name)
            if match is None or not member.isfile():
                continue
            source = tar.extractfile(member)
            content = source.read() if source is not None else b""
            lines.append(f"= /etc/pve/{match[1]} {hashlib.sha256(content).hexdigest()}")
            lines += _own_settings(content.decode(errors="replace"))
    return read_guests([node], lines)[node]


def _own_settings(text: str) -> list[str]:
    """Its name and disks, without those of its snapshots: what ``look.sh`` tells of a guest."""
    own = itertools.takewhile(lambda line: not line.startswith("["), text.splitlines())
    return [line for line in own if _TOLD.match(line)]


def sums_of(folder: Path) -> Mapping[str, str]:
    """The files of a backup with their sha256, as the node wrote them down."""
    file = folder / SUMS
    if not file.is_file():
        return {}
    sums = dict[str, str]()
    for line in file.read_text(encoding="utf-8").splitlines():
        known, marked_name = line.split(maxsplit=1)
        name = marked_name.removeprefix("*")
        if name in FILES:
            sums[name] = known
    return sums


def _digest(file: Path) -> str:
    """The file's sha256; empty where it is not there."""
    if not file.is_file():
        return ""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _failed(shell: Shell, said: bytes) -> ProviderError:
    """The error for a node that could not save."""
    return ProviderError(
        f"Unable to save the cluster's files of {shell.destination}",
        details=Foreign.of_output(said),
        resolution="Nothing was changed on it. A repair without a backup is not begun.",
    )
