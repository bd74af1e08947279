#!/bin/sh
# Removes the directory of node $1 from /etc/pve, unless a guest's configuration is in it.
set -eu
directory=/etc/pve/nodes/$1
if [ ! -d "$directory" ]; then
    echo "$directory is gone."
    exit 0
fi
guests=$(find "$directory" -mindepth 2 -maxdepth 2 -name '*.conf' -path '*/lxc/*' -o \
    -mindepth 2 -maxdepth 2 -name '*.conf' -path '*/qemu-server/*')
if [ -n "$guests" ]; then
    echo "There are guests in it: $guests" >&2
    exit 1
fi
rm -rf -- "$directory"
echo "removed $directory"
