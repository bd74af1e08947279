#!/bin/sh
# Says what a Proxmox VE node knows of its cluster; changes nothing, and tells of secrets only their digests.
# With the argument "lists" only which nodes there are, which takes no time.
#
# Each section is a line "@ NAME EXITCODE" and its output, every line of it one space to the right; "@ end 0" is last.
# Proxmox VE's programs take a second each to start, so all sections are asked side by side; and whatever touches
# /etc/pve may hang with pmxcfs, so each has a time limit.
# shellcheck disable=SC2016  # what a section runs is expanded by the shell that runs it
LC_ALL=C
export LC_ALL
PATH=$PATH:/usr/sbin:/sbin

folder=$(mktemp -d /dev/shm/provision.XXXXXX) || exit
trap 'rm -rf -- "$folder"' EXIT
trap 'exit 129' HUP INT TERM PIPE
names=

section() { # NAME SECONDS SCRIPT
  names="$names $1"
  {
    timeout -k 2 "$2" sh -c "$3" >"$folder/$1" 2>&1 </dev/null
    echo "$?" >"$folder/$1.code"
  } &
}

hung=
pve() { # NAME SECONDS SCRIPT: one that reads /etc/pve, which is not tried once a first one has hung
  if [ -n "$hung" ]; then
    section "$1" 5 'exit 124'
  else
    section "$@"
  fi
}

tell() { # all sections, once they have ended
  wait
  for name in $names; do
    printf '@ %s %s\n' "$name" "$(cat "$folder/$name.code")"
    out=$(cat "$folder/$name")
    [ -z "$out" ] || printf '%s\n' "$out" | sed 's/^/ /'
  done
}

section hostname 5 'uname -n'
section proxmox 5 'command -v pvecm'
section addresses 5 'ip -o addr show'
# A corosync.conf may hold the key itself.
section local-conf 5 'sed "s/^\([[:space:]]*key:\).*/\1 hidden/" /etc/corosync/corosync.conf'
pve members 10 'cat /etc/pve/.members'
wait "$!"
case $(cat "$folder/members.code") in 124 | 137) hung=1 ;; esac
pve pve-conf 10 'sed "s/^\([[:space:]]*key:\).*/\1 hidden/" /etc/pve/corosync.conf'
if [ "$1" = lists ]; then
  tell
  printf '@ end 0\n'
  exit 0
fi

section version 20 'pveversion'
section units 10 'systemctl show -p Id -p LoadState -p ActiveState corosync.service pve-cluster.service'

# What is open, or was left in a log, is read in place; else sqlite would leave files beside it.
section database 15 'file=/var/lib/pve-cluster/config.db
  query="SELECT version, mtime FROM tree WHERE inode = 0"
  uri="file:$file?mode=ro"
  [ -e "$file-wal" ] || uri="$uri&immutable=1"
  if command -v sqlite3 >/dev/null; then exec sqlite3 -readonly -cmd ".timeout 5000" "$uri" "$query"; fi
  exec python3 -c "import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=5, uri=True)
print(*connection.execute(sys.argv[2]).fetchone(), sep=chr(124))" "$uri" "$query"'
section digests 5 'sha256sum /etc/corosync/authkey /etc/corosync/corosync.conf'
pve pve-digest 10 'sha256sum /etc/pve/corosync.conf'

section quorum 10 'corosync-quorumtool -s'
section links 10 'corosync-cfgtool -s'
section qdevice 10 'if command -v corosync-qdevice-tool >/dev/null; then corosync-qdevice-tool -s; fi'
section cmap 10 'all=$(corosync-cmapctl) || { code=$?; printf "%s\n" "$all"; exit "$code"; }
  printf "%s\n" "$all" | grep -E "^(nodelist\.node|runtime\.members|totem\.(config_version|cluster_name) )"'

pve vmlist 10 'cat /etc/pve/.vmlist'
pve mode 10 'stat -c %a /etc/pve/nodes'
pve folders 10 'ls -1 /etc/pve/nodes'
# Of a guest only its name and its disks: the rest may hold passwords.
pve guests 60 'for file in /etc/pve/nodes/*/lxc/*.conf /etc/pve/nodes/*/qemu-server/*.conf; do
    [ -f "$file" ] || continue
    digest=$(sha256sum "$file") || exit
    printf "= %s %s\n" "$file" "${digest%% *}"
    awk "/^\[/ { exit }
      /^(hostname|name|rootfs|mp[0-9]+|unused[0-9]+|(ide|sata|scsi|virtio|efidisk|tpmstate)[0-9]+):/" "$file" || exit
  done'
pve storage 10 'grep -E "^[a-z]+: |^[[:space:]]+(nodes|shared)[[:space:]]" /etc/pve/storage.cfg'
pve ha 20 'ha-manager status'
pve ha-config 10 'for file in groups rules; do
    [ ! -f "/etc/pve/ha/$file.cfg" ] || grep -E "^[a-z-]+: |^[[:space:]]+nodes[[:space:]]" "/etc/pve/ha/$file.cfg"
  done'
pve replication 10 '[ ! -f /etc/pve/replication.cfg ] ||
  grep -E "^[a-z]+: |^[[:space:]]+(target|source)[[:space:]]" /etc/pve/replication.cfg'
# What names guests by number; of user.cfg only its pools.
pve guest-references 10 'cd /etc/pve || exit
  for file in ha/resources.cfg ha/rules.cfg replication.cfg jobs.cfg user.cfg; do
    [ -f "$file" ] || continue
    printf "= %s\n" "$file"
    grep -E "^[a-z-]+: |^[[:space:]]+(resources|vmid)[[:space:]]|^pool:" "$file" || [ $? = 1 ] || exit 2
  done'
pve keys 10 'awk "NF { print \$NF }" /etc/pve/priv/authorized_keys'
pve known-hosts 10 'awk "NF && !/^#/ { print \$1 }" /etc/pve/priv/known_hosts'

# A forced rejoin that was cut off leaves a copy of root's keys there: how many.
section way-in 5 'file=/root/.ssh/authorized_keys2
  [ ! -e "$file" ] || awk "/^# BEGIN of a repair by provision\$/ { n++ } END { print n + 0 }" "$file"'

# A node that is rejected writes a line a second for each of the others: the newest lines say it all.
section journal 30 'journalctl -u corosync -b -n 2000 --no-pager -o short-iso |
  awk "/Corosync Cluster Engine .* starting up/ { kept = 0 } { line[kept++] = \$0 }
    END { for (i = 0; i < kept; i++) print line[i] }" |
  grep -E "starting up|Packet rejected|Unable to decrypt|Incorrect packet size|Received config version|active links|host: [0-9]+ link: |host [0-9]+ joined|membership|Sync members|Token has not been|NOT changed|Unloading all|exiting|block activity|primary component"'
tell
# How old a line is, only the node's own clock can say; after the log, so that no line of it is of the future.
names=
section now 5 'date +%Y-%m-%dT%H:%M:%S%z'
tell

printf '@ end 0\n'
