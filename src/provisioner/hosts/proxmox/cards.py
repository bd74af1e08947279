"""The cards of a Proxmox node, in root's shell on it, because its API knows nothing of cards."""

from __future__ import annotations

from provisioner.gpus import health, look
from provisioner.gpus.cards import Card
from provisioner.gpus.health import HostDriver, driver_in
from provisioner.gpus.look import LOOK_TIMEOUT_S, cards_in
from provisioner.hosts import base
from provisioner.hosts.proxmox.host import ProxmoxHost, worded
from provisioner.values.errors import UnavailableError
from provisioner.values.plain_data import Foreign


class Cards(base.Cards):
    """The cards of one node; ``PreflightError`` where the file gives no way to its shell."""

    _host: ProxmoxHost

    def read(self) -> tuple[Card, ...]:
        """The node's cards."""
        with worded(f"Unable to look at the graphics cards of host {self._host.host}"):
            return cards_in(self._answer(look.SCRIPT, "the graphics cards"))

    def driver(self) -> HostDriver:
        """What the node does for its cards; only root's shell there can tell."""
        with worded(f"Unable to look at the drivers of host {self._host.host}"):
            return driver_in(self._answer(health.SCRIPT, "the drivers"))

    def _answer(self, script: str, what: str) -> str:
        done = self._host.ssh.run(["sh", "-c", script], timeout_s=LOOK_TIMEOUT_S)
        if done.returncode:
            said = Foreign.of_output(done.stderr)
            raise UnavailableError(f"Unable to look at {what} of the node", details=said, resolution="See: dmesg")
        return done.stdout.decode(errors="replace")
