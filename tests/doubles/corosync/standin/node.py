"""What a node's commands know about it: its name and address, its files, whether its cluster file system is there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

PVE = Path("/etc/pve")
CONF = PVE / "corosync.conf"
PRIVATE = PVE / "priv"
AUTHKEY = Path("/etc/corosync/authkey")
LOCAL_CONF = Path("/etc/corosync/corosync.conf")
LIBRARY = Path("/var/lib/pve-cluster")


class DieError(Exception):
    """What Perl's ``die`` is: the words for stderr, with which the command ends."""


def die(words: str, code: int = 255) -> NoReturn:
    """End with words on stderr; 255 as Proxmox VE's commands do."""
    sys.stdout.flush()
    sys.stderr.write(f"{words}\n")
    sys.exit(code)


def say(words: str) -> None:
    """A line on stdout, at once."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def name() -> str:
    """This node."""
    return socket.gethostname().partition(".")[0]


def members() -> dict[str, dict[str, object]]:
    """The nodelist of ``.members``; empty where there is none."""
    found: dict[str, dict[str, object]] = json.loads((PVE / ".members").read_bytes()).get("nodelist", {})
    return found


def address() -> str:
    """This node's address as the cluster file system knows it, else as its own name resolves."""
    known = members().get(name(), {}).get("ip")
    return str(known) if known else socket.gethostbyname(name())


def assert_pmxcfs() -> None:
    """Without the cluster file system no command gets further than this."""
    if not os.path.ismount(PVE):
        sys.stderr.write("ipcc_send_rec[1] failed: Connection refused\n")
        die("Unable to load access control list: Connection refused", 111)


def is_quorate() -> bool:
    """Whether the cluster file system can be written: its own link says so."""
    try:
        return bool(os.lstat(PVE / "local").st_mode & 0o200)
    except OSError:
        return False


def assert_quorate() -> None:
    """The words of everything that would write."""
    if not is_quorate():
        raise DieError("cluster not ready - no quorum?")


def run(argv: Sequence[str], message: str = "") -> None:
    """Run it with its own output; ``DieError`` in Perl's words where it fails."""
    sys.stdout.flush()
    done = subprocess.run(argv, check=False, timeout=300)
    if done.returncode:
        raise DieError(f"{message or 'command ' + repr(' '.join(argv)) + ' failed'}: exit code {done.returncode}")
