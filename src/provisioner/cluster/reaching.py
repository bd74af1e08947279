"""How a node is reached: the words of the command line, or the lab's file → ``Reach``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from provisioner.lab.opening import open_lab
from provisioner.labfile.hosts import ProxmoxHost
from provisioner.providers.proxmox.access import SSH_CONFIG, Access
from provisioner.providers.proxmox.shell import Shell
from provisioner.providers.proxmox.ssh_failures import Destination, destination_of, no_ssh
from provisioner.values.errors import InputError

DIRECT = "root@ADDRESS[:PORT]"
_DESTINATION = re.compile(r"[^\s-]\S*@[^\s@:-][^\s@]*")
"""A user and a host, neither of which ssh could take for an option."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A node as the user names it, and how it is reached: ``ssh`` is [USER@]HOST[:PORT], ``ssh_config`` for ``-F``."""

    name: str
    ssh: str
    ssh_config: Path | None = None

    @property
    def destination(self) -> Destination:
        """``ssh`` taken apart."""
        return destination_of(self.ssh)

    @property
    def shell(self) -> Shell:
        """Runs commands there."""
        return Shell(Access(url="", user="", ssh=self.ssh, ssh_config=self.ssh_config))

    def at(self, address: str, name: str = "") -> Reach:
        """The node at ``address``, with the same user, port and configuration."""
        to = self.destination
        user, at, _ = to.login.rpartition("@")
        host = f"[{address}]" if ":" in address else address
        port = f":{to.port}" if to.port else ""
        return replace(self, name=name or address, ssh=f"{user}{at}{host}{port}")


def reach(words: str, file: Path) -> Reach:
    """How to reach the node that ``words`` name: a Proxmox host of ``file``, or ``root@ADDRESS[:PORT]``.

    Without words it is the file's only Proxmox host. ``InputError`` says which there are; ``PreflightError``: the file
    gives no way in.
    """
    config = os.environ.get(SSH_CONFIG)
    ssh_config = Path(config) if config else None
    if "@" in words:
        return Reach(words, destination_checked(words), ssh_config)
    hosts = _proxmox_hosts(words, file)
    name = words
    if not words and len(hosts) == 1:
        (name,) = hosts
    if name not in hosts:
        raise _unknown(words, file, tuple(hosts))
    ssh = hosts[name].ssh
    if ssh is None:
        raise no_ssh(f"Unable to reach {name}")
    return Reach(name, ssh, ssh_config)


def destination_checked(words: str) -> str:
    """``words`` when ssh can take them as a destination; else ``InputError``."""
    if not _DESTINATION.fullmatch(words):
        raise InputError(f"Unable to use {words!r} as a host", resolution=f"Write {DIRECT}.")
    destination_of(words)
    return words


def _proxmox_hosts(words: str, file: Path) -> dict[str, ProxmoxHost]:
    if not file.is_file():
        what = f"no host is named, and there is no {file}"
        if words:
            what = f"{words} is no host: there is no {file}"
        raise InputError(f"Unable to find the cluster: {what}", resolution=f"Name a node: {DIRECT}.")
    hosts = open_lab(file, needs="none").resolved.hosts
    return {name: host for name, host in hosts.items() if isinstance(host, ProxmoxHost)}


def _unknown(words: str, file: Path, names: tuple[str, ...]) -> InputError:
    """The error for words that name none of the file's Proxmox hosts, or for no words where it has not just one."""
    known = f"Its Proxmox hosts are: {', '.join(names)}." if names else "It has no Proxmox host."
    resolution = f"Name one of them, or write {DIRECT}."
    if words:
        return InputError(f"Unable to find host {words} in {file}", details=known, resolution=resolution)
    if names:
        return InputError(f"Unable to choose one of {file}'s hosts", details=known, resolution="Name one.")
    return InputError(f"Unable to find a Proxmox host in {file}", details=known, resolution=resolution)
