"""The nodes' trust in each other, as ``PVE::Cluster::Setup`` keeps it."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from . import node

SSH = Path("/root/.ssh")
KEY, PUBLIC = SSH / "id_rsa", SSH / "id_rsa.pub"
AUTHORIZED, SHARED = SSH / "authorized_keys", node.PRIVATE / "authorized_keys"
SERVER = Path("/etc/ssh/sshd_config")
SYSTEM_HOSTS, SHARED_HOSTS = Path("/etc/ssh/ssh_known_hosts"), node.PRIVATE / "known_hosts"
CIPHERS = (
    "Ciphers aes128-ctr,aes192-ctr,aes256-ctr,aes128-gcm@openssh.com,aes256-gcm@openssh.com,"
    "chacha20-poly1305@openssh.com\n"
)


def set_up_sshd() -> None:
    """Root may log in by password from now on; nobody is told."""
    text = SERVER.read_text(encoding="utf-8")
    if re.search(r"^PermitRootLogin\s+yes\s*$", text, re.MULTILINE):
        return
    text, found = re.subn(r"^#?PermitRootLogin.*$", "PermitRootLogin yes", text, count=1, flags=re.MULTILINE)
    SERVER.write_text(text if found else f"{text.rstrip()}\nPermitRootLogin yes\n", encoding="utf-8")
    node.run(["systemctl", "reload-or-restart", "ssh"])


def set_up_client() -> None:
    """A key and a client configuration, where there are none."""
    SSH.mkdir(mode=0o700, exist_ok=True)
    if not PUBLIC.exists():
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-b", "4096", "-f", str(KEY)], check=True, timeout=60
        )
    if not (SSH / "config").exists():
        (SSH / "config").write_text(CIPHERS, encoding="ascii")
        (SSH / "config").chmod(0o640)


def share_keys() -> None:
    """Root's authorized keys are the cluster's: a link into ``/etc/pve``."""
    # refused without quorum; with it, this waits until the cluster's files are here, so that what follows sees them
    with suppress(OSError):
        node.PRIVATE.mkdir()
    old = AUTHORIZED.read_text(encoding="utf-8") if AUTHORIZED.is_file() else ""
    if not SHARED.exists():
        try:
            SHARED.write_text(old, encoding="utf-8")
        except OSError:
            sys.stderr.write(f"can't create shared ssh key database '{SHARED}'\n")
    if AUTHORIZED.is_file() and not AUTHORIZED.is_symlink():
        AUTHORIZED.rename(AUTHORIZED.with_name("authorized_keys.org"))
    if not AUTHORIZED.is_symlink():
        AUTHORIZED.symlink_to(SHARED)


def keep_known_hosts_local() -> None:
    """A copy in the place of the link."""
    if SYSTEM_HOSTS.is_symlink():
        old = SHARED_HOSTS.read_text(encoding="utf-8") if SHARED_HOSTS.exists() else ""
        SYSTEM_HOSTS.unlink()
        SYSTEM_HOSTS.write_text(old, encoding="utf-8")


def merge_keys() -> None:
    """The cluster's authorized keys without doubles, and this node's among them."""
    kept = AUTHORIZED.with_name("authorized_keys.org")
    texts = [file.read_text(encoding="utf-8") for file in (SHARED, kept, PUBLIC) if file.exists()]
    seen: set[str] = set()
    lines = []
    for line in "\n".join(texts).splitlines():
        key = re.search(r"(?:^|\s)ssh-(?:rsa|dsa)\s+(\S+)\s+\S+$", line)
        if line and not (key and key[1] in seen):
            lines.append(line)
            seen.add(key[1] if key else line)
    SHARED.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    kept.unlink(missing_ok=True)


def publish_host_key() -> None:
    """This node's host key, where the others look for it."""
    key = Path("/etc/ssh/ssh_host_rsa_key.pub").read_text(encoding="ascii").split()[:2]
    (node.PVE / f"nodes/{node.name()}/ssh_known_hosts").write_text(f"{node.name()} {' '.join(key)}", encoding="ascii")
