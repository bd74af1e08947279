"""Read the cards of a Proxmox node and prepare them in root's shell on it, because its API knows nothing of cards."""

from __future__ import annotations

from provisioner.gpus import health, look
from provisioner.gpus.cards import Card
from provisioner.gpus.health import HostDriver, driver_in
from provisioner.gpus.look import LOOK_TIMEOUT_S, cards_in
from provisioner.providers.proxmox.shell import Shell
from provisioner.values.errors import UnavailableError
from provisioner.values.plain_data import Foreign


def cards(shell: Shell) -> tuple[Card, ...]:
    """The node's cards; ``PreflightError`` where the file gives no way to it."""
    return cards_in(_answer(shell, look.SCRIPT, "the graphics cards"))


def host_driver(shell: Shell) -> HostDriver:
    """What the node does for its cards; ``PreflightError`` where the file gives no way to it."""
    return driver_in(_answer(shell, health.SCRIPT, "the drivers"))


def _answer(shell: Shell, script: str, what: str) -> str:
    done = shell.run(["sh", "-c", script], timeout_s=LOOK_TIMEOUT_S)
    if done.returncode:
        said = Foreign.of_output(done.stderr)
        raise UnavailableError(f"Unable to look at {what} of the node", details=said, resolution="See: dmesg")
    return done.stdout.decode(errors="replace")
