"""Real module servers on this machine: payloads run by them, and the usual way."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provisioner.inside.module_server.handing import ModuleServer, Notes, Served, hand_over, served, stop_command
from tests.module_payloads import PYTHON
from tests.waiting import wait_until

VERSION = "2.19.0"
Result = tuple[int, bytes, bytes]
TIMEOUT_S = 120


@dataclass
class Box:
    """One container as the controller sees it: here it is this machine, with a folder of its own for the server."""

    folder: Path
    python: str = PYTHON
    idle_s: float = 60.0
    name: str = "web"
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else a process is started with, such as its folder."""

    @property
    def root(self) -> Path:
        """The folder of the sockets."""
        return self.folder / "root"

    @property
    def command(self) -> str:
        """What Ansible would have a shell run."""
        return f"/bin/sh -c '{self.python} && sleep 0'"

    def run(self, argv: Sequence[str], stdin: bytes) -> Result:
        """Run a command in the container."""
        # Modules that are killed leave their folders behind.
        given = {"PATH": os.defpath, "HOME": "/root", "LANG": "C.UTF-8", "TMPDIR": str(self.folder), **self.environment}
        options = {"cwd": "/", **self.options}
        done = subprocess.run(
            argv, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False, env=given, **options
        )
        return done.returncode, done.stdout, done.stderr

    def usual(self, payload: bytes) -> Result:
        """Run the payload as Ansible does."""
        return self.run(["/bin/sh", "-c", self.command], payload)

    def offered(self, payload: bytes, command: str = "", version: str = VERSION) -> Result | None:
        """Run the payload as a connection plugin does; None where that would go on the usual way."""
        server = ModuleServer(self.run, self.notes, root=str(self.root), idle_s=self.idle_s)
        return hand_over(command or self.command, payload, version=version, server=server)

    def served(self, payload: bytes) -> Result:
        """Run the payload by the server; fails when it went the usual way."""
        before = self.counted.served
        result = self.offered(payload)
        assert result is not None, self.counted
        assert self.counted.served == before + 1, self.counted
        return result

    @property
    def notes(self) -> Notes:
        """What the run knows."""
        return Notes(self.folder, self.name)

    @property
    def counted(self) -> Served:
        """What was served until now."""
        return served(self.folder)

    @property
    def sockets(self) -> list[Path]:
        """The servers' sockets."""
        return sorted(self.root.glob("*")) if self.root.exists() else []

    def server(self) -> int:
        """The number of the server's process."""
        (path,) = self.sockets
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(path))
            about = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid: int = struct.unpack("3i", about)[0]
        return pid

    def stop(self) -> None:
        """End the servers, and see that nothing is left of them."""
        pids = [self.server()] if self.sockets and is_served(self.sockets[0]) else []
        self.run(stop_command(self.python, str(self.root)), b"")
        for pid in pids:
            wait_until(has_ended(pid))


def is_served(path: Path) -> bool:
    """Whether anybody listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        return connection.connect_ex(str(path)) == 0


def has_ended(pid: int) -> Callable[[], bool]:
    """Tells whether the process is no more; one that only waits for its parent is none."""

    def look() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    return look
