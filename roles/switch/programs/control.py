"""Takes slots of a switch out of service and into it, and says how it stands.

``control.py --socket PATH VERB``, and the verbs are:

* ``state`` prints JSON.
* ``ready SLOT`` has the slot get requests as soon as its engine answers its health page, on another port where
  ``--port`` says one; ``--within SECONDS`` waits for that.
* ``begin SLOT`` does the same for a switch that was started itself: an engine that is asleep stays so.
* ``drain SLOT`` gives it no more requests; ``--within SECONDS`` waits until the running ones are finished, and says on
  standard error what is not.
* ``leave SLOT --within SECONDS`` does so and has the slot count as gone, for looks as well.
* ``away SLOT --within SECONDS`` has a web application count as gone at once, so that who comes is shown a page, and
  waits until the requests that it has are finished; connections that stay open (WebSockets) are no requests.
* ``close SLOT --within SECONDS`` has people see that page until ``open``, also while the application answers, and waits
  for its requests in the same way; its health page and the socket for root alone are left as they are. ``hang-up
  SLOT`` then ends the connections that stay open.
* ``gone SLOT --unit NAME`` has nobody wait any more for an engine that does not come by itself, where no other serves.
* ``hold --within SECONDS`` has them wait all the same, for an engine that is stopped by then for less than so long;
  its next start ends that.
* ``settled --within SECONDS`` waits until nobody waits for an engine to come.
* ``reload --process PID --states FILE`` has its process hand over to a new one that knows from the file how slots
  stand, and ends when that one answers.

Where no switch runs, nobody is served by it: ``drain``, ``leave``, ``away``, ``close``, ``hang-up``, ``open`` and
``settled`` then have nothing to do, the others fail with 1.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BACKEND = "answers"
LOOKS = "looks"
"""To each slot leads a backend for looks, ``looks-a`` and so on."""
HOLD = "hold"
"""Where requests wait that no slot can take; while it is in maintenance they do not wait."""
MAINTENANCE = "MAINT"
ASLEEP = "asleep"
"""The backend, and the server of it, that by being in service says that the engine was ended as nobody asked it."""
ANSWER_S = 10.0
LARGEST_ANSWER = 2**23
"""A switch before a web application may have 5,000 streams, and says 500 bytes of each."""
POLL_S = 0.1
HAND_OVER_S = 60.0
"""So long a new process may take to answer in place of the one before, and others wait for that."""
CLIENT_S = 120
"""``timeout client`` of its configuration: HAProxy says when a client that takes nothing will be cut off."""
UNTAKEN_S = 20
"""An answer of which its client has taken nothing for so long is not waited for."""
UNTAKEN_POLL_S = 5.0
UNTAKEN = re.compile(r"(?:rp\[[^]]*,wx=|scf=\[[^]]*,wex=)(?:(\d+)m)?(?:(\d+)s)?[],]")
"""In a line of ``show sess``; the first is HAProxy's 2.6. What a server is slow to give has no such time."""
LOCK = "lock"
"""Lies beside the socket, and belongs to the switch."""
SHUT = "closed/closed"
"""By this one people see the page of a web application that answers: nobody is to write in it."""
ENDED = ("inactive", "failed")
SYSTEMCTL = "/usr/bin/systemctl"
TABLE = Path("/proc/self/net/tcp")
REMOTE, STATE, USER = 2, 3, 7
"""The columns of the kernel's table of connections that count here."""
OPEN = ("01", "08")
"""Established, and closed by the other side while something is still to be read."""
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

    def end_untaken(self, backend: str) -> None:
        """End streams whose client has taken nothing for a while of what lies ready for it."""
        for line in self.said("show sess").splitlines():
            left = UNTAKEN.search(line)
            if f" be={backend} " not in line or left is None or not any(left.groups()):
                continue
            minutes, seconds = (int(part or 0) for part in left.groups())
            if 60 * minutes + seconds <= CLIENT_S - UNTAKEN_S:
                self.said(f"shutdown session {line.partition(':')[0]}")  # says so where it has just ended by itself

    def about(self) -> dict[str, str]:
        """What it says of itself: ``description``, by which its configuration is known, and ``Pid`` among others."""
        lines = [line.partition(": ") for line in self.said("show info").splitlines()]
        return {name: value for name, _, value in lines}

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else changes how its slots stand meanwhile: what a process is told that hands over would be lost."""
        try:
            lock = os.open(self._path.parent / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            yield  # it does not run, or was started by a version that had no lock
            return
        try:
            deadline = time.monotonic() + HAND_OVER_S
            while not _is_locked(lock):
                if time.monotonic() > deadline:
                    raise SwitchError(f"somebody else has controlled it for {HAND_OVER_S:g} s")
                time.sleep(POLL_S)
            yield
        finally:
            os.close(lock)

    def slot(self, name: str) -> dict[str, str]:
        """The line of a slot; ``SwitchError`` where there is no such one."""
        found = self.servers().get(name)
        if found is None:
            raise SwitchError(f"it has no slot {name}")
        return found

    def port(self, backend: str, slot: str) -> int:
        """The port of 127.0.0.1 at which it looks for the slot's engine; ``SwitchError`` for a slot that it has not."""
        # The first line is the version of those that follow.
        lines = self.said(f"show servers state {backend}").strip().splitlines()
        servers = csv.DictReader([line.lstrip("# ") for line in lines[1:]], delimiter=" ")
        for server in servers:
            if server["srv_name"] == slot:
                return int(server["srv_port"])
        raise SwitchError(f"it has no slot {slot} in {backend}")

    def running(self, slot: str) -> int:
        """How many requests the slot has and has not finished.

        A process that has handed over to a new one still finishes its own, of which the new one knows nothing: so the
        connections of both to the engine are counted as well. Each is of one request, or of a look at its health.
        """
        own = int(self.slot(slot)["scur"])
        return max(own, connections(self.port(BACKEND, slot), self._path.stat().st_uid))


