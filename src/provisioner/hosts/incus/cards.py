"""Cards of the machine that an Incus is on: what they are, what is done for them, and their nodes made again."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING

from provisioner.gpus import health, look
from provisioner.gpus.cards import Card
from provisioner.gpus.health import UNIT, HostDriver, driver_in
from provisioner.gpus.look import LOOK_TIMEOUT_S, cards_in
from provisioner.hosts import base
from provisioner.values.errors import ProviderError, UnavailableError

if TYPE_CHECKING:
    from provisioner.hosts.incus.inside import IncusHost

MODPROBE = ("nvidia-modprobe", "-u", "-c", "0")
"""Makes the nodes of unified memory, and no others: those of the cards are asked for without -u."""
CONTROL_MINOR = "255"
_CARD_NODE = re.compile(r"/dev/nvidia(\d+)")


class Cards(base.Cards):
    """The cards of this machine, which is the one that a unix socket leads to; those of others cannot be read."""

    _host: IncusHost

    def read(self) -> tuple[Card, ...]:
        """The cards; ``UnavailableError`` when looking fails, or takes longer than ``LOOK_TIMEOUT_S``."""
        self._host.require_here("look at its graphics cards")
        return cards_in(_answer(look.SCRIPT, "the graphics cards"))

    def driver(self) -> HostDriver:
        """What this machine does for its cards; ``UnavailableError`` when looking fails."""
        self._host.require_here("look at the drivers of its graphics cards")
        return driver_in(_answer(health.SCRIPT, "the drivers"))

    def repair(self) -> str:
        """Start the unit of role ``gpu_host`` that makes the nodes of NVIDIA's cards, or make them as it does."""
        if self._host.endpoint.is_remote:
            return ""
        missing = set[str]()
        for card in self.read():
            if card.driver == "nvidia":
                missing.update(card.missing)
        if not missing:
            return ""
        if _run(["systemctl", "cat", UNIT]).returncode == 0:
            return _done(["systemctl", "restart", UNIT])
        options = list[str]()
        for path in sorted(missing):
            node = _CARD_NODE.fullmatch(path)
            if node:
                options += ["-c", node[1]]
        made = _done([MODPROBE[0], *options, "-c", CONTROL_MINOR])
        return f"{made} and {_done(MODPROBE)}"


def _answer(script: str, what: str) -> str:
    done = _run(["sh", "-c", script])
    if done.returncode:
        raise UnavailableError(
            f"Unable to look at {what} of this machine", details=done.stderr.strip(), resolution="See: dmesg"
        )
    return done.stdout


def _done(command: Sequence[str]) -> str:
    done = _run(command)
    if done.returncode:
        raise ProviderError(
            f"Unable to make the nodes of the cards: {command[0]} ended with {done.returncode}",
            details=(done.stderr or done.stdout).strip(),
            resolution="Run it as root (sudo provision doctor --fix); dmesg on this machine says more.",
        )
    return f"ran {' '.join(command)}"


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What a program of this machine gave; 127 where there is none of that name."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LOOK_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", f"there is no {command[0]}")
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"Unable to wait for {command[0]}: it has not ended after {LOOK_TIMEOUT_S:.0f} s", resolution="See: dmesg"
        ) from error
