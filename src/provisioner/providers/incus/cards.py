"""Looking at the cards of this machine."""

from __future__ import annotations

import subprocess

from provisioner.errors import UnavailableError
from provisioner.gpus.cards import Card
from provisioner.gpus.look import LOOK_TIMEOUT_S, SCRIPT, cards_in


def look_here() -> tuple[Card, ...]:
    """The cards of this machine; ``UnavailableError`` when looking fails, or takes longer than ``LOOK_TIMEOUT_S``."""
    message = "Unable to look at the graphics cards of this machine"
    try:
        done = subprocess.run(
            ["sh", "-s"],
            input=SCRIPT,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LOOK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(message, details=str(error), resolution="See: nvidia-smi; dmesg") from error
    if done.returncode:
        raise UnavailableError(message, details=done.stderr.strip(), resolution="See: provision doctor")
    return cards_in(done.stdout)
