"""Ends an engine that nobody asks, and starts it when somebody does.

``keeper.py --socket PATH --unit NAME keep --idle SECONDS`` runs beside the switch until it is told to end. ``wake
--within SECONDS`` starts an engine that is asleep and has it stay for so long; ``rest`` lets it end again.

What it knows lies in files, so that it may be killed at any moment: ``asleep`` in its folder in /run is there from
before an idle engine is stopped until that is started again, by whomever; how long starts took is in its folder in
/var/lib. An engine that has ended without that file was stopped by somebody, and stays so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from control import (
    ASLEEP,
    BACKEND,
    ENDED,
    HOLD,
    MAINTENANCE,
    SYSTEMCTL,
    Switch,
    SwitchError,
    folder_of,
    gone,
    marker_of,
    ready,
    told_awake,
    unit_state,
)

ASLEEP_POLL_S = 0.2
"""So much later than it could an engine is started that somebody asks."""
LONGEST_POLL_S = 5.0
CHECK_S = 10.0
"""An engine that is asleep is looked at so often, in case that it was started without the switch having heard of it."""
COMMAND_S = 120.0
"""How long systemd may take to take up a command; how long an engine takes to do as it is told is another matter."""
LONGEST_START_S = 3600.0
KEPT_STARTS = 5
Rows = dict[tuple[str, str], dict[str, str]]


def stay_of(socket_path: Path) -> Path:
    """The file that says until when the engine stays although nobody asks it through the switch."""
    return folder_of(socket_path) / "stay"


def starts_of(socket_path: Path) -> Path:
    """The file with the seconds that the last starts took, the newest last."""
    return Path("/var/lib") / folder_of(socket_path).name / "starts"


def begin_to(verb: str, unit: str) -> None:
    """Have systemd begin to start or stop a unit; raise ``SubprocessError`` where it refuses."""
    subprocess.run([SYSTEMCTL, "--no-block", verb, "--", unit], check=True, capture_output=True, timeout=COMMAND_S)


def forget_starts(unit: str) -> None:
    """Have systemd count anew how often the unit was started: to be woken often is not to fail often.

    By a pattern it would do so only for units that have failed. The switch's own units name this one, so that systemd
    never forgets it.
    """
    subprocess.run([SYSTEMCTL, "reset-failed", "--", unit], check=True, capture_output=True, timeout=COMMAND_S)


def say(words: str) -> None:
    """A line of the journal."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def slots_of(rows: Rows) -> dict[str, dict[str, str]]:
    """The engines' places, by their names."""
    return {name: row for (place, name), row in rows.items() if place == BACKEND and name not in (HOLD, "BACKEND")}


def asked_of(rows: Rows) -> dict[str, str]:
    """The line of all requests for answers: ``scur`` is how many there are now, ``stot`` how many there ever were."""
    row = rows.get((BACKEND, "BACKEND"))
    if row is None:
        raise SwitchError("its configuration is not that of a switch")
    return row


def in_service(rows: Rows) -> list[str]:
    """The slots whose engines get requests."""
    return [name for name, row in slots_of(rows).items() if row["status"].startswith("UP")]


def take_back(switch: Switch, marker: Path) -> None:
    """Undo the first steps of falling asleep, of an engine that was not stopped; the file goes last.

    So who is killed in the middle of it finds the file again, and does this once more.
    """
    for slot, row in slots_of(switch.rows()).items():
        if row["status"].startswith("DRAIN"):
            ready(switch, slot)
    told_awake(switch)
    marker.unlink(missing_ok=True)


