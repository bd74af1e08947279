"""Ansible straight to a container, through its own sshd: by ansible-core's ``ssh``, and what that needs on both sides.

The node, which is trusted already, puts our key into the container and tells the keys of its sshd, each time anew: only
what shows one of those is let know anything, and no key is ever taken up because somebody showed it.
"""

from __future__ import annotations

import re
import secrets
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from provisioner.providers.proxmox import inside
from provisioner.providers.proxmox.access import Direct
from provisioner.providers.proxmox.client_key import made_key, public_part
from provisioner.providers.proxmox.guest import address_in
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.providers.proxmox.shell import CONNECT_TIMEOUT_S, Shell, ssh_environment
from provisioner.providers.proxmox.ssh_failures import reason
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Status

JUMP = "jump"
USER = "root"
OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "GlobalKnownHostsFile=/dev/null",
    "CheckHostIP=no",
    "UpdateHostKeys=no",
    "IdentitiesOnly=yes",
    "PreferredAuthentications=publickey",
    f"ConnectTimeout={CONNECT_TIMEOUT_S}",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "LogLevel=ERROR",
)
SHARED = ("-oControlMaster=auto", "-oControlPersist=60s")
PREPARE_TIMEOUT_S = 60.0
_NO_SSHD = 3
_HOST_KEY = re.compile(r"((?:ssh|ecdsa|sk)-[\w@.-]+) ([A-Za-z0-9+/=]+)(?: |$)")
_PREPARE = """
command -v sshd >/dev/null || exit 3
umask 077
mkdir -p /root/.ssh || exit 1
file=/root/.ssh/authorized_keys
touch "$file" || exit 1
sed 's/^ *#.*//' "$file" | grep -qF -e "$1" || {
  [ -z "$(tail -c 1 "$file")" ] || echo
  printf '%s\\n' "$2"
} >>"$file" || exit 1
cat /etc/ssh/ssh_host_*_key.pub
"""


@dataclass(frozen=True, slots=True)
class Way:
    """How one container's sshd is reached; ``proxy``: the command that leads there through the node."""

    name: str
    vmid: int
    address: str
    key: Path
    known: Path
    proxy: str = ""

    def options(self) -> list[str]:
        """The options of ``ssh``; no configuration of the user's counts."""
        own = (
            f"HostKeyAlias={self.name}",
            f"UserKnownHostsFile={_quoted(self.known)}",
            f"IdentityFile={_quoted(self.key)}",
            *([f"ProxyCommand={self.proxy}"] if self.proxy else ()),
        )
        return ["-F/dev/null", *(f"-o{option}" for option in (*OPTIONS, *own))]


def variables(host: ProxmoxHost, direct: Direct, name: str) -> dict[str, str]:
    """The inventory variables by which Ansible reaches the container, which is made ready for it and tried."""
    what = f"Unable to reach container {name} by its own sshd"
    vmid = host.vmid(name, what)
    address = _address(host, vmid, what)
    key = direct.key or made_key(direct.folder)
    public = public_part(key)
    known = direct.folder / f"{name}.known_hosts"
    _write(known, _known_hosts(name, _prepared(host.ssh, vmid, public, name)))
    proxy = _proxy(host.ssh) if direct.ways[name] == JUMP else ""
    way = Way(name, vmid, address, key, known, proxy)
    _try(way)
    return {
        "ansible_connection": "ssh",
        "ansible_host": address,
        "ansible_port": "22",
        "ansible_user": USER,
        "ansible_ssh_args": shlex.join([*way.options(), *SHARED]),
        # One of its own for each run: what an earlier one has shared may lead to a container that is no more.
        "ansible_control_path": f"%(directory)s/p-{secrets.token_hex(4)}",
        "provision_instance": name,
    }


