"""Takes slots of a switch out of service and into it, and says how it stands.

``control.py --socket PATH VERB``: ``state`` prints JSON; ``ready SLOT`` has the slot get requests as soon as its
engine, which is being started, answers its health page; ``begin SLOT`` does the same for a switch that was started
itself; ``drain SLOT`` gives it no more requests, and ``--within SECONDS`` waits until the running ones are finished,
and says on standard error what is not; ``gone SLOT --unit NAME`` has nobody wait for an engine any more that does not
come by itself; ``save FILE`` writes what the next process of the switch has to know.
Where no switch runs, nobody is served by it: ``drain`` then has nothing to wait for, the others fail with 1.
"""

from __future__ import annotations

import argparse
import csv
import json
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BACKEND = "answers"
HOLD = "hold"
"""Where requests wait that no slot can take; while it is in maintenance they do not wait."""
MAINTENANCE = "MAINT"
ASLEEP = "asleep"
"""The backend, and the server of it, that by being in service says that the engine was ended as nobody asked it."""
ANSWER_S = 10.0
LARGEST_ANSWER = 2**20
POLL_S = 0.1
ENDED = ("inactive", "failed")
SYSTEMCTL = "/usr/bin/systemctl"
AWAY = (FileNotFoundError, ConnectionRefusedError)
"""What the system says of the socket of a switch that does not run."""


class SwitchError(Exception):
    """The switch does not do what it was told."""


class Switch:
    """A running HAProxy, by its control socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def said(self, command: str) -> str:
        """What it answers to one command; ``SwitchError`` where that is too long, ``OSError`` where nobody answers."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(str(self._path))
            connection.sendall(f"{command}\n".encode("ascii"))
            answer = bytearray()
            while part := connection.recv(65536):
                answer += part
                if len(answer) > LARGEST_ANSWER:
                    raise SwitchError(f"it answers {command!r} without an end")
        return answer.decode("utf-8", errors="replace")

    def tell(self, command: str) -> None:
        """Have it do something; it says something only where it does not."""
        refusal = self.said(command).strip()
        if refusal:
            raise SwitchError(f"it answers {command!r} with: {refusal}")

    def servers(self) -> dict[str, dict[str, str]]:
        """The lines of its statistics, by the names of slots."""
        rows = csv.DictReader(self.said("show stat -1 4 -1").lstrip("# ").splitlines())
        return {row["svname"]: row for row in rows if row["pxname"] == BACKEND}

    def rows(self) -> dict[tuple[str, str], dict[str, str]]:
        """The lines of its statistics of backends and servers, by the names of both."""
        rows = csv.DictReader(self.said("show stat -1 6 -1").lstrip("# ").splitlines())
        return {(row["pxname"], row["svname"]): row for row in rows}

    def identity(self) -> str:
        """What its configuration calls itself."""
        lines = [line.partition(": ") for line in self.said("show info").splitlines()]
        return next((value for name, _, value in lines if name == "description"), "")

    def running(self, slot: str) -> int:
        """How many requests the slot has and has not finished."""
        found = self.servers().get(slot)
        if found is None:
            raise SwitchError(f"it has no slot {slot}")
        return int(found["scur"])


def folder_of(socket_path: Path) -> Path:
    """What the keeper of this switch notes; in memory, so that it is gone with the container's next start."""
    return Path(f"{socket_path.parent}-keeper")


def marker_of(socket_path: Path) -> Path:
    """The file that is there from before an idle engine is stopped until it is started again."""
    return folder_of(socket_path) / "asleep"


def state(switch: Switch) -> dict[str, Any]:
    """How it stands: its configuration, each slot, whether requests may wait, how many do, and whether it is asleep."""
    every = switch.rows()
    rows = {name: row for (place, name), row in every.items() if place == BACKEND and name != "BACKEND"}
    queue = rows.pop(HOLD, None)
    asleep = every.get((ASLEEP, ASLEEP))
    is_asleep = asleep is not None and not asleep["status"].startswith(MAINTENANCE)
    may_wait = queue is not None and not queue["status"].startswith(MAINTENANCE)
    running = {name: int(row["scur"]) for name, row in rows.items()}
    # One that waits for a slot to be in service belongs to none: between two attempts not even to "hold".
    waiting = max(int(every[BACKEND, "BACKEND"]["scur"]) - sum(running.values()), 0)
    slots = {name: {"status": row["status"], "running": running[name]} for name, row in rows.items()}
    stands = {"slots": slots, "may_wait": may_wait, "waiting": waiting, "asleep": is_asleep}
    return {"identity": switch.identity(), **stands}