@dataclass
class Keeper:
    """Looks after one engine; ``step`` does what is due and says in how many seconds it wants to be called again."""

    socket: Path
    unit: str
    idle_s: float
    _last_asked: float = field(default_factory=time.monotonic)
    _counted: str = ""
    _next_check: float = 0.0

    def __post_init__(self) -> None:
        """What it asks, and where it notes what it knows; ``SwitchError`` for an engine that never ends."""
        if self.idle_s <= 0:
            raise SwitchError("an engine that never ends has no keeper")
        self._switch = Switch(self.socket)
        self._marker = marker_of(self.socket)

    def step(self) -> float:
        """Put the engine to sleep, or wake it, where one of both is due."""
        rows = self._switch.rows()
        return self._asleep(rows) if self._marker.exists() else self._awake(rows)

    def _awake(self, rows: Rows) -> float:
        """Its engine is there, or somebody else has stopped it."""
        now = time.monotonic()
        asked = asked_of(rows)
        is_used = asked["stot"] != self._counted or asked["scur"] != "0" or not in_service(rows) or self._has_to_stay()
        self._counted = asked["stot"]
        if is_used:
            self._last_asked = now
        left_s = self._last_asked + self.idle_s - now
        if left_s <= 0:
            self._fall_asleep(in_service(rows))
            return 0.0
        return min(max(left_s, ASLEEP_POLL_S), LONGEST_POLL_S, max(self.idle_s / 4, ASLEEP_POLL_S))

    def _has_to_stay(self) -> bool:
        try:
            return time.monotonic() < float(stay_of(self.socket).read_text(encoding="ascii"))
        except FileNotFoundError:
            return False

    def _fall_asleep(self, slots: Sequence[str]) -> None:
        """Stop the engine, unless somebody has asked for it, or something is being done to it, by now."""
        word, has_job = unit_state(self.unit)
        if word != "active" or has_job:
            self._last_asked = time.monotonic()
            return
        self._marker.write_text(json.dumps({"since": int(time.time())}), encoding="ascii")
        with self._switch.alone():
            self._switch.tell(f"set server {BACKEND}/{HOLD} state ready")
            for slot in slots:
                self._switch.tell(f"set server {BACKEND}/{slot} state drain")
        asked = asked_of(self._switch.rows())
        if asked["stot"] != self._counted or asked["scur"] != "0" or self._has_to_stay():
            self._stay_awake()
            return
        with self._switch.alone():
            self._switch.tell(f"set server {ASLEEP}/{ASLEEP} state ready")
        begin_to("stop", self.unit)
        self._next_check = 0.0
        say(f"{self.unit} is stopped: nobody asked it for {self.idle_s:g} s.")

    def _stay_awake(self) -> None:
        take_back(self._switch, self._marker)
        self._last_asked = time.monotonic()

    def _asleep(self, rows: Rows) -> float:
        """Its engine has been stopped, or is being stopped; who asks waits in the switch."""
        now = time.monotonic()
        is_asked = asked_of(rows)["scur"] != "0"
        is_told = not rows[ASLEEP, ASLEEP]["status"].startswith(MAINTENANCE)
        if is_told and not is_asked and now < self._next_check:
            return ASLEEP_POLL_S
        self._next_check = now + CHECK_S
        word, has_job = unit_state(self.unit)
        if word not in ENDED or has_job:
            return self._changing(word, has_job)
        if is_asked:
            self._wake()
            return 0.0
        # A switch that was started anew knows nothing of it.
        with self._switch.alone():
            self._switch.tell(f"set server {BACKEND}/{HOLD} state ready")
            self._switch.tell(f"set server {ASLEEP}/{ASLEEP} state ready")
        return ASLEEP_POLL_S

    def _changing(self, word: str, has_job: bool) -> float:
        """The engine ends, or begins, or it was never stopped because the keeper was killed before."""
        self._next_check = 0.0
        if word == "active" and not has_job:
            self._stay_awake()
        return ASLEEP_POLL_S

    def _wake(self) -> None:
        """Start the engine, and note how long it takes until it answers."""
        began = time.monotonic()
        forget_starts(self.unit)
        begin_to("start", self.unit)
        while time.monotonic() < began + LONGEST_START_S:
            time.sleep(ASLEEP_POLL_S)
            rows = self._switch.rows()
            if in_service(rows):
                self._note_start(time.monotonic() - began)
                return
            word, has_job = unit_state(self.unit)
            if word in ENDED and not has_job:
                self._give_up(slots_of(rows))
                say(f"{self.unit} was asked and did not start: it is {word}. See its own journal.")
                return
        say(f"{self.unit} was asked, and has not answered its health page for {LONGEST_START_S:g} s.")

    def _give_up(self, slots: Iterable[str]) -> None:
        """It is not asleep, it has failed: nobody waits for it any more."""
        self._marker.unlink(missing_ok=True)
        told_awake(self._switch)
        for slot in slots:
            gone(self._switch, slot, self.unit)

    def _note_start(self, took_s: float) -> None:
        self._last_asked = time.monotonic()
        say(f"{self.unit} was asked, and answers after {took_s:.1f} s.")
        file = starts_of(self.socket)
        before = file.read_text(encoding="ascii").split() if file.exists() else []
        kept = [*before, f"{took_s:.1f}"][-KEPT_STARTS:]
        partial = file.with_suffix(".new")
        partial.write_text(" ".join(kept), encoding="ascii")
        partial.replace(file)


def keep(keeper: Keeper) -> None:
    """Look after the engine until this process is ended; what fails is told once, and tried again."""
    failed = ""
    while True:
        try:
            wait_s = keeper.step()
            failed = ""
        except (SwitchError, OSError, subprocess.SubprocessError) as error:
            if str(error) != failed:
                say(f"Unable to look after {keeper.unit}: {error}. Trying again.")
            failed, wait_s = str(error), 1.0
        time.sleep(wait_s)


def wake(socket_path: Path, unit: str, within_s: float) -> None:
    """Start the engine if it is asleep, and have it stay for so long; one that was stopped by hand stays stopped.

    A keeper notes that its engine is asleep before it looks whether that has to stay, so that one of both sees the
    other.
    """
    stay = stay_of(socket_path)
    stay.parent.mkdir(mode=0o700, exist_ok=True)
    stay.write_text(str(time.monotonic() + within_s), encoding="ascii")
    marker = marker_of(socket_path)
    if marker.exists():
        forget_starts(unit)
        subprocess.run([SYSTEMCTL, "start", "--", unit], check=True, capture_output=True, timeout=LONGEST_START_S)
    # A start takes the note away. It is still there where the engine ran: its keeper was ended before it could stop it.
    if marker.exists():
        take_back(Switch(socket_path), marker)


def main(words: Sequence[str]) -> int:
    """Do what is asked; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--unit", required=True)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("keep").add_argument("--idle", type=float, required=True)
    verbs.add_parser("wake").add_argument("--within", type=float, required=True)
    verbs.add_parser("rest")
    asked = parser.parse_args(words)
    try:
        if asked.verb == "keep":
            keep(Keeper(asked.socket, asked.unit, asked.idle))
        elif asked.verb == "wake":
            wake(asked.socket, asked.unit, asked.within)
        else:
            stay_of(asked.socket).unlink(missing_ok=True)
    except (SwitchError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"Unable to {asked.verb} {asked.unit}: {error}.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
