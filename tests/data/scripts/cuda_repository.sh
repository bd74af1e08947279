#!/bin/sh
set -e
here=/srv/repository/debian13/x86_64 sources=etc/apt/sources.list.d/cuda.list
rm -rf /srv/repository && mkdir -p $here && cd $here
deb() {
  mkdir -p "$1/DEBIAN"
  about='Version: 1\nArchitecture: all\nMaintainer: a <a@localhost>\nDescription: test\n'
  printf "Package: %s\n$about" "$1" > "$1/DEBIAN/control"
  dpkg-deb --root-owner-group -Znone --build "$1" "$1.deb"
  rm -r "$1"
  { dpkg-deb --field "$1.deb"; echo "Filename: ./$1.deb"; stat -c 'Size: %s' "$1.deb"; } >> Packages
  printf 'SHA256: %s\n\n' "$(sha256sum "$1.deb" | cut -d' ' -f1)" >> Packages
}
mkdir -p cuda-nvcc-13-0/usr/local
mv /srv/cuda cuda-nvcc-13-0/usr/local/cuda-13.0
if test -e cuda-nvcc-13-0/usr/local/cuda-13.0/include/cublas_v2.h; then
  for part in include lib; do
    mkdir -p libcublas-dev-13-0/usr/local/cuda-13.0/$part
    mv cuda-nvcc-13-0/usr/local/cuda-13.0/$part/*cublas* libcublas-dev-13-0/usr/local/cuda-13.0/$part
  done
  deb libcublas-dev-13-0
fi
deb cuda-nvcc-13-0
deb cuda-cudart-dev-13-0
mkdir -p cuda-keyring/${sources%/*}
echo "deb [trusted=yes] file:$here ./" > cuda-keyring/$sources
deb cuda-keyring
mv cuda-keyring.deb cuda-keyring_1.1-1_all.deb
