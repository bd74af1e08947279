#!/bin/sh
# Takes node $1 and its addresses $2 out of the host keys that all nodes believe, hashed ones included.
# ssh-keygen works on a copy: it makes a hard link, which /etc/pve does not know.
set -eu
umask 077
file=/etc/pve/priv/known_hosts
[ -e "$file" ] || exit 0
folder=$(mktemp -d)
trap 'rm -rf "$folder" "$file.tmp.$$"' EXIT
cp -- "$file" "$folder/known_hosts"
removed=
for name in $1 $2; do
    if ssh-keygen -F "$name" -f "$folder/known_hosts" >/dev/null; then
        ssh-keygen -R "$name" -f "$folder/known_hosts" >/dev/null 2>&1
        removed="$removed $name"
    fi
done
if [ -z "$removed" ]; then
    echo "No host key of $1 is left."
    exit 0
fi
cat "$folder/known_hosts" >"$file.tmp.$$"
mv -- "$file.tmp.$$" "$file"
echo "removed the host keys of$removed"
