#!/bin/sh
# import_image.sh NAME FILE - give Incus the image FILE.meta.tar.xz + FILE.squashfs under the alias NAME.
set -eu
name=$1 file=$2
fingerprint=$(cat "$file.meta.tar.xz" "$file.squashfs" | sha256sum | cut -d' ' -f1)
# a run that was stopped between the two steps leaves the image without its name
if incus query "/1.0/images?recursion=0" | grep -q "\"/1.0/images/$fingerprint\""; then
  incus image alias create "$name" "$fingerprint"
else
  incus image import "$file.meta.tar.xz" "$file.squashfs" --alias "$name"
fi
