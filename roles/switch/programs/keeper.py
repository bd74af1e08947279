"""Ends an engine that nobody asks, or whose card another one needs, and starts it when somebody asks it.

``keeper.py --socket PATH --unit NAME keep --idle SECONDS`` runs beside the switch until it is told to end. With
``--own NAME``, a ``--member NAME`` for each of those who share the card, ``--key FILE`` and ``--hold SECONDS`` the
engine takes turns with them. ``wake --within SECONDS`` starts an engine that is asleep and has it stay for so long;
``rest`` lets it end again.

What it knows lies in files, so that it may be killed at any moment: ``asleep`` in its folder in /run is there from
before an engine is stopped until that is started again, by whomever; how long starts took is in its folder in
/var/lib. An engine that has ended without that file was stopped by somebody, and stays so. Whose turn it is stands in
no file (``turns``).
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
from typing import TYPE_CHECKING

import starts
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
    shown,
    told_awake,
    unit_state,
)

if TYPE_CHECKING:
    from neighbours import Neighbours

ASLEEP_POLL_S = 0.2
"""So much later than it could an engine is started that somebody asks."""
LONGEST_POLL_S = 5.0
STOPPED_CHECK_S = 2.0
"""One that shares a card and was stopped by somebody is looked at so often, in case that it is started again."""
CHECK_S = 10.0
"""An engine that is asleep is looked at so often, in case that it was started without the switch having heard of it."""
COMMAND_S = 120.0
"""How long systemd may take to take up a command; how long an engine takes to do as it is told is another matter."""
LONGEST_START_S = 3600.0
NOT_ASKED = "exec-condition"
"""What systemd says became of a start that ``claim.py`` has ended with ``SKIPPED``."""
STARTING = "condition"
"""What systemd calls a unit that is not yet started, because it asks first whether it may be."""
NEVER = float("-inf")
Rows = dict[tuple[str, str], dict[str, str]]


def stay_of(socket_path: Path) -> Path:
    """The file that says until when the engine stays although nobody asks it through the switch."""
    return folder_of(socket_path) / "stay"


def has_the_card(unit: str) -> bool:
    """Whether an engine runs, begins or ends; one that only asks whether it may start does not have it."""
    said = shown(unit, "ActiveState", "SubState")
    return said.get("ActiveState") not in ENDED and said.get("SubState") != STARTING


def waits_for_its_first_start(unit: str) -> bool:
    """Whether an engine does not run because nobody has asked for it since its container was started."""
    said = shown(unit, "ActiveState", "Job", "Result", "InactiveExitTimestampMonotonic")
    if said.get("ActiveState") != "inactive" or said.get("Job", "0") not in ("", "0"):
        return False
    return said.get("Result") == NOT_ASKED or said.get("InactiveExitTimestampMonotonic") == "0"


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
    """Looks after one engine; ``step`` does what is due and says in how many seconds it wants to be called again.

    ``idle_s``: 0 where the engine does not end by itself; ``hold_s``: how long it serves at least before one of
    ``neighbours`` gets the card, which are None where it shares none.
    """

    socket: Path
    unit: str
    idle_s: float
    hold_s: float = 0.0
    neighbours: Neighbours | None = None
    _last_asked: float = field(default_factory=time.monotonic)
    _counted: str = ""
    _next_check: float = 0.0
    _serves_since: float | None = None
    _stayed: bool = False

    def __post_init__(self) -> None:
        """What it asks, and where it notes what it knows; ``SwitchError`` for an engine that never ends."""
        if self.idle_s <= 0 and self.neighbours is None:
            raise SwitchError("an engine that never ends has no keeper")
        self._switch = Switch(self.socket)
        self._marker = marker_of(self.socket)

    def step(self) -> float:
        """Put the engine to sleep, or wake it, where one of both is due."""
        rows = self._switch.rows()
        wait_s = self._asleep(rows) if self._marker.exists() else self._awake(rows)
        if self.neighbours is not None and self.neighbours.is_claimed():
            self.neighbours.seek()
            return min(wait_s, ASLEEP_POLL_S)
        return wait_s

    def wait(self, seconds: float) -> None:
        """Let time pass, for less where somebody asks for the card."""
        if self.neighbours is None:
            time.sleep(seconds)
            return
        self.neighbours.called.wait(seconds)
        self.neighbours.called.clear()

    def _awake(self, rows: Rows) -> float:
        """Its engine is there, or somebody else has stopped it."""
        now = time.monotonic()
        asked = asked_of(rows)
        slots = in_service(rows)
        stays = self._has_to_stay()
        is_used = asked["stot"] != self._counted or asked["scur"] != "0" or not slots or stays
        self._counted = asked["stot"]
        if is_used:
            self._last_asked = now
        self._note_service(is_there=bool(slots), stays=stays)
        if self.neighbours is not None:
            wait_s = self._share(self.neighbours, slots)
            if wait_s is not None:
                return wait_s
        if self.idle_s <= 0:
            return LONGEST_POLL_S
        left_s = self._last_asked + self.idle_s - now
        if left_s <= 0:
            self._fall_asleep(slots, f"nobody asked it for {self.idle_s:g} s")
            return 0.0
        return min(max(left_s, ASLEEP_POLL_S), LONGEST_POLL_S, max(self.idle_s / 4, ASLEEP_POLL_S))

    def _note_service(self, *, is_there: bool, stays: bool) -> None:
        """Count its stay from when it serves; a proof that is over was nobody's, and ends the stay."""
        if not is_there:
            self._serves_since = None
        elif self._serves_since is None:
            self._serves_since = time.monotonic()
        if self._stayed and not stays and is_there:
            self._serves_since = NEVER
        self._stayed = stays

    def _share(self, neighbours: Neighbours, slots: Sequence[str]) -> float | None:
        """Let another one have the card whose turn has come; None where there is nothing to do."""
        now = time.monotonic()
        waiting = neighbours.waiting()
        if not waiting and now < self._next_check:
            return None
        self._next_check = now + CHECK_S
        word, has_job = unit_state(self.unit)
        if word in ENDED and not has_job:
            self._next_check = now + STOPPED_CHECK_S
            neighbours.let_go()
            return self._rest_at_first()
        if not waiting:
            neighbours.compare()
            return None
        if not slots or self._stayed or self._serves_since is None:
            return ASLEEP_POLL_S
        left_s = self._serves_since + self.hold_s - now
        if left_s > 0:
            return min(left_s, LONGEST_POLL_S)
        self._fall_asleep(slots, f"the card is {waiting[0]}'s now", is_idle=False)
        return 0.0

    def _rest_at_first(self) -> float | None:
        """Have an engine count as asleep that was not started when its container was, as nobody had asked for it."""
        if not waits_for_its_first_start(self.unit):
            return None
        self._note_asleep()
        self._next_check = 0.0
        return 0.0

    def _note_asleep(self) -> None:
        self._marker.write_text(json.dumps({"since": int(time.time())}), encoding="ascii")

    def _has_to_stay(self) -> bool:
        try:
            return time.monotonic() < float(stay_of(self.socket).read_text(encoding="ascii"))
        except FileNotFoundError:
            return False

    def _fall_asleep(self, slots: Sequence[str], why: str, *, is_idle: bool = True) -> None:
        """Stop the engine, unless somebody has asked for it that was idle, or something is being done to it, by now.

        One that lets another have the card finishes its running answers; who asks it meanwhile waits for its next turn.
        """
        word, has_job = unit_state(self.unit)
        if word != "active" or has_job:
            self._last_asked = time.monotonic()
            return
        self._note_asleep()
        with self._switch.alone():
            self._switch.tell(f"set server {BACKEND}/{HOLD} state ready")
            for slot in slots:
                self._switch.tell(f"set server {BACKEND}/{slot} state drain")
        asked = asked_of(self._switch.rows())
        is_asked = asked["stot"] != self._counted or asked["scur"] != "0"
        if (is_idle and is_asked) or self._has_to_stay():
            self._stay_awake()
            return
        with self._switch.alone():
            self._switch.tell(f"set server {ASLEEP}/{ASLEEP} state ready")
        begin_to("stop", self.unit)
        if self._has_to_stay():  # said after the look above: its start was none, as the engine still ran
            forget_starts(self.unit)
            begin_to("start", self.unit)
        self._next_check, self._serves_since = 0.0, None
        say(f"{self.unit} is stopped: {why}.")

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
        if self.neighbours is not None:
            self.neighbours.let_go(wants=is_asked)
        if is_asked and (self.neighbours is None or self.neighbours.seek()):
            self._wake()
            return 0.0
        if is_told and is_asked:
            return ASLEEP_POLL_S
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
        starts.note_start(self.socket, took_s)


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
        keeper.wait(wait_s)