def _address(host: ProxmoxHost, vmid: int, what: str) -> str:
    if host.status(vmid) is not Status.RUNNING:
        raise ProviderError(what, details="It does not run.", resolution="Start it: provision up")
    seen = host.client.get(*host.path(vmid, "interfaces"))
    address = address_in(seen) or address_in(seen, version=6)
    if address is None:
        raise ProviderError(
            what,
            details="Its card has no address that others can use.",
            resolution="Give it one (proxmox: { network: { ip: ADDRESS/PREFIX } }), or write transport: pct.",
        )
    return address


def _prepared(shell: Shell, vmid: int, public: str, name: str) -> str:
    """Have our key let in; the public parts of its sshd's keys, a line each."""
    what = f"Unable to make container {name} ready for ssh"
    kind, blob, *_ = public.split()
    command = ["sh", "-c", _PREPARE, "sh", f"{kind} {blob}", public]
    done = inside.execute(shell, vmid, command, timeout_s=PREPARE_TIMEOUT_S, name=name)
    if done.returncode == _NO_SSHD:
        raise ProviderError(
            what,
            details="There is no sshd in it.",
            resolution=f"On its node: pct exec {vmid} -- apt-get install openssh-server; or write transport: pct.",
        )
    if done.returncode:
        raise ProviderError(
            what,
            details=Foreign.of_output(done.stderr),
            resolution=f"Where its sshd has no keys: pct exec {vmid} -- ssh-keygen -A",
        )
    return done.stdout.decode(errors="replace")


def _known_hosts(name: str, told: str) -> str:
    keys = [match for line in told.splitlines() if (match := _HOST_KEY.match(line))]
    if not keys:
        raise ProviderError(f"Unable to tell the host keys of container {name}", details=told.strip())
    return "".join(f"{name} {match[1]} {match[2]}\n" for match in keys)


def _try(way: Way) -> None:
    """Log in once; ``ProviderError`` says why not, and what to do."""
    call = ["ssh", *way.options(), "-T", "--", f"{USER}@{way.address}", "true"]
    try:
        done = subprocess.run(
            call,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=ssh_environment(),
            timeout=3 * CONNECT_TIMEOUT_S,
            check=False,
        )
        said, is_in = str(Foreign.of_output(done.stderr)), done.returncode == 0
    except subprocess.TimeoutExpired as error:
        said, is_in = f"ssh timed out after {error.timeout:.0f} s", False
    if not is_in:
        raise ProviderError(
            f"Unable to reach container {way.name} at {way.address} by ssh",
            details=said or "It ended without a word.",
            resolution=_advice(reason(said), way),
        )


def _advice(why: str, way: Way) -> str:
    on_node = f"pct exec {way.vmid} --"
    stranger = (
        f"What answers at {way.address} shows none of the keys in /etc/ssh/ssh_host_*_key.pub of the container, as its "
        f"node tells them. Were they made anew while its sshd ran ({on_node} systemctl restart ssh), does its "
        "sshd_config name others (HostKey), or has another machine that address? If not, somebody may stand between."
    )
    return {
        "changed key": stranger,
        "unknown key": stranger,
        "refused key": "Its sshd lets root in by no key, though ours is in /root/.ssh/authorized_keys. See what it "
        f"goes by: {on_node} sshd -T (PermitRootLogin prohibit-password, PubkeyAuthentication yes).",
        "refused": f"Does its sshd run, on port 22? {on_node} systemctl enable --now ssh",
        "silent": "Does a firewall let port 22 pass? Where only its node has a way to it, write transport: jump; "
        "or transport: pct.",
    }.get(why, "Or write transport: pct.")


def _proxy(shell: Shell) -> str:
    """The command that leads ``ssh`` through the node, over the connection that is shared with it."""
    shell.open()
    options = [option.replace("%", "%%") for option in shell.options()]
    return shlex.join(["ssh", *options, "-W", "[%h]:%p", "--", shell.destination.login])


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    partial.write_text(text, encoding="ascii")
    partial.replace(target)


def _quoted(path: Path) -> str:
    """A path in a value of an option: spaces part names there, and ``%`` begins a token."""
    return '"' + str(path).replace("%", "%%") + '"'
