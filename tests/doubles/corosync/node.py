"""One node: a container of the lab with corosync, an sshd, and the stand-ins."""

from __future__ import annotations

import fcntl
import io
import itertools
import random
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Interface
from pathlib import Path

from provisioner.hosts.incus import IncusProvider
from tests.doubles.corosync.incus_cli import incus, query
from tests.lab.incus import RUN, Lab

RUN_TIMEOUT_S = 300.0
WAIT_S = 180.0
"""For what takes five seconds on a machine with nothing else to do."""
POLL_S = 0.2
HERE = Path(__file__).parent
UNIT = "lab-endless"
ARP_S = 0.2
DISCARD_PORT = 9
DIAGNOSE = """\
corosync-quorumtool -s
systemctl --no-pager status corosync pve-cluster
journalctl --no-pager -n 40
"""


class CommandError(Exception):
    """A command on a node failed: what it was and what it said."""


@dataclass
class Node:
    """``name`` in the cluster, ``instance`` in Incus, ``address`` where corosync and ssh are now."""

    name: str
    instance: str
    address: str
    lab: Lab
    home: str = ""
    is_off: bool = False
    host_keys: list[str] = field(default_factory=list)

    def run(self, command: str, check: bool = True, stdin: bytes = b"") -> str:
        """Run a shell command as root and give both outputs as one; ``CommandError`` when it fails and ``check``."""
        code, output = self.try_run(command, stdin)
        if check and code:
            raise CommandError(f"{self.name}: {command}\nexit code {code}\n{output}")
        return output

    def try_run(self, command: str, stdin: bytes = b"") -> tuple[int, str]:
        """The exit code and both outputs as one."""
        shell = ["sh", "-c", f"exec 2>&1\n{command}"]
        done = IncusProvider("box").execute(self.instance, shell, stdin=stdin, timeout_s=RUN_TIMEOUT_S)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    def write(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        """Put a file there."""
        content = data.encode() if isinstance(data, str) else data
        self.run(f"cat > {path} && chmod {mode:o} {path}", stdin=content)

    def read(self, path: str) -> str:
        """A file's text."""
        return self.run(f"cat {path}")

    def can(self, command: str) -> bool:
        """Whether it succeeds."""
        return self.try_run(command)[0] == 0

    def wait(self, what: str, is_so: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """Return when it is so; ``TimeoutError`` with the state of corosync, else."""
        deadline = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > deadline:
                _, state = self.try_run(DIAGNOSE)
                raise TimeoutError(f"{self.name}: not {what} after {timeout_s:.0f} s\n{state}")
            time.sleep(POLL_S)

    def wait_for(self, what: str, command: str) -> None:
        """Return when a shell command succeeds; ``TimeoutError``, else."""
        self.wait(what, lambda: self.can(command))

    def kill_when_it_says(self, words: str, command: str) -> str:
        """Start a shell command that would not end, kill it when its output has these words, and give that output."""
        file, unit = f"/run/{UNIT}", f"{UNIT}.service"
        service = f"--unit {unit} --collect --working-directory=/tmp -p StandardOutput=truncate:{file}"
        self.run(f"rm -f {file}; systemd-run -q {service} sh -c '{command}'")
        self.wait_for(f"saying {words!r}", f"grep -qF '{words}' {file}")
        self.run(f"systemctl is-active {unit} && systemctl kill --signal KILL {unit}")
        self.wait("killed", lambda: not self.can(f"systemctl is-active {unit}"))
        return self.read(file)

    def wait_until_started(self) -> None:
        """Return when systemd has started everything."""
        started = {"running", "degraded"}
        self.wait("started", lambda: self.run("systemctl is-system-running", check=False).strip() in started)

    def is_quorate(self, votes: int = 0) -> bool:
        """Whether corosync says so, with that many votes in its partition when a number is given."""
        code, said = self.try_run("corosync-quorumtool -s")
        total = next((line.split()[-1] for line in said.splitlines() if line.startswith("Total votes:")), "0")
        return code == 0 and (not votes or int(total) == votes)

    def use_address(self, address: str) -> None:
        """Have this one address, now and after a start; nobody else of the lab gets it."""
        if address == self.address:
            return
        incus(self.lab, "config", "device", "set", self.instance, "eth0", f"ipv4.address={address}")
        self.write("/etc/systemd/network/eth0.network", network_text(self.lab, address))
        prefix = IPv4Interface(self.lab.subnet).network.prefixlen
        self.run(f"ip address add {address}/{prefix} dev eth0 && ip address del {self.address}/{prefix} dev eth0")
        self.address = address


def network_text(lab: Lab, address: str) -> str:
    """The node's network, for systemd: no DHCP."""
    bridge = IPv4Interface(lab.subnet)
    return (
        "[Match]\nName=eth0\n\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
        f"Address={address}/{bridge.network.prefixlen}\nGateway={bridge.ip}\n"
    )


@contextmanager
def free_addresses(lab: Lab, count: int) -> Iterator[list[str]]:
    """Addresses of the lab's network that nobody has or has reserved; while it lasts no other run takes any."""
    with (RUN / "corosync-address.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        taken = {lease["address"] for lease in query(lab, f"/1.0/networks/{lab.bridge}/leases")}
        for one in query(lab, "/1.0/instances?recursion=1"):
            taken.update(device.get("ipv4.address", "") for device in one["devices"].values())
        hosts = [str(host) for host in IPv4Interface(lab.subnet).network.hosts()][1:]
        random.shuffle(hosts)
        free = (address for address in hosts if address not in taken and not _answers(address))
        yield list(itertools.islice(free, count))


def _answers(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"", (address, DISCARD_PORT))  # the kernel asks for its hardware address
    time.sleep(ARP_S)
    shown = subprocess.run(
        ["ip", "neighbour", "show", "to", address], capture_output=True, text=True, check=True, timeout=60
    )
    return "lladdr" in shown.stdout


def standins() -> bytes:
    """All that a node gets beside Debian's packages, as a tar archive of its root."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for file in sorted((HERE / "standin").glob("*.py")):
            archive.add(file, f"usr/lib/pve-lab/standin/{file.name}")
        for file in sorted(path for path in (HERE / "rootfs").rglob("*") if path.is_file()):
            archive.add(file, str(file.relative_to(HERE / "rootfs")))
    return buffer.getvalue()
