#!/bin/sh
# Removes the configuration of guest $2 (a $1: lxc or qemu-server) of node $3 if it is the one that was archived (sha256 $4).
set -eu
kind=$1 vmid=$2 node=$3 digest=$4
file=/etc/pve/nodes/$node/$kind/$vmid.conf
if [ ! -e "$file" ]; then
    echo "$file is gone."
    exit 0
fi
found=$(sha256sum <"$file")
if [ "${found%% *}" != "$digest" ]; then
    echo "$file has changed since it was archived." >&2
    exit 1
fi
rm -- "$file"
echo "removed $file"
