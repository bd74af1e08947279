"""LXC's own programs on the node, for the double's containers that run: ``lxc-attach`` and ``lxc-info``.

Both are as quick as LXC's: on a node ``lxc-attach -n N --clear-env -- true`` took 0.011 s and ``pct exec`` 1.1 s
(measured, PVE 9.2.11). What they do was seen with those of LXC 5.0.2: the command runs in the namespaces and control
groups of the container, as root, in the caller's working directory where the container has such a one, with the
caller's environment or a usual PATH, and with ``container=lxc``; with a terminal it gets one of the container's own.
"""

from __future__ import annotations

import ast
import os
import shutil
import socket
import socketserver
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.doubles.proxmox.incus_containers import IncusContainers
from tests.doubles.proxmox.programs import write

FAILED = 1
"""What ``lxc-attach`` ends with when it could not begin."""
SAID_BYTES = 1 << 20
USUAL = {b"PATH": b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
"""All that is left of an environment that is cleared."""

# It imports nothing that takes time: it is to be as quick as the real one. What enters the container is a child of the
# double, which gets the client's descriptors: the node's sshd lives in a process namespace of its own, from which no
# other one's can be entered.
ATTACH = """#!{python} -IS
import _socket, posix, sys
vmid = sys.argv[sys.argv.index("-n") + 1]
if any(map(posix.isatty, range(3))):
    kept = {{}} if "--clear-env" in sys.argv else posix.environ
    words = sys.argv[sys.argv.index("--") + 1:]
    environment = [b"--env=" + name + b"=" + value for name, value in kept.items()]
    call = [{incus!r}, "exec", "--mode", "interactive", *environment, {name!r} + vmid, "--", *words]
    posix.execve({incus!r}, call, {{**posix.environ, b"INCUS_DIR": {state!r}}})
service = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
service.connect({service!r})
descriptors = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
service.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
service.sendall(repr((sys.argv[1:], dict(posix.environ), posix.getcwd())).encode())
service.shutdown(_socket.SHUT_WR)
sys.exit(int(service.recv(16) or b"{failed}"))
"""
INFO = """#!/bin/sh
name={name}$2
grep -q "@{state}/containers/$name/command" /proc/net/unix || {{ echo STOPPED; exit 0; }}
groups=/sys/fs/cgroup
if grep -qs FROZEN "$groups/freezer/lxc.payload.$name/freezer.state" ||
  grep -qsx 'frozen 1' "$groups/lxc.payload.$name/cgroup.events"; then echo FROZEN; else echo RUNNING; fi
"""
JOIN = """
for group in /sys/fs/cgroup/*/lxc.payload.$1 /sys/fs/cgroup/lxc.payload.$1/.lxc; do
  [ ! -d "$group" ] || echo 0 >"$group/cgroup.procs" || exit 1
done
shift
exec "$@"
"""
ARRIVE = 'cd "$1" 2>/dev/null; shift; exec "$@"'


class Lxc:
    """The service behind ``lxc-attach``; both programs lie in ``bin``, and ``attached`` has the words of each call."""

    def __init__(self, containers: IncusContainers, bin_folder: Path, folder: Path) -> None:
        self.attached: list[list[str]] = []
        self._containers = containers
        address = folder / "lxc-attach.socket"
        names = {"name": containers.name_prefix, "state": str(containers.lab.state), "failed": str(FAILED)}
        incus = shutil.which("incus") or "incus"
        write(bin_folder / "lxc-attach", ATTACH, service=str(address), incus=incus, **names)
        write(bin_folder / "lxc-info", INFO, **names)
        self._server = _Service(str(address), _Handler)
        self._server.lxc = self
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Answer no longer."""
        self._server.shutdown()
        self._server.server_close()

    def attach(self, argv: Sequence[str], environment: dict[bytes, bytes], cwd: str, descriptors: Sequence[int]) -> int:
        """Run what ``lxc-attach`` was told in the container until it ends, and return its exit code."""
        self.attached.append(list(argv))
        vmid = int(argv[argv.index("-n") + 1])
        init = self._containers.init(vmid)
        if init is None:
            os.write(descriptors[2], f"lxc-attach: {vmid}: Failed to get init pid\n".encode())
            return FAILED
        words = argv[argv.index("--") + 1 :]
        entering = [shutil.which("nsenter") or "nsenter", "--all", "--target", str(init)]
        inside = ["/bin/sh", "-c", ARRIVE, "sh", cwd, *words]
        name = self._containers.name(vmid)
        done = subprocess.run(
            ["/bin/sh", "-c", JOIN, "sh", name, *entering, "--", *inside],
            stdin=descriptors[0],
            stdout=descriptors[1],
            stderr=descriptors[2],
            env={**(USUAL if "--clear-env" in argv else environment), b"container": b"lxc"},
            cwd="/",
            start_new_session=True,
            check=False,
        )
        return done.returncode if done.returncode >= 0 else 128 - done.returncode


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server = self.server
        if not isinstance(server, _Service):
            raise TypeError(type(server))
        _, descriptors, _, _ = socket.recv_fds(self.request, 1, 3)
        try:
            with self.request.makefile("rb") as file:
                argv, environment, cwd = ast.literal_eval(file.read(SAID_BYTES).decode())
            code = server.lxc.attach(argv, environment, cwd, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        with suppress(BrokenPipeError):  # the client was killed: what it started has gone on
            self.request.sendall(str(code).encode())


class _Service(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64
    lxc: Lxc
