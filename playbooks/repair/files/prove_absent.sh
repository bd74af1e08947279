#!/bin/sh
# Proves that the cluster is quorate here and that node $1 is in no list of its members.
set -eu
node=$1
fail() { echo "$*" >&2; exit 1; }
corosync-quorumtool -s >/dev/null || fail "The cluster is not quorate here."
[ "$(hostname)" != "$node" ] || fail "This is $node itself."
grep -q '"nodelist"' /etc/pve/.members || fail "This node is in no cluster: .members has no list of nodes."
if grep -qF "\"$node\":" /etc/pve/.members; then fail ".members still names $node."; fi
if awk -v node="$node" '$1 == "name:" && $2 == node { exit 9 }' /etc/pve/corosync.conf; then :; else
    fail "/etc/pve/corosync.conf still names $node, or cannot be read."
fi
if corosync-cmapctl | grep -qE "^nodelist\.node\.[0-9]+\.name .* = $node\$"; then
    fail "corosync still runs with a list that names $node."
fi
echo "$node is in no list of members."
