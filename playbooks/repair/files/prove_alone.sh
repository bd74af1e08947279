#!/bin/sh
# Proves that this node has no quorum and that corosync has joined none of the nodes whose ids are $1.
set -eu
fail() { echo "$*" >&2; exit 1; }
code=0
corosync-quorumtool -s || code=$?
case $code in
    0) echo "It is quorate already." ; exit 0 ;;
    2) ;;
    *) fail "corosync does not answer here: start it first (systemctl start corosync)." ;;
esac
for id in $1; do
    status=$(corosync-cmapctl "runtime.members.$id.status" 2>/dev/null) || status=""
    case $status in
        *"= joined") fail "corosync has joined node $id: it is not off." ;;
    esac
done
