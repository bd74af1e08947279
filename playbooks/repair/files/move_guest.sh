#!/bin/sh
# Moves the configuration of guest $2 (a $1: lxc or qemu-server) from node $3 to node $4: one rename changes the owner.
set -eu
kind=$1 vmid=$2 from=$3 to=$4
fail() { echo "$*" >&2; exit 1; }
source=/etc/pve/nodes/$from/$kind/$vmid.conf
target=/etc/pve/nodes/$to/$kind/$vmid.conf
if [ ! -e "$source" ]; then
    [ -e "$target" ] || fail "$source is gone, and $target is not there."
    echo "$vmid is on $to."
    exit 0
fi
[ ! -e "$target" ] || fail "$target is already there."
[ -d "/etc/pve/nodes/$to" ] || fail "There is no node $to."
mkdir -p "/etc/pve/nodes/$to/$kind"
mv -- "$source" "$target"
echo "moved $vmid to $to"
