#!/bin/bash
# start_incus.sh STATE-FOLDER RUN-FOLDER - start lxcfs and incusd where systemd does not, and return when Incus is ready.
# They outlive whoever starts them. What runs already is left running.
set -euo pipefail
state=$1 run=$2
incusd=/usr/libexec/incus/incusd
name=$(tr -s / - <<<"${state#/}")
log=/var/log/provisioner/$name

fail() {
  echo "Unable to start $1" >&2
  tail --lines=20 "$2" >&2
  exit 1
}

mkdir -p "$run" "$(dirname "$log")"
# a container has what its machine's lxcfs mounts over its /proc
if ! mountpoint --quiet /var/lib/lxcfs && ! grep --quiet ' /proc/[a-z]* fuse.lxcfs ' /proc/mounts; then
  # a killed lxcfs leaves a dead mount, which says ENOTCONN and hides what comes after
  if grep --quiet ' /var/lib/lxcfs fuse.lxcfs ' /proc/mounts; then umount --lazy /var/lib/lxcfs; fi
  mkdir -p /var/lib/lxcfs
  start-stop-daemon --start --background --make-pidfile --pidfile "$run/lxcfs.pid" --output "$log.lxcfs" \
    --exec /usr/bin/lxcfs -- -p "$run/lxcfs.lock" /var/lib/lxcfs
  for _ in $(seq 100); do
    if mountpoint --quiet /var/lib/lxcfs; then break; fi
    sleep 0.1
  done
  mountpoint --quiet /var/lib/lxcfs || fail lxcfs "$log.lxcfs"
fi

environment=(PATH=/usr/libexec/incus:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8)
for proxy in http_proxy https_proxy no_proxy; do
  if [ -n "${!proxy-}" ]; then environment+=("$proxy=${!proxy}"); fi
done
# told its default folder it would keep logs there and not where Debian has them
if [ "$state" != /var/lib/incus ]; then environment+=("INCUS_DIR=$state"); fi
ulimit -n "$(ulimit -Hn)"
umask 022
mkdir -p /var/log/incus
mkdir -p "$state"
chmod 0711 "$state"
if [ -x /usr/libexec/incus/incus-apparmor-load ]; then /usr/libexec/incus/incus-apparmor-load; fi
env --ignore-environment "${environment[@]}" \
  start-stop-daemon --start --oknodo --background --make-pidfile --pidfile "$run/$name.pid" --output "$log.incusd" \
  --exec "$incusd" -- --group incus-admin --logfile "$log.log"
env --ignore-environment "${environment[@]}" "$incusd" waitready --timeout=120 || fail "incusd" "$log.incusd"
