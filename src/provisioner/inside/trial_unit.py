"""A unit beside an engine's own, in its container: made of that one's, started once, ended, and nothing left of it.

The engine's own unit is stopped by then. What is tried runs as it would: by its user, with its limits and in its
sandbox, without what tells the switch, so that nobody is led to it, and systemd does not start it again.
Python alone is enough.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

TRIAL = "provision-trial.service"
UNITS = Path("/run/systemd/system")
ANSWERED, NO_ROOM, CRASHED, HUNG, REFUSED = "answered", "no room", "crashed", "hung", "refused"
OUTCOMES = (ANSWERED, NO_ROOM, CRASHED, HUNG, REFUSED)
STOP_S = 10
"""It has nothing to finish: a server that reads a long prompt would take its time."""
SETTINGS = f"Restart=no\nOOMPolicy=stop\nTimeoutStopSec={STOP_S}\nRuntimeMaxSec={{seconds}}\n"
ENDED = ("failed", "inactive")
OOM_KILL, SIGNAL, SIGKILL = "oom-kill", "signal", "9"
"""How systemd says that a process was ended: the last two where it is the container whose memory was full."""
COUNTED = Path("/proc/vmstat")
POLL_S = 0.2
LOOK_S = 2.0
WORDS = 500
LINES = 200
COMMAND_S = 120


class FailedError(Exception):
    """It did not come to an answer: ``outcome`` says how."""

    def __init__(self, outcome: str, words: str) -> None:
        super().__init__(words)
        self.outcome = outcome


def trial_of(text: str, engine: str, without: Sequence[str], changes: Sequence[Sequence[str]], seconds: float) -> str:
    """The text of the trial's unit; ``ValueError`` where something that is to be changed does not stand there.

    ``engine``: the name of the unit that it is made of. A start of that one ends it, also where who tried was killed,
    and waits for its end: what both keep under /run would go with it.
    """
    kept = [line for line in text.splitlines() if not any(words in line for words in without)]
    changed = "\n".join(kept)
    for pattern, other in changes:
        changed, count = re.subn(pattern, lambda _, other=other: other, changed)  # type: ignore[misc]
        if not count:
            raise ValueError(f"{pattern} does not stand in the unit")
    alone = changed.replace("[Unit]", f"[Unit]\nConflicts={engine}\nAfter={engine}", 1)
    return alone.replace("[Service]", f"[Service]\n{SETTINGS.format(seconds=round(seconds))}", 1)


class TrialUnit:
    """The unit that tries, from its start to its end.

    ``no_room``: what the program says where there is too little memory.
    """

    def __init__(self, no_room: Sequence[str] = ()) -> None:
        self.no_room = no_room
        self.file = UNITS / TRIAL
        self.kills = oom_kills()

    def __enter__(self) -> Self:
        """End one that a killed run has left."""
        self.end()
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and leave nothing of it."""
        self.end()

    def make(self, text: str) -> None:
        """Have systemd know it by this text."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(text, encoding="utf-8")
        systemctl("daemon-reload")

    def start(self) -> None:
        """Start it; whether it runs is seen by ``check_runs``."""
        systemctl("start", TRIAL)

    def run(self, within_s: float) -> None:
        """Start it and wait until it has ended, in whatever way; ``TimeoutExpired`` where it does not."""
        command = ["systemctl", "start", "--wait", TRIAL]
        subprocess.run(command, capture_output=True, timeout=within_s, check=False)

    def end(self) -> None:
        """Stop it and take its file away, where there is one."""
        if self.file.exists():
            systemctl("stop", TRIAL)
            systemctl("reset-failed", TRIAL)
            self.file.unlink()
            systemctl("daemon-reload")

    def check_runs(self) -> None:
        """Raise ``FailedError`` where it has ended, with how it ended."""
        state = state_of()
        if state["ActiveState"] in ENDED:
            raise self.failure(state)

    def failure(self, state: Mapping[str, str]) -> FailedError:
        """How it ended, with the last lines of what it said."""
        said = journal(state["InvocationID"])
        told = [line for line in said.splitlines() if line.strip()][-3:]
        words = f"{state['Result']}: {' | '.join(told)}"[-WORDS:]
        is_full = self._was_full(state) or any(phrase in said for phrase in self.no_room)
        return FailedError(NO_ROOM if is_full else CRASHED, words)

    def _was_full(self, state: Mapping[str, str]) -> bool:
        """Whether the kernel ended it for want of memory: its unit's own, or that of its container or host."""
        was_killed = (state["Result"], state["ExecMainStatus"]) == (SIGNAL, SIGKILL)
        return state["Result"] == OOM_KILL or (was_killed and oom_kills() > self.kills)

    def wait_for_its_end(self) -> None:
        """Give systemd a moment to see that it has ended: its connection breaks first."""
        deadline = time.monotonic() + LOOK_S
        while state_of()["ActiveState"] not in ENDED and time.monotonic() < deadline:
            time.sleep(POLL_S)


def unit_text(engine: str) -> str:
    """All that systemd reads of a unit, whatever was written beside it (``engine.service.d``), too."""
    return systemctl("cat", engine)


def oom_kills() -> int:
    """How many processes the kernel has ended for want of memory since it started; in a container, too, of all."""
    counted = dict(line.split() for line in COUNTED.read_text(encoding="ascii").splitlines())
    return int(counted.get("oom_kill", 0))


def state_of() -> dict[str, str]:
    """What systemd says of the trial."""
    shown = systemctl("show", TRIAL, "--property=ActiveState,Result,ExecMainStatus,MainPID,InvocationID")
    return dict(line.partition("=")[::2] for line in shown.splitlines())


def journal(start: str) -> str:
    """The last lines that were said after that start."""
    command = ["journalctl", f"_SYSTEMD_INVOCATION_ID={start}", f"--lines={LINES}", "--output=cat", "--no-pager"]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False).stdout


def systemctl(*words: str) -> str:
    """What it says."""
    command = ["systemctl", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False).stdout
