#!/bin/sh
# Reads the firmware chip that programmer $1 finds (chip $2, empty: the only one) into file $3; without a file: its name.
set -eu
programmer=$1 chip=$2 file=${3:-}
if [ -n "$file" ]; then
    flashrom -p "$programmer" ${chip:+-c "$chip"} -r "$file"
else
    flashrom -p "$programmer" ${chip:+-c "$chip"} --flash-name
fi
