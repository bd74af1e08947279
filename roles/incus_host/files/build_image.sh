#!/bin/bash
# build_image.sh NAME FILE SUITE PACKAGE,… - build a Debian image for Incus: FILE.meta.tar.xz, then FILE.squashfs
# (there = complete). MIRROR and SECURITY_MIRROR (may be empty) come from the environment.
set -euo pipefail
name=$1 file=$2 suite=$3 packages=$4
needed_kib=$((3 * 1024 * 1024))

fail() {
  tail --lines=30 "$work/log" >&2
  echo "Unable to build the image $name from $MIRROR" >&2
  exit 1
}

if [ -z "${BUILD_FOLDER-}" ]; then
  mkdir -p "$(dirname "$file")"
  # one builder per image at a time; who waited finds it done
  exec {lock}>"$file.lock"
  flock "$lock"
  trap 'rm -f "$file.lock"' EXIT
  if [ -e "$file.squashfs" ]; then exit 0; fi
  export BUILD_FOLDER=/var/tmp/provision-image-${file##*/}
  # a build that was killed may have left it
  rm -rf --one-file-system "$BUILD_FOLDER"
  mkdir "$BUILD_FOLDER"
  trap 'rm -rf --one-file-system "$BUILD_FOLDER" "$file.lock"' EXIT
  # mounts made in a namespace of its own end with the build, however it ends
  unshare --mount --propagation private "$0" "$@"
  exit
fi

work=$BUILD_FOLDER
if [ "$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)" -ge "$needed_kib" ]; then
  # dpkg waits for the disk after every file; memory is many times faster
  mount -t tmpfs -o "mode=0755,size=${needed_kib}k" tmpfs "$work"
fi
export TMPDIR=$work

cat >"$work/customize.sh" <<'HOOK'
set -eu
root=$1
# a machine behind a proxy that opens TLS has authorities of its own: its containers need them too
for ca in /usr/local/share/ca-certificates/*.crt; do
  if [ -e "$ca" ]; then cp "$ca" "$root/usr/local/share/ca-certificates/"; fi
done
chroot "$root" update-ca-certificates >/dev/null 2>&1
mkdir -p "$root/etc/systemd/network"
cat >"$root/etc/systemd/network/eth0.network" <<'NETWORK'
[Match]
Name=eth0

[Network]
DHCP=ipv4
LinkLocalAddressing=ipv6
IPv6AcceptRA=no

[DHCPv4]
UseDomains=true
UseMTU=true
ClientIdentifier=mac
NETWORK
chroot "$root" systemctl --quiet enable systemd-networkd systemd-resolved
chroot "$root" systemctl --quiet disable systemd-networkd-wait-online
# the first fails in a privileged container with nesting; the timers hold apt's lock when nobody expects it
chroot "$root" systemctl --quiet mask systemd-binfmt.service apt-daily.timer apt-daily-upgrade.timer
chroot "$root" systemctl --quiet set-default multi-user.target
ln -sf /run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
: >"$root/etc/machine-id"
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin
HOOK

{
  echo "deb $MIRROR $suite main"
  echo "deb $MIRROR $suite-updates main"
  if [ -n "${SECURITY_MIRROR-}" ]; then echo "deb $SECURITY_MIRROR $suite-security main"; fi
} >"$work/sources"
mmdebstrap --mode=root --variant=minbase --include="$packages" \
  --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/doc/*' \
  --customize-hook="sh $work/customize.sh \"\$1\"" "$suite" "$work/rootfs.tar" "$work/sources" >"$work/log" 2>&1 || fail
tar2sqfs --quiet --force --compressor zstd --comp-extra level=3 "$work/rootfs.squashfs" <"$work/rootfs.tar" >>"$work/log" 2>&1 || fail

mkdir "$work/templates"
echo '{{ container.name }}' >"$work/templates/hostname.tpl"
printf '127.0.0.1\tlocalhost\n127.0.1.1\t{{ container.name }}\n::1\tlocalhost ip6-localhost ip6-loopback\n' \
  >"$work/templates/hosts.tpl"
cat >"$work/metadata.yaml" <<META
architecture: $(uname -m)
creation_date: $(date +%s)
properties: {description: "$name (built here)", os: Debian, release: $suite}
templates:
  /etc/hostname: {when: [create, copy], template: hostname.tpl}
  /etc/hosts: {when: [create, copy], template: hosts.tpl}
META
tar --directory "$work" --create --xz --file "$work/meta.tar.xz" metadata.yaml templates

# earlier builds of the same image are of no use to anybody now
find "$(dirname "$file")" -maxdepth 1 -regex "${file%-*}-[0-9a-f]*\.\(meta\.tar\.xz\|squashfs\)" -delete
for part in meta.tar.xz rootfs.squashfs; do
  cp "$work/$part" "$file.${part#rootfs.}.partial"
  mv "$file.${part#rootfs.}.partial" "$file.${part#rootfs.}"
done