def connections(port: int, owner: int, table: Path | None = None) -> int:
    """How many connections to a port of 127.0.0.1 processes of that user have, by the kernel's table."""
    lines = (table or TABLE).read_text(encoding="ascii").splitlines()[1:]
    rows = [line.split() for line in lines]
    there = f"{int.from_bytes(socket.inet_aton('127.0.0.1'), sys.byteorder):08X}:{port:04X}"
    return sum(row[REMOTE] == there and row[STATE] in OPEN and int(row[USER]) == owner for row in rows)


def _is_locked(lock: int) -> bool:
    """Whether it has become ours; it is let go when it is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def folder_of(socket_path: Path) -> Path:
    """What the keeper of this switch notes; in memory, so that it is gone with the container's next start."""
    return Path(f"{socket_path.parent}-keeper")


def marker_of(socket_path: Path) -> Path:
    """The file that is there from before an idle engine is stopped until it is started again."""
    return folder_of(socket_path) / "asleep"


def held_of(socket_path: Path) -> Path:
    """The file that says until when requests wait for an engine that was stopped, in seconds since the host started."""
    return folder_of(socket_path) / "held"


def is_held(socket_path: Path) -> bool:
    """Whether requests wait all the same for an engine that was stopped."""
    try:
        return time.monotonic() < float(held_of(socket_path).read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return False


def closed_unit_of(socket_path: Path) -> str:
    """The unit that is active for as long as a web application is closed."""
    return f"{socket_path.parent.name.removeprefix('switch-')}-closed.service"


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
    return {"identity": switch.about().get("description", ""), **stands}


def ready(switch: Switch, slot: str, port: int | None = None) -> None:
    """Have the slot get requests from the moment on at which its engine is seen to answer; until then they wait.

    With ``port`` the engine is looked for there.
    """
    with switch.alone():
        if port is not None:
            _move(switch, BACKEND, slot, port)
            _move(switch, f"{LOOKS}-{slot}", slot, port)
        switch.tell(f"set server {BACKEND}/{HOLD} state ready")
        # One in maintenance has no health, and is taken for well when it leaves that state: so it leaves it first.
        switch.tell(f"set server {BACKEND}/{slot} state drain")
        switch.tell(f"set server {BACKEND}/{slot} health down")
        switch.tell(f"set server {BACKEND}/{slot} state ready")


def _wait_until_up(switch: Switch, slot: str, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not (status := switch.slot(slot)["status"]).startswith("UP"):
        if time.monotonic() > deadline:
            raise SwitchError(f"slot {slot} is {status} after {within_s:g} s")
        time.sleep(POLL_S)


def _move(switch: Switch, backend: str, slot: str, port: int) -> None:
    said = switch.said(f"set server {backend}/{slot} addr 127.0.0.1 port {port}").strip()
    # It says something whether it did it or not.
    if switch.port(backend, slot) != port:
        raise SwitchError(f"it does not lead {backend}/{slot} to port {port}: {said}")


def settled(switch: Switch, within_s: float) -> None:
    """Wait until an engine is in service, or nobody waits for one; at most for as long as is said.

    A process of HAProxy that is to end looks at no engine's health any more: who waits in it would never be handed on.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            now = state(switch)
        except AWAY:
            return
        in_service = any(slot["status"].startswith("UP") for slot in now["slots"].values())
        if in_service or not now["may_wait"] or not now["waiting"]:
            return
        time.sleep(POLL_S)


def told_awake(switch: Switch) -> None:
    """Have looks reach the engine again."""
    with switch.alone():
        switch.tell(f"set server {ASLEEP}/{ASLEEP} state maint")


def shown(unit: str, *properties: str) -> dict[str, str]:
    """What systemd says of a unit; ``SubprocessError`` where it says nothing."""
    command = [SYSTEMCTL, "show", f"--property={','.join(properties)}", "--", unit]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=ANSWER_S)
    return dict(line.partition("=")[::2] for line in said.stdout.splitlines())


def unit_state(unit: str) -> tuple[str, bool]:
    """The word of systemd for a unit, and whether it has a job for it.

    A unit that is restarted has one from before it has ended until it has begun.
    """
    said = shown(unit, "ActiveState", "Job")
    return said.get("ActiveState", ""), said.get("Job", "0") not in ("", "0")


def gone(switch: Switch, slot: str, unit: str) -> None:
    """Have nobody wait for the slot, unless its engine is being started again: then ``ready`` has been said."""
    word, has_job = unit_state(unit)
    if word not in ENDED or has_job:
        return
    with switch.alone():
        switch.tell(f"set server {BACKEND}/{slot} state maint")
        if not any(row["status"].startswith("UP") for name, row in switch.servers().items() if name != HOLD):
            switch.tell(f"set server {BACKEND}/{HOLD} state maint")


def drained(switch: Switch, slot: str, within_s: float | None) -> int:
    """Give the slot no more requests; how many are not finished when the time is over, where one was given."""
    try:
        with switch.alone():
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


def reload(switch: Switch, process: int, states: Path) -> None:
    """Have its process begin another one that knows how slots stand, and wait until that one answers."""
    with switch.alone():
        before = switch.about().get("Pid")
        states.write_text(switch.said("show servers state"), encoding="utf-8")
        os.kill(process, signal.SIGUSR2)
        deadline = time.monotonic() + HAND_OVER_S
        while _pid(switch) in (before, None):
            if time.monotonic() > deadline:
                raise SwitchError(f"no other process answers in place of {before} after {HAND_OVER_S:g} s")
            time.sleep(POLL_S)


def _pid(switch: Switch) -> str | None:
    """Of the process that answers; None in the moment in which nobody does."""
    try:
        return switch.about().get("Pid")
    except OSError:
        return None


def _has(switch: Switch, slot: str) -> bool:
    """Whether there is such a slot at all; one of an earlier version has only that of the engine."""
    try:
        return slot in switch.servers()
    except AWAY:
        return False


def put(switch: Switch, server: str, word: str) -> None:
    """Bring a server into a state; where no switch runs nobody is served by it."""
    try:
        with switch.alone():
            switch.tell(f"set server {server} state {word}")
    except AWAY:
        return


def stay_closed(switch: Switch, unit: str) -> None:
    """Close a web application's switch that was started itself while the unit says that it is closed."""
    with switch.alone():
        if tuple(SHUT.split("/")) in switch.rows() and unit_state(unit)[0] in ("active", "activating"):
            switch.tell(f"set server {SHUT} state ready")


def hung_up(switch: Switch, slot: str) -> None:
    """End the connections of a web application that stay open."""
    try:
        switch.tell(f"shutdown sessions server sockets/{slot}")
    except AWAY:
        return


def finished(switch: Switch, slot: str, within_s: float) -> int:
    """How many requests of a web application are not finished when the time is over."""
    looked = began = time.monotonic()
    try:
        while running := int(switch.rows()[f"{LOOKS}-{slot}", slot]["scur"]):
            now = time.monotonic()
            if now > began + within_s:
                return running
            if now > looked + UNTAKEN_POLL_S:
                switch.end_untaken(f"{LOOKS}-{slot}")
                looked = now
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
    for verb in ("ready", "begin"):
        comes = verbs.add_parser(verb)
        comes.add_argument("slot")
        comes.add_argument("--port", type=int)
        comes.add_argument("--within", type=float)
    for verb in ("hold", "settled"):
        verbs.add_parser(verb).add_argument("--within", type=float, required=True)
    hands_over = verbs.add_parser("reload")
    hands_over.add_argument("--process", type=int, required=True)
    hands_over.add_argument("--states", type=Path, required=True)
    for verb in ("drain", "leave", "away", "close"):
        ends = verbs.add_parser(verb)
        ends.add_argument("slot")
        ends.add_argument("--within", type=float, required=verb != "drain")
    verbs.add_parser("hang-up").add_argument("slot")
    verbs.add_parser("open")
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


def _told(left: int, within_s: float) -> None:
    """Say how many answers are not finished."""
    if left:
        sys.stderr.write(f"Not drained within {within_s:g} s, and ended all the same: {left} answers.\n")


def _ready(switch: Switch, asked: argparse.Namespace) -> None:
    marker_of(asked.socket).unlink(missing_ok=True)
    held_of(asked.socket).unlink(missing_ok=True)
    _come(switch, asked)
    told_awake(switch)


def _begin(switch: Switch, asked: argparse.Namespace) -> None:
    stay_closed(switch, closed_unit_of(asked.socket))
    _come(switch, asked)


def _come(switch: Switch, asked: argparse.Namespace) -> None:
    ready(switch, asked.slot, asked.port)
    if asked.within is not None:
        _wait_until_up(switch, asked.slot, asked.within)


def _drain(switch: Switch, asked: argparse.Namespace) -> None:
    _told(drained(switch, asked.slot, asked.within), asked.within)


def _leave(switch: Switch, asked: argparse.Namespace) -> None:
    if _has(switch, asked.slot):
        _drain(switch, asked)
        put(switch, f"{BACKEND}/{asked.slot}", "maint")


def _away(switch: Switch, asked: argparse.Namespace) -> None:
    put(switch, f"{BACKEND}/{asked.slot}", "maint")
    _told(finished(switch, asked.slot, asked.within), asked.within)


def _close(switch: Switch, asked: argparse.Namespace) -> None:
    put(switch, SHUT, "ready")
    _told(finished(switch, asked.slot, asked.within), asked.within)


def _gone(switch: Switch, asked: argparse.Namespace) -> None:
    if not marker_of(asked.socket).exists() and not is_held(asked.socket):
        gone(switch, asked.slot, asked.unit)


def _hold(asked: argparse.Namespace) -> None:
    held_of(asked.socket).parent.mkdir(mode=0o700, exist_ok=True)  # there is a keeper only where an engine sleeps
    held_of(asked.socket).write_text(str(time.monotonic() + asked.within), encoding="ascii")


def _do(switch: Switch, asked: argparse.Namespace) -> None:
    does: dict[str, Callable[[], None]] = {
        "state": lambda: json.dump(state(switch), sys.stdout),
        "ready": lambda: _ready(switch, asked),
        "begin": lambda: _begin(switch, asked),
        "hold": lambda: _hold(asked),
        "settled": lambda: settled(switch, asked.within),
        "reload": lambda: reload(switch, asked.process, asked.states),
        "drain": lambda: _drain(switch, asked),
        "leave": lambda: _leave(switch, asked),
        "away": lambda: _away(switch, asked),
        "close": lambda: _close(switch, asked),
        "hang-up": lambda: hung_up(switch, asked.slot),
        "open": lambda: put(switch, SHUT, "maint"),
        "gone": lambda: _gone(switch, asked),
    }
    does[asked.verb]()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
