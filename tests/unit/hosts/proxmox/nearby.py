"""A node that is this machine: an ``ssh`` that runs its command here, and a ``pct`` whose containers are this, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.ssh import Shell

SSH = """#!/bin/sh
echo "$@" >>"{folder}/asked"
[ -e "{folder}/noise" ] && cat "{folder}/noise" >&2
[ -e "{folder}/code" ] && exit "$(cat "{folder}/code")"
if [ -s "{folder}/times" ]; then sed -i 1d "{folder}/times"; exit 255; fi
case "$*" in *" -N -f "*) exit 0 ;; esac
while [ "$1" != -- ]; do shift; done
exec sh -c "$3"
"""
PCT = """#!/bin/sh
verb=$1 vmid=$2; shift 3
case $vmid in 105|107|108) ;; *) echo "container '$vmid' not running!" >&2; exit 255 ;; esac
exec "$@"
"""


RUNNING = (105, 107, 108)


class Nearby:
    """The node; ``asked`` are the words of each call, ``says`` what ssh writes before all else, ``fails`` its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in (("ssh", SSH), ("pct", PCT)):
            (folder / name).write_text(text.format(folder=folder) if name == "ssh" else text, encoding="ascii")
            (folder / name).chmod(0o755)

    @property
    def asked(self) -> str:
        """The words of all calls."""
        return (self.folder / "asked").read_text(encoding="utf-8")

    def says(self, text: str) -> None:
        """Let ssh write something before it does anything."""
        (self.folder / "noise").write_text(text, encoding="utf-8")

    def fails_times(self, number: int) -> None:
        """Let the next calls of ssh end with 255, and those after them not."""
        (self.folder / "code").unlink(missing_ok=True)
        (self.folder / "times").write_text("again\n" * number, encoding="ascii")

    def fails(self, code: int) -> None:
        """Let ssh end."""
        (self.folder / "code").write_text(str(code), encoding="ascii")


@pytest.fixture
def nearby(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nearby:
    """This machine, found first on PATH; HOME is what the product says, and not there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return Nearby(folder)


@pytest.fixture
def shell(nearby: Nearby) -> Shell:
    """A way to it."""
    assert nearby
    return Shell(Access("https://pve:8006", "root@pam", ssh="root@pve:2222"))
