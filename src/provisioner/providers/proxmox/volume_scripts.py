"""What the node does with artifact volumes: programs for its bash, each with its values as arguments.

``$1`` is the volume's folder. A file gets its final name when it is whole, and ``ready`` is the last of them.
"""

from __future__ import annotations

_COMMON = r"""
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

READY = 'cd -- "$1" 2>/dev/null || exit 0; for one in */ready; do [ ! -f "$one" ] || echo "${one%/ready}"; done'

CREATE = (
    _COMMON
    + r"""
[ ! -e "$1/ready" ] || fail 'It is there, and its content is complete.'
begun "$1" "$2"
"""
)

PACK = (
    _COMMON
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

SIZE = (
    _COMMON
    + r"""
[ -d "$1" ] || fail 'There is no such volume.'
if [ -f "$1/ready" ]; then cat -- "$1/ready"; else echo 0; fi
"""
)

FILL = (
    _COMMON
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

UNPACK = r"""
cd -- "$1" || exit 1
if [ -f "$2" ] && [ "$(cat -- "$2")" = "$3" ]; then echo same; exit 0; fi
rm -f -- "$2"
find . -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf -- {} + || exit 1
tar -x -p -f - || exit 1
printf '%s\n' "$3" >"$2.new" && chmod 0644 "$2.new" && mv -f -- "$2.new" "$2" || exit 1
echo filled
"""
"""For any sh in the container: ``$1`` the disk's path, ``$2`` the mark's file, ``$3`` what the mark says."""

EXPORT = (
    _COMMON
    + r"""
[ -f "$1/ready" ] || fail 'There is no such volume, or its content is not complete.'
exec cat -- "$(content "$1")"
"""
)

IMPORT = (
    _COMMON
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

DELETE = 'rm -rf -- "$1" "$1.new" "$1.import" "$1.import.new"'
