#!/bin/sh
# Checks that no key and no host key of node $1 (its addresses: $2) is left in /etc/pve/priv.
set -eu
fail() { echo "$*" >&2; exit 1; }
keys=/etc/pve/priv/authorized_keys
hosts=/etc/pve/priv/known_hosts
if [ -e "$keys" ] && ! awk -v owner="root@$1" '$NF == owner && $1 !~ /^#/ { exit 9 }' "$keys"; then
    fail "$keys still has a key of root@$1."
fi
for name in $1 $2; do
    if [ -e "$hosts" ] && ssh-keygen -F "$name" -f "$hosts" >/dev/null; then fail "$hosts still names $name."; fi
done
echo "Nothing in /etc/pve/priv names $1."
