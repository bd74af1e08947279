"""A node that is this machine: an ``ssh`` that runs its command here, and containers that are this machine, too.

``pct`` and what it calls note that they were called, and ``pct`` looks as Proxmox VE's own does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.hosts.proxmox import execute
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.ssh import Shell
from tests.doubles.proxmox.pct import MODULE, RUNS_MODULE

SSH = """#!/bin/sh
echo "$@" >>"{folder}/asked"
[ -e "{folder}/noise" ] && cat "{folder}/noise" >&2
[ -e "{folder}/code" ] && exit "$(cat "{folder}/code")"
if [ -s "{folder}/times" ]; then sed -i 1d "{folder}/times"; exit 255; fi
case "$*" in *" -N -f "*) exit 0 ;; esac
while [ "$1" != -- ]; do shift; done
exec sh -c "$3"
"""
PCT = f"""#!/bin/sh
: '{RUNS_MODULE}'
echo pct >>"{{folder}}/entered"
verb=$1 vmid=$2; shift 3
case $vmid in 105|107|108) ;; *) echo "container '$vmid' not running!" >&2; exit 255 ;; esac
exec "$@"
"""
LXC_ATTACH = """#!/bin/sh
echo lxc-attach >>"{folder}/entered"
[ "$3" = --clear-env ] || {{ echo 'lxc-attach: a form that the node does not know' >&2; exit 1; }}
shift 4
exec env -i container=lxc "$@"
"""
LXC_INFO = """#!/bin/sh
[ ! -e "{folder}/$2.frozen" ] || {{ echo FROZEN; exit; }}
case $2 in 105|107|108) echo RUNNING ;; *) echo STOPPED ;; esac
"""
PROGRAMS = {"ssh": SSH, "pct": PCT, "lxc-attach": LXC_ATTACH, "lxc-info": LXC_INFO, "id": "#!/bin/sh\necho 0\n"}


RUNNING = (105, 107, 108)


class Nearby:
    """The node; ``asked`` are the words of each call, ``says`` what ssh writes before all else, ``fails`` its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = folder / "pct.pm"
        self.module.write_text(MODULE, encoding="ascii")
        for name, text in PROGRAMS.items():
            self.installs(name, text.format(folder=folder))
        for vmid in RUNNING:
            self.configures(vmid, f"hostname: c{vmid}\n")

    def installs(self, name: str, text: str) -> None:
        """Put a program on its PATH."""
        (self.folder / name).write_text(text, encoding="ascii")
        (self.folder / name).chmod(0o755)

    def configures(self, vmid: int, text: str) -> None:
        """Write a container's configuration."""
        (self.folder / f"{vmid}.conf").write_text(text, encoding="ascii")

    @property
    def entered(self) -> list[str]:
        """By which program a container was entered, each time."""
        return (self.folder / "entered").read_text(encoding="ascii").split()

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
    for name in ("SSH_ORIGINAL_COMMAND", "SUDO_COMMAND"):
        monkeypatch.delenv(name, raising=False)
    found = Nearby(folder)
    monkeypatch.setattr(execute, "PCT_MODULE", str(found.module))
    monkeypatch.setattr(execute, "CONFIGS", str(folder))
    return found


@pytest.fixture
def shell(nearby: Nearby) -> Shell:
    """A way to it."""
    assert nearby
    return Shell(Access("https://pve:8006", "root@pam", ssh="root@pve:2222"))
