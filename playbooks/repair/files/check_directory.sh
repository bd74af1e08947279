#!/bin/sh
# Checks that node $1 has no directory in /etc/pve and that .vmlist names no guest on it.
set -eu
node=$1
if [ -e "/etc/pve/nodes/$node" ]; then
    echo "/etc/pve/nodes/$node is still there." >&2
    exit 1
fi
if grep -E "\"node\": ?\"$node\"" /etc/pve/.vmlist; then
    echo ".vmlist still names guests on $node." >&2
    exit 1
fi
echo "Nothing in /etc/pve/nodes and .vmlist names $node."
