"""Artifact volumes on Proxmox: a packed folder on the node, of which each consumer has an unpacked copy on a disk.

A disk that several containers share would have to be a folder of the host, and a container with one of those can take
no snapshots. A volume is ``<ROOT>/<name>/``: ``digest``, ``content.tar.zst`` (``.gz`` where there is no zstd) and,
written last, ``ready`` with the bytes that its files take. Only programs that every node has are used, as root.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, ClassVar

from provisioner.hosts import base
from provisioner.hosts.proxmox import marks, numbers
from provisioner.hosts.proxmox.execute import file_blocks, plain_call, whole_file
from provisioner.hosts.proxmox.guest import Guest
from provisioner.hosts.proxmox.host import ProxmoxHost, worded
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.values import limits
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Execution, Instance, Status

ROOT = "/var/lib/provisioner/volumes"
FILLED = ".provisioner-volume"
"""Lies at the root of a copy and says what it is a copy of, so that a rollback takes that back, too."""
SLACK_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def ready(shell: Shell) -> frozenset[str]:
    """The names of the volumes whose content is complete."""
    done = _run(shell, "Unable to list the artifact volumes", READY_SCRIPT, ROOT)
    return frozenset(done.stdout.decode(errors="replace").split())


class Volumes(base.Volumes):
    """The volumes of one node."""

    forms: ClassVar[tuple[str, ...]] = ("pve.tar", "tar")
    """What an Incus has exported is read, too."""

    _host: ProxmoxHost

    @property
    def store(self) -> str:
        """The node: all nodes of its cluster have the same locks."""
        return self._host.client.node

    def ready(self) -> frozenset[str]:
        """The names of the volumes whose content is complete."""
        with worded("Unable to list the artifact volumes"):
            return ready(self._host.ssh)

    def builder(self, volume: str) -> str:
        """The number of the container in which the volume's content grows."""
        with worded(f"Unable to read volume {volume}"):
            vmid, _ = _builder_of(self._host, volume) or ("", "")
            return str(vmid)

    def create(self, volume: str, digest: str) -> None:
        """Make the volume empty and not ready; one of that name that is not ready is replaced."""
        what = f"Unable to create volume {volume}"
        with worded(what):
            _run(self._host.ssh, what, _CREATE_SCRIPT, _folder(volume), digest)

    def mark_ready(self, volume: str) -> None:
        """Pack what its builder, which is stopped, has made, and say that it is complete; without one it is empty."""
        what = f"Unable to mark volume {volume}"
        with worded(what):
            vmid, path = _builder_of(self._host, volume) or ("", "")
            _run(self._host.ssh, what, _PACK_SCRIPT, _folder(volume), str(vmid), path, FILLED)

    def delete(self, volume: str) -> None:
        """Delete the volume; a missing one is success, one that a container or a snapshot needs is left."""
        what = f"Unable to delete volume {volume}"
        with worded(what):
            if volume not in _volumes_in_use(self._host):
                _run(self._host.ssh, what, _DELETE_SCRIPT, _folder(volume))

    def export(self, volume: str, target: Path) -> None:
        """Write the volume's content as one compressed file; ``target`` appears when it is whole."""
        what = f"Unable to export volume {volume}"
        with worded(what), whole_file(target) as file:
            _run(self._host.ssh, what, _EXPORT_SCRIPT, _folder(volume), stdout=file)

    def import_from(self, volume: str, digest: str, source: Path) -> None:
        """Make the volume from an exported file and mark it ready; one of that name is replaced."""
        what = f"Unable to import volume {volume} from {source}"
        with worded(what):
            arguments = (_folder(volume), digest, str(source.stat().st_size))
            _run(self._host.ssh, what, _IMPORT_SCRIPT, *arguments, stdin=file_blocks(source))


def size(shell: Shell, volume: str) -> int:
    """The bytes that a disk must have to hold a copy of it; ``ProviderError`` when there is no such volume."""
    done = _run(shell, f"Unable to use volume {volume}", _SIZE_SCRIPT, _folder(volume))
    files = int(done.stdout)
    return files + files // 16 + SLACK_BYTES


