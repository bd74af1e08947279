#!/bin/sh
# Checks that corosync is quorate here and that /etc/pve can be written, by a file that is removed at once.
set -eu
corosync-quorumtool -s
file=/etc/pve/provisioner-write-check.$$
trap 'rm -f "$file"' EXIT
echo writable >"$file"