def wake(socket_path: Path, unit: str, within_s: float) -> None:
    """Start the engine if it is asleep, and have it stay for so long; one that was stopped by hand stays stopped.

    A keeper notes that its engine is asleep before it looks whether that has to stay, so that one of both sees the
    other.
    """
    stay = stay_of(socket_path)
    stay.parent.mkdir(mode=0o700, exist_ok=True)
    stay.write_text(str(time.monotonic() + within_s), encoding="ascii")
    marker = marker_of(socket_path)
    if marker.exists() or waits_for_its_first_start(unit):
        forget_starts(unit)
        subprocess.run([SYSTEMCTL, "start", "--", unit], check=True, capture_output=True, timeout=LONGEST_START_S)
    # A start takes the note away. It is still there where the engine ran: its keeper was ended before it could stop it.
    if marker.exists():
        take_back(Switch(socket_path), marker)


def with_neighbours(asked: argparse.Namespace) -> Neighbours:
    """Those who share the card with the engine, which are listened to from now on."""
    from neighbours import Neighbours, asks_of  # HTTP, for which few engines have a use
    from turns import Turn

    turn = Turn(asked.member.index(asked.own), len(asked.member), holds=has_the_card(asked.unit))
    key = asked.key.read_text(encoding="utf-8").strip()
    neighbours = Neighbours(asked.member, turn, key, asked.socket.parent / "neighbours.sock", say)
    neighbours.listen(asks_of(asked.socket))
    return neighbours


def parser() -> argparse.ArgumentParser:
    """What may be said on the command line."""
    made = argparse.ArgumentParser()
    made.add_argument("--socket", type=Path, required=True)
    made.add_argument("--unit", required=True)
    verbs = made.add_subparsers(dest="verb", required=True)
    keeps = verbs.add_parser("keep")
    keeps.add_argument("--idle", type=float, required=True)
    keeps.add_argument("--hold", type=float, default=0.0)
    keeps.add_argument("--own")
    keeps.add_argument("--member", action="append", default=[])
    keeps.add_argument("--key", type=Path)
    verbs.add_parser("wake").add_argument("--within", type=float, required=True)
    verbs.add_parser("rest")
    return made


def main(words: Sequence[str]) -> int:
    """Do what is asked; the exit code."""
    asked = parser().parse_args(words)
    try:
        if asked.verb == "keep":
            neighbours = with_neighbours(asked) if asked.member else None
            keep(Keeper(asked.socket, asked.unit, asked.idle, asked.hold, neighbours))
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