def fill(shell: Shell, vmid: int, volume: str, path: str) -> bool:
    """Make the disk at ``path`` of a running container a copy of the volume; whether that was not so before.

    Everything else on that disk is removed. A volume that is not ready leaves the disk as it is.
    """
    what = f"Unable to fill {path} of container {vmid} with volume {volume}"
    inside = plain_call(vmid, ["sh", "-c", _UNPACK_SCRIPT, "sh", path, FILLED])
    return _run(shell, what, _FILL_SCRIPT, _folder(volume), *inside).stdout.strip() == b"filled"


def open_folder(shell: Shell, vmid: int, path: str) -> None:
    """Make the plain folder of a running builder in which a volume's content grows."""
    what = f"Unable to make {path} in container {vmid}"
    done = shell.run(plain_call(vmid, ["mkdir", "-p", "-m", "0755", "--", path]))
    _require(done, what)


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


# What the node does with volumes: programs for its bash, each with its values as arguments. `$1` is the volume's
# folder. A file gets its final name when it is whole, and `ready` is the last of them.

_COMMON_SCRIPT = r"""
set -euo pipefail
umask 077
fail() { echo "$1" >&2; exit 1; }
content() { for one in "$1"/content.tar.zst "$1"/content.tar.gz; do [ ! -f "$one" ] || { echo "$one"; return; }; done; }
unpacked() { case $1 in *.zst) zstd -q -dc -- "$1" ;; *) gzip -dc -- "$1" ;; esac; }
# What the files take on a disk: whole blocks of 4096 bytes, and one for whatever else belongs to a file.
taken() {
  unpacked "$1" | tar -tvf - --numeric-owner |
    awk '{ sum += int(($3 + 4095) / 4096) * 4096 + 4096 } END { printf "%.0f\n", sum }'
}
# Not to be relied upon before it has its name, also after the power has failed.
settled() { sync -- "$1"; mv -f -- "$1" "$2"; }
begun() {
  rm -rf -- "$1.new"; mkdir -p -- "$1.new"
  printf '%s\n' "$2" >"$1.new/digest"
  rm -rf -- "$1"; mv -T -- "$1.new" "$1"
}
"""

READY_SCRIPT = 'cd -- "$1" 2>/dev/null || exit 0; for one in */ready; do [ ! -f "$one" ] || echo "${one%/ready}"; done'

_CREATE_SCRIPT = (
    _COMMON_SCRIPT
    + r"""
[ ! -e "$1/ready" ] || fail 'It is there, and its content is complete.'
begun "$1" "$2"
"""
)

_PACK_SCRIPT = (
    _COMMON_SCRIPT
    + r"""
folder=$1 vmid=$2 path=$3 filled=$4
[ -d "$folder" ] || fail 'There is no such volume.'
[ ! -e "$folder/ready" ] || exit 0
if command -v zstd >/dev/null; then ending=zst; pack() { zstd -q -1 -T0 -c; }
else ending=gz; pack() { gzip -1 -c; }; fi
as_container=()
if [ "$vmid" ]; then
  config=$(pct config "$vmid")
  maps=$(sed -n 's/^lxc\.idmap: *\([ug]\)  *\([0-9]*\)  *\([0-9]*\)  *\([0-9]*\) *$/-m \1:\2:\3:\4/p' <<<"$config")
  # What Proxmox itself takes for an unprivileged container that has no map of its own.
  if [ ! "$maps" ] && grep -qx 'unprivileged: 1' <<<"$config"; then
    maps='-m u:0:100000:65536 -m g:0:100000:65536'
  fi
  [ ! "$maps" ] || as_container=(lxc-usernsexec $maps --)
  # It may have to make the folder, into which the container's own root must be let.
  said=$(umask 022; pct mount "$vmid")
  trap 'pct unmount "$vmid"' EXIT
  root=$(sed -n "s/^mounted CT [0-9]* in '\(.*\)'\$/\1/p" <<<"$said")
  [ "$root" ] || fail "pct mount said: $said"
  [ -d "$root$path" ] || fail "Container $vmid has no folder $path."
  # A link in a container must not lead into the node.
  [ "$(realpath -- "$root$path")" = "$(realpath -- "$root")$path" ] || fail "$path leads elsewhere in container $vmid."
  source=$root$path
else
  source=$folder/empty; mkdir -p -m 0755 -- "$source"
fi
"${as_container[@]}" tar -c -f - --numeric-owner --exclude=./lost+found --exclude="./$filled" -C "$source" . |
  pack >"$folder/content.new"
settled "$folder/content.new" "$folder/content.tar.$ending"
rm -rf -- "$folder/empty"
taken "$folder/content.tar.$ending" >"$folder/ready.new"
settled "$folder/ready.new" "$folder/ready"
"""
)

