#!/bin/sh
# Proves that the cluster is quorate here and that corosync has not joined node $1, whose id is $2.
set -eu
node=$1 id=$2
fail() { echo "$*" >&2; exit 1; }
corosync-quorumtool -s >/dev/null || fail "The cluster is not quorate here."
[ "$(hostname)" != "$node" ] || fail "This is $node itself."
status=$(corosync-cmapctl "runtime.members.$id.status" 2>/dev/null) || status="never seen since corosync was started"
case $status in
    *"= joined") fail "corosync has joined $node: it is not off." ;;
esac
echo "$node: $status"
