"""What an engine's unit runs before each start where it shares a card: ends once it is the engine's turn.

``claim.py --socket PATH --within SECONDS``, by an ``ExecCondition`` of systemd, which goes on after 0 and leaves the
engine alone, without an error, after 1. Any other exit code is a failure.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from control import ANSWER_S, SYSTEMCTL, folder_of, unit_state
from neighbours import CLAIM, NotThereError, RefusedError, asks_of, posted

POLL_S = 0.25
GO_ON, SKIPPED, FAILED = 0, 1, 255
BOOTING = ("initializing", "starting")


def claim(socket_path: Path, within_s: float) -> int:
    """Ask the keeper until it is the engine's turn; the exit code.

    While the container starts nobody has asked for the engine, so it only goes on if it is its turn already.
    """
    is_booting = starts_now()
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if posted(asks_of(socket_path), CLAIM, {"wants": not is_booting}).get("granted") is True:
                return GO_ON
        except NotThereError:
            code = without_keeper(f"{folder_of(socket_path).name}.service")
            if code is not None:
                return code
        if is_booting:
            return SKIPPED
        time.sleep(POLL_S)
    sys.stderr.write(f"Not started: those who share the card have kept it for {within_s:g} s.\n")
    return FAILED


def starts_now() -> bool:
    """Whether systemd still starts what belongs to the container."""
    command = [SYSTEMCTL, "is-system-running"]
    said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=ANSWER_S)
    return said.stdout.strip() in BOOTING


def without_keeper(unit: str) -> int | None:
    """What follows where no keeper answers; None while one is about to come.

    One that cannot run any more never comes back: then the engine goes on without one.
    """
    word, has_job = unit_state(unit)
    if word == "failed":
        return GO_ON
    if word == "inactive" and not has_job:
        sys.stderr.write(f"Not started: {unit} does not run, which knows whose turn it is.\n")
        return SKIPPED
    return None


def main(words: Sequence[str]) -> int:
    """Do what is asked; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--within", type=float, required=True)
    asked = parser.parse_args(words)
    try:
        return claim(asked.socket, asked.within)
    except (RefusedError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"Not started: nobody says whose turn it is: {error}.\n")
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
