#!/bin/sh
# Says at which addresses node $1 may be: those that its name has here, and those in its certificate. A line each.
LC_ALL=C
export LC_ALL
timeout 10 getent ahosts "$1" | awk '{ print $1 }'
certificate=/etc/pve/nodes/$1/pve-ssl.pem
if [ -s "$certificate" ]; then
    timeout 10 openssl x509 -noout -ext subjectAltName -in "$certificate" | tr ',' '\n' |
        sed -n 's/^[[:space:]]*IP Address:\([0-9A-Fa-f.:]*\)[[:space:]]*$/\1/p'
fi
exit 0  # a name that nobody knows, and a node without certificate, have none
