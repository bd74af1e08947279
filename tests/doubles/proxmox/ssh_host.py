"""The node of the double that one can log in to: a real sshd on 127.0.0.1, with ``pct`` on its PATH.

It lives in namespaces of its own: there ``/var/lib``, ``/etc`` and ``/usr/share`` are layers over this machine's, and
``/etc/passwd`` knows a user ``sshd``; all is gone with it, and it ends with the process that started it. OpenSSH's
server is taken from Debian's package without installing that.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from provisioner.values import paths
from tests.doubles.proxmox.pct import MODULE
from tests.lab.incus import Lab
from tests.processes import killed_at_end

PACKAGES = ("openssh-server", "libwrap0")
START_TIMEOUT_S = 20
POLL_S = 0.02
HOST = "127.0.0.1"
CONFIG = """\
Port {port}
ListenAddress {host}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PidFile none
LogLevel VERBOSE
AcceptEnv LANG LC_*
SetEnv PATH={path} FROM_THE_NODE=leaked
"""
CLIENT = """\
Host *
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
"""
INSIDE = """
set -e
mount --make-rprivate /
mkdir -p "$FOLDER/lab" "$FOLDER/upper" "$FOLDER/work" "$FOLDER/home" "$FOLDER/etc" "$FOLDER/etc-work" \
  "$FOLDER/share" "$FOLDER/share-work"
mount --rbind "$STATE" "$FOLDER/lab"
mount -t overlay -o "lowerdir=/var/lib,upperdir=$FOLDER/upper,workdir=$FOLDER/work" overlay /var/lib
mount --rbind "$FOLDER/lab" "$STATE"
mount -t overlay -o "lowerdir=/etc,upperdir=$FOLDER/etc,workdir=$FOLDER/etc-work" overlay /etc
mount -t overlay -o "lowerdir=/usr/share,upperdir=$FOLDER/share,workdir=$FOLDER/share-work" overlay /usr/share
[ ! -d "$FOLDER/pve" ] || mount --bind "$FOLDER/pve" /etc/pve
for one in passwd shadow; do mount --bind "$FOLDER/$one" "/etc/$one"; done
mount -t tmpfs tmpfs /run
mkdir -m 0755 /run/sshd
exec "$SSHD" -D -e -f "$FOLDER/sshd_config"
"""


class NoServerError(Exception):
    """Why there can be no sshd here."""


class SshHost:
    """A running sshd; ``destination`` and ``config`` are what ``ssh`` needs to reach it as root."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.config = folder / "ssh_config"

    @property
    def destination(self) -> str:
        """The node as the file has it."""
        return f"root@{HOST}:{self.port}"

    @property
    def log(self) -> str:
        """What the server has said so far."""
        return (self.folder / "sshd.log").read_text(encoding="utf-8", errors="replace")

    @property
    def commands(self) -> int:
        """How many commands it was asked to run so far."""
        return self.log.count("Starting session: command for root")

    def make_key(self, name: str) -> Path:
        """A new key pair beside the others; the private key's path."""
        key = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
        return key

    def know(self, key: Path) -> None:
        """Let the client know a host key, and no other one, as the node's."""
        public = key.with_name(f"{key.name}.pub").read_text(encoding="ascii")
        (self.folder / "known_hosts").write_text(f"[{HOST}]:{self.port} {public}", encoding="ascii")


@contextmanager
def ssh_host(lab: Lab, folder: Path, path: Path, ca: Path | None = None) -> Iterator[SshHost]:
    """A node's sshd while the context lasts; ``NoServerError`` where there can be none.

    ``path`` is first on its PATH; ``ca``: who signed the certificate of its API; without one it is no Proxmox.
    """
    server, libraries = server_program()
    host = SshHost(folder, _free_port())
    _write_files(host, path)
    if ca is not None:
        _write_proxmox(folder, ca)
    environment = {
        "PATH": os.environ["PATH"],
        "FOLDER": str(folder),
        "STATE": str(lab.state),
        "SSHD": str(server),
        "LD_LIBRARY_PATH": libraries,
    }
    # It dies with us: the kernel kills it, and with it, the first of its process namespace, all its sessions.
    dying = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with (
        (folder / "sshd.log").open("wb") as log,
        killed_at_end(
            subprocess.Popen(
                [*dying, "sh", "-c", INSIDE], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        ) as process,
    ):
        _wait(host, process)
        yield host


def server_program() -> tuple[Path, str]:
    """This machine's sshd, or that of Debian's package; and where libraries of it lie."""
    installed = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if installed:
        return Path(installed), ""
    kept = paths.cache() / "openssh-server"
    if not kept.exists():
        _fetch(kept)
    libraries = {str(file.parent) for file in kept.rglob("lib*.so*")}
    return kept / "usr/sbin/sshd", ":".join(sorted(libraries))


def _fetch(kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        _run(["apt-get", "download", *PACKAGES], folder)
        for package in sorted(Path(folder).glob("*.deb")):
            _run(["dpkg-deb", "--extract", str(package), "unpacked"], folder)
        unpacked = Path(folder, "unpacked")
        if not (unpacked / "usr/sbin/sshd").exists():
            raise NoServerError("the package openssh-server has no usr/sbin/sshd")
        try:
            unpacked.rename(kept)
        except OSError:
            if not kept.exists():  # else another run was faster
                raise


def _run(call: list[str], folder: str) -> None:
    try:
        subprocess.run(call, cwd=folder, check=True, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise NoServerError(f"no sshd is installed and {call[0]} cannot fetch one: {said.strip()}") from error


def _write_files(host: SshHost, path: Path) -> None:
    folder = host.folder
    key, user_key = host.make_key("host_key"), host.make_key("user_key")
    shutil.copy(user_key.with_suffix(".pub"), folder / "authorized_keys")
    host.know(key)
    search = f"{path}:{os.environ['PATH']}"
    config = CONFIG.format(port=host.port, host=HOST, folder=folder, path=search)
    helpers = paths.cache() / "openssh-server/usr/lib/openssh"
    for option, name in (("SshdSessionPath", "sshd-session"), ("SshdAuthPath", "sshd-auth")):
        if (helpers / name).exists():  # of OpenSSH 9.8 and later
            config += f"{option} {helpers / name}\n"
    users = {
        "passwd": f"root:x:0:0:root:{folder}/home:/bin/bash\nsshd:x:64000:65534::/run/sshd:/usr/sbin/nologin\n",
        "shadow": "root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n",
    }
    texts: Mapping[str, str] = {"sshd_config": config, "ssh_config": CLIENT.format(folder=folder), **users}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="ascii")


def _write_proxmox(folder: Path, ca: Path) -> None:
    """What is read of the cluster's files, and of the module that ``pct`` runs."""
    configs(folder).mkdir(parents=True)
    (folder / "etc/pve").mkdir(parents=True)
    (folder / "pve/local").symlink_to("nodes/pve1")
    shutil.copy(ca, folder / "pve/pve-root-ca.pem")
    module = folder / "share/perl5/PVE/CLI/pct.pm"
    module.parent.mkdir(parents=True)
    module.write_text(MODULE, encoding="ascii")


def configs(folder: Path) -> Path:
    """Where the node's own containers have their configuration, seen from outside."""
    return folder / "pve/nodes/pve1/lxc"


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _wait(host: SshHost, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection((HOST, host.port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise NoServerError(f"sshd did not start:\n{host.log}") from None
            time.sleep(POLL_S)
        else:
            return
