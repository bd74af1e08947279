#!/bin/sh
# Removes member $1 from the cluster; that it is none any more is success. Exit 0 of delnode is success whatever it says:
# "Could not kill node (error = CS_ERR_NOT_EXIST)" only means that the node is off.
set -eu
node=$1
if awk -v node="$node" '$1 == "name:" && $2 == node { exit 9 }' /etc/pve/corosync.conf; then
    echo "$node is no member."
    exit 0
fi
pvecm delnode "$node"
echo "removed $node"
