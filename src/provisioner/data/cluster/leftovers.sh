#!/bin/sh
# Says what in /etc/pve still names node $1 (its addresses: $2); changes nothing, and shows of keys only fingerprints.
#
# Lines of words with tabs between them: key OWNER FINGERPRINT, host NAME, qdevice, line FILE SECTION TEXT.
set -eu
LC_ALL=C
export LC_ALL
node=$1 addresses=$2
keys=/etc/pve/priv/authorized_keys
hosts=/etc/pve/priv/known_hosts

if [ -s "$keys" ]; then
    grep -v -e '^[[:space:]]*#' -e '^[[:space:]]*$' "$keys" | while IFS= read -r line; do
        # a line that is no key, or one of a kind that this ssh does not know, opens nothing here but may elsewhere
        print=$(printf '%s\n' "$line" | ssh-keygen -l -f - 2>/dev/null | awk '{ print $2 }')
        printf 'key\t%s\t%s\n' "${line##*[[:space:]]}" "${print:-unreadable}"
    done
fi
if [ -s "$hosts" ]; then
    for name in $node $addresses; do
        if ssh-keygen -F "$name" -f "$hosts" >/dev/null; then printf 'host\t%s\n' "$name"; fi
    done
fi
if grep -q '^[[:space:]]*device[[:space:]]*{' /etc/pve/corosync.conf; then echo qdevice; fi

# Only lines that name the node, each under the last line that is not indented.
cd /etc/pve
for file in *.cfg ha/groups.cfg ha/rules.cfg ha/resources.cfg mapping/*.cfg sdn/*.cfg; do
    [ -f "$file" ] || continue
    awk -v node="$node" -v file="$file" '
        /^[^[:space:]#]/ { section = $0 }
        /^[[:space:]]*#/ { next }
        {
            count = split($0, words, /[^A-Za-z0-9-]+/)
            for (i = 1; i <= count; i++) if (words[i] == node) {
                gsub(/\t/, " ")
                printf "line\t%s\t%s\t%s\n", file, section, $0
                next
            }
        }' "$file"
done
