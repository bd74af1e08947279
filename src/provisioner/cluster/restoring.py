"""Brings a node's cluster files back from the controller, in one go: while /etc/pve is empty, nobody can log in."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from provisioner.cluster.backup import SUMS, require_whole, sums_of
from provisioner.cluster.runs import REMOTE
from provisioner.providers.proxmox.shell import Shell
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign

FILES = ("config.db", "config.db-wal", "corosync.conf", "authkey")
TIMEOUT_S = 180.0

_RESTORE = r"""
set -eu
umask 077
trap '' HUP PIPE  # once it has begun it comes to its end, also when nobody listens any more
folder=$1
rm -rf -- "$folder"; mkdir -p -- "$folder"; cd -- "$folder"
tar -xf -
sha256sum --quiet -c SHA256SUMS >&2
keys=/root/.ssh/authorized_keys; also=${keys}2; now=$also.new
others() { [ ! -e "$also" ] || sed '/^# BEGIN of a repair by provision$/,/^# END of a repair by provision$/d' "$also"; }
if [ -s "$keys" ]; then  # they are a link into /etc/pve: a connection that breaks now could not come back
    { others; echo '# BEGIN of a repair by provision'; awk 1 "$keys"; echo '# END of a repair by provision'; } >"$now"
    mv -- "$now" "$also"
fi
put() { [ ! -e "$1" ] || install -o root -g root -m "$3" -- "$1" "$2"; }
(
    systemctl stop corosync
    systemctl stop pve-cluster
    trap 'systemctl start pve-cluster' EXIT
    database=/var/lib/pve-cluster/config.db
    if [ -e config.db ]; then
        rm -f -- "$database-wal" "$database-shm"
        put config.db "$database" 600
        put config.db-wal "$database-wal" 600
    fi
    put corosync.conf /etc/corosync/corosync.conf 644
    put authkey /etc/corosync/authkey 400
    sync
    trap - EXIT
    systemctl reset-failed corosync pve-cluster || :
    systemctl start pve-cluster
    systemctl start corosync || :  # a node that is behind has a corosync that ends again
    if [ -s "$keys" ]; then
        others >"$now"
        if [ -s "$now" ]; then mv -- "$now" "$also"; else rm -f -- "$now" "$also"; fi
    fi
) >log 2>&1 &
wait "$!" || { cat log >&2; exit 1; }
cat log
for one in pve-cluster corosync; do printf '%s is %s\n' "$one" "$(systemctl is-active "$one" || :)"; done
cd /; rm -rf -- "$folder"
"""


def put_back(shell: Shell, backup: Path, name: str) -> str:
    """Replace the node's files by those of the backup; what it said of its services. ``ProviderError``: it failed."""
    require_whole(backup)
    archive = _archive(backup)
    done = shell.run(["sh", "-c", _RESTORE, "sh", f"{REMOTE}/{name}"], stdin=archive, timeout_s=TIMEOUT_S)
    if done.returncode:
        raise ProviderError(
            f"Unable to bring back the cluster files of {shell.destination}",
            details=Foreign.of_output(done.stderr),
            resolution="The same command may be run again; the backup is as it was.",
        )
    return done.stdout.decode(errors="replace").strip()


def _archive(backup: Path) -> bytes:
    """What goes to the node: never more than it gets back, and the sums of just that."""
    contents = dict[str, bytes]()
    sums = ""
    for name, known in sums_of(backup).items():
        if name in FILES:
            contents[name] = (backup / name).read_bytes()
            sums += f"{known}  {name}\n"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, SUMS, sums.encode())
        for name, content in contents.items():
            _add(tar, name, content)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o600
    tar.addfile(info, io.BytesIO(content))
