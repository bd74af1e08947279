#!/bin/sh
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update && apt-get -qq -y --no-install-recommends install git libarchive-tools > /dev/null
mkdir /srv/tree && cd /srv/tree
git init --quiet . && git config user.email a@localhost && git config user.name a
echo first > CMakeLists.txt && git add . && git commit --quiet -m first
git rev-parse HEAD
echo second > CMakeLists.txt && git commit --quiet -am second
cd /srv && mkdir llama.cpp-1 && echo packed > llama.cpp-1/CMakeLists.txt
bsdtar -czf tree.tar.gz llama.cpp-1 && bsdtar -a -cf tree.zip llama.cpp-1
sha256sum tree.tar.gz tree.zip | cut -d ' ' -f 1