_SIZE_SCRIPT = (
    _COMMON_SCRIPT
    + r"""
[ -d "$1" ] || fail 'There is no such volume.'
if [ -f "$1/ready" ]; then cat -- "$1/ready"; else echo 0; fi
"""
)

_FILL_SCRIPT = (
    _COMMON_SCRIPT
    + r"""
folder=$1; shift
[ -d "$folder" ] || fail 'There is no such volume.'
[ -f "$folder/ready" ] || exit 0
file=$(content "$folder")
[ "$file" ] || fail 'Its content is missing.'
name="${folder##*/} $(cat -- "$folder/digest")"
# Whether all was unpacked, tar knows: it may stop reading before the stream ends, and does when the copy is there.
set +e +o pipefail
unpacked "$file" 2>/dev/null | "$@" "$name"
exit "${PIPESTATUS[1]}"
"""
)

_UNPACK_SCRIPT = r"""
cd -- "$1" || exit 1
if [ -f "$2" ] && [ "$(cat -- "$2")" = "$3" ]; then echo same; exit 0; fi
rm -f -- "$2"
find . -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf -- {} + || exit 1
tar -x -p -f - || exit 1
printf '%s\n' "$3" >"$2.new" && chmod 0644 "$2.new" && mv -f -- "$2.new" "$2" || exit 1
echo filled
"""
"""For any sh in the container: ``$1`` the disk's path, ``$2`` the mark's file, ``$3`` what the mark says."""

_EXPORT_SCRIPT = (
    _COMMON_SCRIPT
    + r"""
[ -f "$1/ready" ] || fail 'There is no such volume, or its content is not complete.'
exec cat -- "$(content "$1")"
"""
)

_IMPORT_SCRIPT = (
    _COMMON_SCRIPT
    + r"""
folder=$1 digest=$2 size=$3
mkdir -p -- "$(dirname -- "$folder")"
begun "$folder.import" "$digest"
trap 'rm -rf -- "$folder.import" "$folder.import.new"' EXIT
cd -- "$folder.import"
cat >content.new
[ "$(stat -c %s content.new)" = "$size" ] || fail "$size bytes were sent, $(stat -c %s content.new) arrived."
case $(od -An -tx1 -N4 content.new | tr -d ' \n') in
  28b52ffd) file=content.tar.zst ;;
  1f8b*) file=content.tar.gz ;;
  *) fail 'It is no file that was exported from a Proxmox or Incus host.' ;;
esac
settled content.new "$file"
names=$(unpacked "$file" | tar -tf -) || fail 'It cannot be unpacked.'
case ${names%%$'\n'*} in
  ./) ;;
  backup/index.yaml)  # as Incus exports a volume: its files lie below backup/volume
    mkdir tree
    unpacked "$file" | tar -x -p -f - --numeric-owner -C tree --strip-components=1 backup/volume
    tar -c -f - --numeric-owner -C tree/volume . | gzip -1 -c >again.new
    rm -rf -- tree "$file"
    file=content.tar.gz
    settled again.new "$file" ;;
  *) fail 'It is no file that was exported from a Proxmox or Incus host.' ;;
esac
taken "$file" >ready.new
settled ready.new ready
rm -rf -- "$folder"
mv -T -- "$folder.import" "$folder"
"""
)

