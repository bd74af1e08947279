#!/bin/bash
# Makes a registry of images in this container, as people have one at home: Debian's docker-registry with TLS, by an authority of its own, and a
# login. What it serves is made on the spot of Debian's busybox: a program that serves files, shows a value of its disk and answers questions.
# $1: the name or address by which it is reached at port 5443. What a client needs is left in /srv/registry: ca.crt, and a digest-* of each image.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive PODMAN_IGNORE_CGROUPSV1_WARNING=1
HOST=$1 AT=$1:5443 USER_NAME=penny PASSWORD=CANARY3-registry-0123456789
apt-get update -q
apt-get install -y -q --no-install-recommends podman crun netavark docker-registry busybox-static netcat-openbsd apache2-utils curl openssl
systemctl disable --now docker-registry.service
mkdir -p /srv/registry/data && cd /srv/registry
case $HOST in [0-9]*) SAN=IP:$HOST ;; *) SAN=DNS:$HOST ;; esac
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -subj "/CN=authority of a test" -days 30
openssl req -newkey rsa:2048 -nodes -keyout registry.key -out registry.csr -subj "/CN=$HOST"
openssl x509 -req -in registry.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out registry.crt -days 30 -extfile <(echo "subjectAltName=$SAN")
htpasswd -Bbn "$USER_NAME" "$PASSWORD" > accounts
cat > config.yml <<END
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: /srv/registry/data}}
http: {addr: ":5443", tls: {certificate: /srv/registry/registry.crt, key: /srv/registry/registry.key}}
auth: {htpasswd: {realm: lab, path: /srv/registry/accounts}}
END
cat > /etc/systemd/system/test-registry.service <<END
[Service]
ExecStart=/usr/bin/docker-registry serve /srv/registry/config.yml
Restart=always
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable --now test-registry.service
# shellcheck disable=SC2016  # it is expanded by the shell that timeout starts
timeout 60 bash -c 'until curl --silent --noproxy "*" --cacert ca.crt --output /dev/null "https://$0/v2/" || [ $? -ne 7 ]; do sleep 0.2; done' "$AT"

mkdir -p /etc/containers/certs.d/"$AT" && cp ca.crt /etc/containers/certs.d/"$AT"/ca.crt
podman login --authfile auth.json --username "$USER_NAME" --password-stdin "$AT" <<< "$PASSWORD"
make() { # a name, a text that its page says, and words for podman import
    local files libraries; files=$(mktemp -d)
    mkdir -p "$files"/{bin,etc,tmp,data,www/cgi-bin}
    cp /bin/busybox "$files/bin/"
    cp -L /bin/nc.openbsd "$files/bin/nc" # what hears UDP, which this busybox does not
    ldd /bin/nc.openbsd | grep -o '/[^ ]*' | xargs cp -L --parents --target-directory "$files"
    libraries=$(dirname "$(ldd /bin/nc.openbsd | grep -o '/[^ ]*/libc.so.6')") # what a driver's programs need besides
    cp -L --parents --target-directory "$files" "$libraries"/{libm.so.6,libdl.so.2,libpthread.so.0,librt.so.1}
    ln -s busybox "$files/bin/sh"
    echo 'nobody:x:65534:65534::/:/bin/sh' > "$files/etc/passwd"
    echo "$2" > "$files/www/health"
    echo "$2" > "$files/www/index.html"
    echo hidden > "$files/www/hidden"
    cat > "$files/www/cgi-bin/answer" <<'END'
#!/bin/sh
/bin/busybox printf 'Content-Type: text/plain\r\n\r\n'
/bin/busybox cat
END
    chmod 0755 "$files" "$files/www/cgi-bin/answer"
    tar -C "$files" -c . | podman import "${@:3}" -c 'ENTRYPOINT ["/bin/busybox"]' -c 'CMD ["httpd","-f","-p","80","-h","/www"]' - "$AT/test/$1:1"
    podman push --quiet --authfile auth.json --digestfile "digest-$1" "$AT/test/$1:1"
    podman rmi "$AT/test/$1:1"
    rm -r "$files"
}
make web "first"
mv digest-web digest-first
make web "second"
mv digest-web digest-second
make web "third"
mv digest-web digest-third
make web "foreign" --arch arm64
mv digest-web digest-foreign
rm auth.json
