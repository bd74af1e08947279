"""Restarts xrdp when nobody has a session: at once, or by a unit that waits for that. ``restart.py [--wait]``.

A restart leaves the sessions that there are to nobody: who logs in again gets a second desktop beside the first.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from sessions import sessions

UNIT = "desktop-restart.service"
XRDP = "xrdp.service"
POLL_S = 15.0


def main(words: list[str]) -> None:
    """Restart, or have it done later; says which."""
    if words == ["--wait"]:
        while sessions():
            time.sleep(POLL_S)
    open_ones = sessions()
    if not open_ones:
        run("systemctl", "restart", XRDP)
        sys.stdout.write("restarted\n")
        return
    if not is_planned():
        waiting = ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}", "--description=Restart xrdp when idle"]
        run(*waiting, sys.executable, str(Path(__file__).resolve()), "--wait")
    users = ", ".join(sorted({one.user for one in open_ones}))
    sys.stdout.write(f"planned: xrdp is restarted when the last session ends (now: {users})\n")


def is_planned() -> bool:
    """Whether a unit waits already."""
    return subprocess.run(["systemctl", "is-active", "--quiet", UNIT], check=False).returncode == 0


def run(*command: str) -> None:
    """Run it; its own words where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"Unable to run {' '.join(command)}: {done.stderr.strip()}")


if __name__ == "__main__":
    main(sys.argv[1:])