_DELETE_SCRIPT = 'rm -rf -- "$1" "$1.new" "$1.import" "$1.import.new"'


# Copies of volumes in containers: their sizes, filling them, and deleting those that are no longer used.


def copy_sizes_for(host: ProxmoxHost, instance: Instance) -> dict[str, int]:
    """The bytes that a disk must have for each artifact volume that is mounted read-only."""
    sizes: dict[str, int] = {}
    for device in instance.devices:
        if device.kind == "volume" and device.properties.get("readonly") == "true":
            volume = device.properties["volume"]
            sizes[volume] = size(host.ssh, volume)
    return sizes


def fill_copies(host: ProxmoxHost, guest: Guest) -> None:
    """Give a running container the contents of its artifact volumes, and builders the folders that they build in."""
    if guest.mark is None or host.status(guest.vmid) is not Status.RUNNING:
        return
    for mount in guest.mark.volumes:
        host.on_progress(guest.name, f"fill {mount.path} from volume {mount.volume}")
        if mount.readonly:
            fill(host.ssh, guest.vmid, mount.volume, mount.path)
        else:
            open_folder(host.ssh, guest.vmid, mount.path)


def delete_unused_copies(host: ProxmoxHost, vmid: int) -> None:
    """Delete the copies of artifacts that are no longer mounted; other unused disks belong to people and stay."""
    guest = host.config(vmid)
    mark = guest.mark
    if mark is None:
        return
    doomed: dict[str, str] = {}
    for option, volume in guest.config.items():
        is_unused = option.startswith("unused")
        if is_unused and volume in mark.discard:
            doomed[option] = volume
    if not doomed:
        return
    # While a snapshot needs it, Proxmox would only forget that it is unused, and a deletion would leave it behind.
    needed_by_snapshots = numbers.named_by_snapshots(host.client, vmid)
    for named in needed_by_snapshots.values():
        doomed = {option: volume for option, volume in doomed.items() if volume not in named}
    if not doomed:
        return
    deleted_volumes = set(doomed.values())
    still_to_discard = tuple(volume for volume in mark.discard if volume not in deleted_volumes)
    mark_left = replace(mark, discard=still_to_discard)
    host.client.put(
        *host.path(vmid, "config"),
        delete=",".join(doomed),
        description=marks.mark_text(guest.text, mark_left),
        digest=guest.digest,
    )


def _builder_of(host: ProxmoxHost, volume: str) -> tuple[int, str] | None:
    """The number of the container that makes a volume, and the folder in it; None when there is none."""
    for guest in _marked_guests(host):
        for mount in guest.artifact_mounts:
            if mount.volume == volume and not mount.readonly:
                return guest.vmid, mount.path
    return None


def _volumes_in_use(host: ProxmoxHost) -> frozenset[str]:
    """The artifact volumes that containers of the node have, of any lab, and those that their snapshots had."""
    names: set[str] = set()
    for guest in _marked_guests(host):
        names.update(mount.volume for mount in guest.artifact_mounts)
    calls = [partial(host.client.get, *host.path(vmid, "snapshot")) for vmid in _marked_vmids(host)]
    for snapshots in host.client.many(calls):
        for snapshot in snapshots:
            description = str(snapshot.get("description", ""))
            names |= marks.volumes_in(description)
    return frozenset(names)


def _marked_vmids(host: ProxmoxHost) -> list[int]:
    """The numbers of the containers whose tags say that they are of some lab."""
    vmids = []
    for entry in host.entries():
        tags = marks.tags_in(str(entry.get("tags", "")))
        if marks.TAG in tags:
            vmids.append(int(entry["vmid"]))
    return vmids


def _marked_guests(host: ProxmoxHost) -> list[Guest]:
    return host.client.many([partial(host.config, vmid) for vmid in _marked_vmids(host)])