def ready(switch: Switch, slot: str) -> None:
    """Have the slot get requests from the moment on at which its engine is seen to answer; until then they wait."""
    switch.tell(f"set server {BACKEND}/{HOLD} state ready")
    # One that is in maintenance has no health, and is taken for well when it leaves that state: so it leaves it first.
    switch.tell(f"set server {BACKEND}/{slot} state drain")
    switch.tell(f"set server {BACKEND}/{slot} health down")
    switch.tell(f"set server {BACKEND}/{slot} state ready")


def told_awake(switch: Switch) -> None:
    """Have looks reach the engine again."""
    switch.tell(f"set server {ASLEEP}/{ASLEEP} state maint")


def unit_state(unit: str) -> tuple[str, bool]:
    """The word of systemd for a unit, and whether it has a job for it.

    A unit that is restarted has one from before it has ended until it has begun.
    """
    shown = subprocess.run(
        [SYSTEMCTL, "show", "--property=ActiveState,Job", "--", unit],
        check=True,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
    )
    said = dict(line.partition("=")[::2] for line in shown.stdout.splitlines())
    return said.get("ActiveState", ""), said.get("Job", "0") not in ("", "0")


def gone(switch: Switch, slot: str, unit: str) -> None:
    """Have nobody wait for the slot, unless its engine is being started again: then ``ready`` has been said."""
    word, has_job = unit_state(unit)
    if word in ENDED and not has_job:
        switch.tell(f"set server {BACKEND}/{slot} state maint")
        switch.tell(f"set server {BACKEND}/{HOLD} state maint")


def drained(switch: Switch, slot: str, within_s: float | None) -> int:
    """Give the slot no more requests; how many are not finished when the time is over, where one was given."""
    try:
        switch.tell(f"set server {BACKEND}/{HOLD} state ready")
        switch.tell(f"set server {BACKEND}/{slot} state drain")
        if within_s is None:
            return 0
        deadline = time.monotonic() + within_s
        while running := switch.running(slot):
            if time.monotonic() > deadline:
                return running
            time.sleep(POLL_S)
    except AWAY:
        return 0
    return 0


def main(words: Sequence[str]) -> int:
    """Do what is asked; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=Path, required=True)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("state")
    verbs.add_parser("ready").add_argument("slot")
    verbs.add_parser("begin").add_argument("slot")
    verbs.add_parser("save").add_argument("file", type=Path)
    drain = verbs.add_parser("drain")
    drain.add_argument("slot")
    drain.add_argument("--within", type=float)
    left = verbs.add_parser("gone")
    left.add_argument("slot")
    left.add_argument("--unit", required=True)
    asked = parser.parse_args(words)
    switch = Switch(asked.socket)
    try:
        _do(switch, asked)
    except (SwitchError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"Unable to ask the switch at {asked.socket} for {asked.verb!r}: {error}.\n")
        return 1
    return 0


def _do(switch: Switch, asked: argparse.Namespace) -> None:
    if asked.verb == "state":
        json.dump(state(switch), sys.stdout)
    elif asked.verb == "ready":
        marker_of(asked.socket).unlink(missing_ok=True)
        ready(switch, asked.slot)
        told_awake(switch)
    elif asked.verb == "begin":
        ready(switch, asked.slot)
    elif asked.verb == "gone":
        if not marker_of(asked.socket).exists():
            gone(switch, asked.slot, asked.unit)
    elif asked.verb == "save":
        asked.file.write_text(switch.said("show servers state"), encoding="utf-8")
    else:
        left = drained(switch, asked.slot, asked.within)
        if left:
            sys.stderr.write(f"Not drained within {asked.within:g} s, and ended all the same: {left} answers.\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
