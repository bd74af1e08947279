"""How long starts of an engine took, which is about how long requests wait while it is exchanged.

``starts.py --socket PATH --unit NAME`` prints how the switch stands, and notes the start of the engine that answers
now, once for each start. A proof says it. The keeper of an engine notes those that a request asked for.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from control import Switch, SwitchError, folder_of, shown, state

SLOT = "a"
KEPT_STARTS = 5
BEGAN = "ExecMainStartTimestampMonotonic"
"""When its process was started, in microseconds of the clock that never goes back; 0 for never."""


def starts_of(socket_path: Path) -> Path:
    """The file with the seconds that the last starts took, the newest last."""
    return Path("/var/lib") / folder_of(socket_path).name / "starts"


def note_start(socket_path: Path, took_s: float) -> None:
    """Write down how long a start took, from its beginning until the engine answered."""
    file = starts_of(socket_path)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    before = file.read_text(encoding="ascii").split() if file.exists() else []
    kept = [*before, f"{took_s:.1f}"][-KEPT_STARTS:]
    partial = file.with_suffix(".new")
    partial.write_text(" ".join(kept), encoding="ascii")
    partial.replace(file)


def measured_s(switch: Switch, age_s: float) -> float | None:
    """How long a process of that age took until it answered; None where its switch has not seen that.

    HAProxy tells in whole seconds when a slot came into service last, and a new process of it when it began itself.
    """
    row = switch.slot(SLOT)
    if not row["status"].startswith("UP") or float(switch.about().get("Uptime_sec", "0")) <= age_s:
        return None
    return max(age_s - float(row["lastchg"]), 0.0)


def note_newest(switch: Switch, socket_path: Path, unit: str) -> None:
    """Note the start of the engine that answers now, unless that was done."""
    began = shown(unit, BEGAN).get(BEGAN) or "0"
    noted = folder_of(socket_path) / "noted"
    if began == "0" or (noted.exists() and noted.read_text(encoding="ascii") == began):
        return
    took_s = measured_s(switch, time.monotonic() - int(began) / 1e6)
    if took_s is None:
        return
    note_start(socket_path, took_s)
    noted.parent.mkdir(mode=0o700, exist_ok=True)
    noted.write_text(began, encoding="ascii")


def main(words: Sequence[str]) -> int:
    """Do what is asked; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--unit", required=True)
    asked = parser.parse_args(words)
    switch = Switch(asked.socket)
    try:
        json.dump(state(switch), sys.stdout)
        note_newest(switch, asked.socket, asked.unit)
    except (SwitchError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"Unable to ask the switch at {asked.socket} how it stands: {error}.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
