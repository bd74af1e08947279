#!/bin/sh
# Takes the lines that end in root@$1 out of the keys that open every node; all others stay, and there must be one.
set -eu
umask 077
file=/etc/pve/priv/authorized_keys
owner=root@$1
[ -e "$file" ] || exit 0
if ! awk -v owner="$owner" '$NF == owner && $1 !~ /^#/ { found = 1 } END { exit !found }' "$file"; then
    echo "No key of $owner is left."
    exit 0
fi
new=$file.tmp.$$
trap 'rm -f "$new"' EXIT
awk -v owner="$owner" '$NF != owner || $1 ~ /^#/' "$file" >"$new"
if ! grep -q '^[^#]' "$new"; then
    echo "No key would be left in $file." >&2
    exit 1
fi
mv -- "$new" "$file"
echo "removed the keys of $owner"
