#!/bin/sh
# Says whether a node has what a forced rejoin needs beside the cluster; changes nothing. $1: where the other node is.
LC_ALL=C
export LC_ALL
PATH=$PATH:/usr/sbin:/sbin

for one in pvecm rsync ssh ssh-copy-id ssh-keygen flock timeout mountpoint systemctl; do
  command -v "$one" >/dev/null || printf 'missing: %s\n' "$one"
done

# As pvecm calls it: with root's own configuration. But a host key that is not known is never taken up here.
if said=$(timeout -k 2 20 ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=10 -- "root@$1" true \
  2>&1 </dev/null); then
  echo 'ssh: ok'
else
  printf '%s\n' "${said:-it ended without a word}" | sed 's/^/ssh: /'
fi

line=$(grep -E '^PermitRootLogin' /etc/ssh/sshd_config | head -n 1)
printf 'root-login: %s\n' "$line"

for key in /etc/ssh/ssh_host_*_key.pub; do
  [ ! -f "$key" ] || ssh-keygen -l -f "$key" | sed 's/^/host-key: /'
done
