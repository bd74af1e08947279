"""pyinfra 3 beside ours: the same containers over ssh, as its users reach theirs, and an equivalent deploy."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.labs import BenchLab
from benchmarks.measuring import Cost, cost, say
from benchmarks.peers import MissingPeerError, pyinfra

DEPLOY = Path(__file__).with_name("pyinfra_deploy.py")
UNIT = "/etc/systemd/system/llama-server.service"
DESCRIPTION = "Description=llama.cpp server\n"
SSHD = (
    "test -x /usr/sbin/sshd || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive "
    "apt-get install -y -qq --no-install-recommends openssh-server; }; mkdir -p -m 700 /root/.ssh"
)
PARALLEL_INSTALLS = 4
OPERATIONS = 5
UNCHANGED = 4
"""Of each host's operations those that must find nothing to do."""


@dataclass
class Pyinfra:
    """A lab that pyinfra can reach."""

    lab: BenchLab
    _command: Path = field(init=False)

    def prepare(self) -> None:
        """Install pyinfra here and sshd in the containers; ``MissingPeerError`` when that is not possible."""
        self._command = pyinfra()
        if shutil.which("ssh-keygen") is None:
            raise MissingPeerError("ssh-keygen is missing here")
        key = self.lab.folder / "ssh_key"
        if not key.exists():
            say(f"installing sshd in the containers of {self.lab.name}")
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
            with ThreadPoolExecutor(PARALLEL_INSTALLS) as pool:
                list(pool.map(self._serve_ssh, self.lab.containers))
        self._write_inventory(key)

    def _serve_ssh(self, name: str) -> None:
        try:
            self.lab.inside(name, SSHD)
        except RuntimeError as error:
            raise MissingPeerError(f"no sshd in {name}: {error}") from error
        public = (self.lab.folder / "ssh_key.pub").read_bytes()
        self.lab.provider.push(name, public, "/root/.ssh/authorized_keys")

    def _write_inventory(self, key: Path) -> None:
        secret = (self.lab.folder / "secrets.env").read_text(encoding="utf-8").strip().partition("=")[2]
        data = {
            "ssh_user": "root",
            "ssh_key": str(key),
            "ssh_strict_host_key_checking": "no",
            "ssh_known_hosts_file": str(self.lab.folder / "known_hosts"),
            "engine_key": secret,
            "unit_template": str(self.lab.folder / "unit.j2"),
        }
        # What the role has written, with a variable in it: else the two would undo each other's work in turns.
        written = self.lab.inside(self.lab.containers[0], f"cat {UNIT}").decode()
        before, _, after = written.partition(DESCRIPTION)
        raw, line = "{{% raw %}}{}{{% endraw %}}".format, "Description={{ description }}\n"
        (self.lab.folder / "unit.j2").write_text(raw(before) + line + raw(after), encoding="utf-8")
        hosts = [(address, data) for address in self.lab.addresses.values()]
        (self.lab.folder / "pyinfra_inventory.py").write_text(f"hosts = {hosts!r}\n", encoding="utf-8")

    def deploy(self) -> Cost:
        """What the deploy took, which must have found everything as it should be."""
        command = [str(self._command), "-y", str(self.lab.folder / "pyinfra_inventory.py"), str(DEPLOY)]
        done = self.lab.watched(lambda: cost(command, {}, self.lab.folder))
        total = done.stderr.partition("Grand total")[2].split()
        # operations, successes (only the question for the health), errors, no change
        if total[:4] != [str(OPERATIONS * self.lab.size), str(self.lab.size), "-", str(UNCHANGED * self.lab.size)]:
            raise RuntimeError(f"Unable to measure a no-op: pyinfra has changed something\n{done.stderr[-3000:]}")
        return done
