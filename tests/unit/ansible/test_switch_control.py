"""How a switch is controlled, by a stand-in that answers as HAProxy 2.6 was seen to; its scenario has the real one."""

from __future__ import annotations

import fcntl
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenario_programs import module_at

PROGRAM = Path(__file__).resolve().parents[3] / "roles/switch/programs/control.py"
ENDS_WITHIN_S = 10.0
HEAD = "# pxname,svname,qcur,qmax,scur,smax,status,"
BEFORE_3 = (
    "0x7f8fdc030d70: proto=tcpv4 src=127.0.0.1:38239 fe=clients {place} srv=a ts=00 epoch=0 age=3s calls=4 "
    "rate=0 cpu=0 lat=0 rq[f=48c48000h,i=0,an=8000h,rx=,wx=,ax=] "
    "rp[f=88070000h,i=15544,an=4000000h,rx={reads},wx={writes},ax=] "
    "scf=[8,0h,fd=17] scb=[8,211h,fd=18] exp=1m57s rc=0 c_exp="
)
"""A line of ``show sess`` of HAProxy 2.6."""
SINCE_3 = (
    "0x7f8fdc030d70: proto=tcpv4 src=127.0.0.1:55787 fe=clients {place} srv=a ts=00 epoch=0 age=3s calls=4 "
    "rate=0 cpu=0 lat=0 rq[f=848000h,i=0,an=8000h,ax=] "
    "rp[f=80070000h,i=0,an=4000000h,ax=] scf=[8,1402h,fd=18,rex=,wex={writes}] "
    "scb=[8,1211h,fd=19,rex={reads},wex=] exp=1m57s rc=0 c_exp="
)
"""The same of 3.0."""

control = module_at(PROGRAM)


class HaProxy:
    """A stand-in: takes one command for each connection, answers, and closes."""

    def __init__(self, path: Path) -> None:
        self.commands: list[str] = []
        self.running = [0]
        """How many requests the slot has at each of the next looks; the last one stays."""
        self.looks = [9]
        """The same of what is only looked at, or of a web application's requests."""
        self.all = 0
        self.hold: str | None = "no check"
        """What it says of the place where requests wait; None where it has none."""
        self.asleep = "MAINT"
        self.has_pages = False
        self.refusals: dict[str, str] = {}
        self.slots = {"a": "DRAIN"}
        self.port = 1
        """On which it looks for slot b."""
        self.pid = 4711
        self.flood = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop listening, and wait for the thread."""
        # Closing alone wakes nobody: the thread would go on with whatever gets the same number next.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(ENDS_WITHIN_S)
        assert not self._thread.is_alive()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                command = connection.makefile().readline().strip()
                self.commands.append(command)
                try:
                    connection.sendall(self._answer(command).encode())
                except BrokenPipeError:
                    continue  # who asked has had enough of a flood

    def _answer(self, command: str) -> str:
        if self.flood:
            return "x" * (4 * int(control.LARGEST_ANSWER))
        if " addr " in command or command.startswith("show servers state "):
            return self._moved(command)
        if command == "show info":
            return f"Name: HAProxy\nPid: {self.pid}\ndescription: 0123abcd\n\n"
        if command in ("show stat -1 4 -1", "show stat -1 6 -1"):
            running = self.running.pop(0) if len(self.running) > 1 else self.running[0]
            rows = [f"answers,{name},0,0,{running},3,{status}," for name, status in self.slots.items()]
            rows.append(f"looks-a,a,0,0,{self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]},9,no check,")
            rows.append(f"asleep,asleep,0,0,0,0,{self.asleep},")
            if self.has_pages:
                rows.append("closed,closed,0,0,0,0,MAINT,")
            if self.hold is not None:
                rows.append(f"answers,hold,0,0,0,0,{self.hold},")
            if command == "show stat -1 6 -1":
                rows += ["looks,BACKEND,0,0,7,9,UP,", f"answers,BACKEND,2,5,{self.all},9,UP,"]
            return "\n".join([HEAD, *rows, "", ""])
        return self.refusals.get(command, "\n")

    def _moved(self, command: str) -> str:
        if command.startswith("show"):
            rows = "".join(f"3 answers 1 {name} {self.port}\n" for name in {**self.slots, "b": ""})
            return f"1\n# be_id be_name srv_id srv_name srv_port\n{rows}\n"
        wanted = int(command.rpartition(" ")[2])
        self.port = wanted if 0 < wanted < 65536 else self.port
        return "no need to change the addr, port changed from '1' to '2' by 'stats socket command'\n\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the switch's socket is."""
    return tmp_path / "control.sock"


@pytest.fixture
def haproxy(path: Path) -> Iterator[HaProxy]:
    """One that runs."""
    made = HaProxy(path)
    yield made
    made.end()


def run(path: Path, *words: str) -> int:
    """The program's exit code."""
    return int(control.main(["--socket", str(path), *words]))


def test_a_slot_leaves_maintenance_before_it_is_called_down_and_ready(haproxy: HaProxy, path: Path) -> None:
    """Seen with the real one: it counts as well as soon as it leaves maintenance, whatever was said before."""
    assert run(path, "begin", "a") == 0
    states = ["hold state ready", "a state drain", "a health down", "a state ready"]
    told = [command for command in haproxy.commands if not command.startswith("show ")]
    assert told == [f"set server answers/{state}" for state in states]


@pytest.mark.parametrize(("verb", "stays"), [("ready", False), ("begin", True)])
def test_an_engine_that_starts_is_asleep_no_more_and_a_switch_that_starts_changes_nothing(
    haproxy: HaProxy, path: Path, verb: str, stays: bool
) -> None:
    marker = control.marker_of(path)
    marker.parent.mkdir()
    marker.touch()
    assert run(path, verb, "a") == 0
    assert marker.exists() == stays
    assert ("set server asleep/asleep state maint" in haproxy.commands) != stays


def test_who_asks_waits_for_an_engine_that_is_asleep(haproxy: HaProxy, path: Path) -> None:
    marker = control.marker_of(path)
    marker.parent.mkdir()
    marker.touch()
    assert run(path, "gone", "a", "--unit", "x.service") == 0
    assert haproxy.commands == []


def test_running_requests_of_the_slot_are_waited_for(
    haproxy: HaProxy, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    haproxy.running = [2, 2, 1, 0]
    assert run(path, "drain", "a", "--within", "60") == 0
    assert haproxy.commands[:2] == ["set server answers/hold state ready", "set server answers/a state drain"]
    assert haproxy.commands[2:] == ["show stat -1 4 -1", "show servers state answers"] * 4
    assert capsys.readouterr().err == ""


ROW = "0: 0100007F:9C40 0100007F:{port:04X} {state} 00000000:00000000 00:00000000 00000000 {user} 0 1 1 0 100 0 0 10 0"
TABLE_HEAD = "sl local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode"


def table(*rows: str) -> str:
    """The kernel's table of connections."""
    return "\n".join([TABLE_HEAD, *rows, ""])


@pytest.mark.parametrize(
    ("row", "count"),
    [
        (ROW.format(port=18080, state="01", user=110), 1),
        (ROW.format(port=18080, state="08", user=110), 1),  # ended by the engine, and not yet read to its end
        (ROW.format(port=18080, state="06", user=110), 0),
        (ROW.format(port=18081, state="01", user=110), 0),
        (ROW.format(port=18080, state="01", user=0), 0),  # a proof, past the switch
        (ROW.format(port=18080, state="01", user=110).replace(" 0100007F", " 0200007F"), 0),
    ],
    ids=["open", "half closed", "closed", "another port", "another user", "another address"],
)
def test_connections_of_the_switch_to_the_engine_are_counted(tmp_path: Path, row: str, count: int) -> None:
    (tmp_path / "tcp").write_text(table(row, ROW.format(port=80, state="0A", user=110)), encoding="ascii")
    assert control.connections(18080, 110, tmp_path / "tcp") == count


def test_who_is_served_by_a_process_that_has_handed_over_is_waited_for(
    haproxy: HaProxy, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new process knows nothing of that one's requests."""
    still = ROW.format(port=haproxy.port, state="01", user=path.stat().st_uid)
    (tmp_path / "tcp").write_text(table(still), encoding="ascii")
    monkeypatch.setattr(control, "TABLE", tmp_path / "tcp")
    ends = threading.Timer(0.5, lambda: (tmp_path / "tcp").write_text(table(), encoding="ascii"))
    ends.start()
    assert run(path, "drain", "a", "--within", "60") == 0
    assert not ends.is_alive()


def test_without_a_time_nothing_is_waited_for(haproxy: HaProxy, path: Path) -> None:
    haproxy.running = [2]
    assert run(path, "drain", "a") == 0
    assert haproxy.commands[-1] == "set server answers/a state drain"


@pytest.mark.parametrize(
    ("shown", "is_gone"),
    [
        ("ActiveState=inactive\nJob=0\n", True),
        ("ActiveState=failed\nJob=0\n", True),
        ("ActiveState=inactive\n", True),
        ("ActiveState=inactive\nJob=4711\n", False),
        ("ActiveState=activating\nJob=0\n", False),
        ("ActiveState=active\nJob=0\n", False),
        ("", False),
    ],
    ids=["stopped", "failed", "without a word of a job", "being restarted", "starts", "has started", "not known"],
)
def test_nobody_waits_for_what_has_ended_and_is_not_being_started(
    haproxy: HaProxy, path: Path, monkeypatch: pytest.MonkeyPatch, shown: str, is_gone: bool
) -> None:
    def systemctl(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        assert command[-1] == "x.service"
        return subprocess.CompletedProcess(command, 0, shown, "")

    monkeypatch.setattr(control.subprocess, "run", systemctl)
    assert run(path, "gone", "a", "--unit", "x.service") == 0
    told = ["set server answers/a state maint", "set server answers/hold state maint"]
    assert [command for command in haproxy.commands if command.startswith("set")] == (told if is_gone else [])


def test_they_wait_for_one_that_is_stopped_for_a_while_until_it_is_started_or_the_while_is_over(
    haproxy: HaProxy, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = subprocess.CompletedProcess([], 0, "ActiveState=inactive\nJob=0\n", "")
    monkeypatch.setattr(control.subprocess, "run", lambda *_arguments, **_options: shown)

    def has_nobody_wait() -> bool:
        haproxy.commands.clear()
        assert run(path, "gone", "a", "--unit", "x.service") == 0
        return "set server answers/hold state maint" in haproxy.commands

    assert has_nobody_wait()
    assert run(path, "hold", "--within", "60") == 0
    assert not has_nobody_wait()
    assert run(path, "ready", "a") == 0
    assert has_nobody_wait()
    assert run(path, "hold", "--within", "0") == 0
    assert has_nobody_wait()


def test_requests_may_still_wait_for_one_that_serves_in_its_place(
    haproxy: HaProxy, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = subprocess.CompletedProcess([], 0, "ActiveState=inactive\nJob=0\n", "")
    monkeypatch.setattr(control.subprocess, "run", lambda *_arguments, **_options: shown)
    haproxy.slots = {"a": "DOWN", "b": "UP"}
    assert run(path, "gone", "a", "--unit", "x.service") == 0
    assert [one for one in haproxy.commands if one.startswith("set")] == ["set server answers/a state maint"]


@pytest.mark.parametrize("verb", ["drain", "away"])
def test_when_the_time_is_over_it_is_said_what_is_cut(
    haproxy: HaProxy, path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    haproxy.running = haproxy.looks = [2]
    began = time.monotonic()
    assert run(path, verb, "a", "--within", "0.3") == 0
    assert 0.3 <= time.monotonic() - began < 5
    assert capsys.readouterr().err == "Not drained within 0.3 s, and ended all the same: 2 answers.\n"


def test_what_waits_is_all_that_no_slot_has(haproxy: HaProxy, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    haproxy.running, haproxy.all = [3], 8
    assert run(path, "state") == 0
    told = json.loads(capsys.readouterr().out)
    slots = {"a": {"status": "DRAIN", "running": 3}}
    assert told == {"identity": "0123abcd", "slots": slots, "may_wait": True, "waiting": 5, "asleep": False}


@pytest.mark.parametrize(("said", "asleep"), [("no check", True), ("UP", True), ("MAINT", False)])
def test_it_says_whether_its_engine_is_asleep(
    haproxy: HaProxy, path: Path, capsys: pytest.CaptureFixture[str], said: str, asleep: bool
) -> None:
    haproxy.asleep = said
    assert run(path, "state") == 0
    assert json.loads(capsys.readouterr().out)["asleep"] is asleep


@pytest.mark.parametrize("hold", [None, "MAINT", "MAINT (via x/y)"])
def test_where_nobody_may_wait_it_says_so(
    haproxy: HaProxy, path: Path, capsys: pytest.CaptureFixture[str], hold: str | None
) -> None:
    haproxy.hold = hold
    assert run(path, "state") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["may_wait"], sorted(told["slots"])) == (False, ["a"])


def test_a_new_process_gets_what_it_has_to_know_and_is_waited_for(
    haproxy: HaProxy, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    haproxy.refusals["show servers state"] = "1\n# be_id be_name\n"
    told: list[tuple[int, int]] = []

    def signalled(process: int, number: int) -> None:
        told.append((process, number))
        threading.Timer(0.3, setattr, (haproxy, "pid", 4712)).start()

    monkeypatch.setattr(control.os, "kill", signalled)
    assert run(path, "reload", "--process", "815", "--states", str(tmp_path / "servers")) == 0
    assert (tmp_path / "servers").read_text(encoding="utf-8") == "1\n# be_id be_name\n"
    assert told == [(815, signal.SIGUSR2)]
    assert haproxy.pid == 4712, "it was waited for"


def test_a_process_that_does_not_hand_over_is_told(
    haproxy: HaProxy, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(control.os, "kill", lambda *_arguments: None)
    monkeypatch.setattr(control, "HAND_OVER_S", 0.3)
    assert run(path, "reload", "--process", "815", "--states", str(tmp_path / "servers")) == 1
    assert f"no other process answers in place of {haproxy.pid}" in capsys.readouterr().err


def test_nothing_is_told_to_a_process_that_hands_over(
    haproxy: HaProxy, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(control, "HAND_OVER_S", 0.3)
    lock = path.parent / control.LOCK
    lock.touch()
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for words in (("ready", "a"), ("drain", "a"), ("leave", "a", "--within", "1")):
            assert run(path, *words) == 1
        assert capsys.readouterr().err.count("somebody else has controlled it for 0.3 s") == 3
        assert [command for command in haproxy.commands if command.startswith("set")] == []
    assert run(path, "ready", "a") == 0


def test_a_lock_that_leads_elsewhere_is_not_followed(haproxy: HaProxy, path: Path, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    (path.parent / control.LOCK).symlink_to(tmp_path / "other")
    assert run(path, "ready", "a") == 1
    assert haproxy.commands == []


def test_a_slot_is_led_to_its_port_and_waited_for(haproxy: HaProxy, path: Path) -> None:
    haproxy.slots = {"a": "UP", "b": "DOWN"}
    threading.Timer(0.3, haproxy.slots.update, ({"b": "UP"},)).start()
    assert run(path, "ready", "b", "--port", "28123", "--within", "20") == 0
    moves = [command for command in haproxy.commands if " addr " in command]
    assert moves == [f"set server {place}/b addr 127.0.0.1 port 28123" for place in ("answers", "looks-b")]
    assert haproxy.slots["b"] == "UP"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ready", "b", "--port", "70000"), "does not lead answers/b to port 70000"),
        (("ready", "b", "--within", "0.2"), "slot b is DOWN after 0.2 s"),
        (("ready", "c", "--within", "0.2"), "it has no slot c"),
    ],
)
def test_a_slot_that_cannot_serve_is_told(
    haproxy: HaProxy, path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    haproxy.slots = {"a": "UP", "b": "DOWN"}
    assert run(path, *words) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("slots", "stands", "waits"),
    [
        ({"a": "DOWN", "b": "MAINT"}, (1, "no check"), True),
        ({"a": "DRAIN", "b": "MAINT"}, (1, "no check"), True),
        ({"a": "DOWN", "b": "MAINT"}, (0, "no check"), False),
        ({"a": "DOWN", "b": "UP"}, (1, "no check"), False),
        ({"a": "UP 1/2", "b": "MAINT"}, (1, "no check"), False),
        ({"a": "MAINT", "b": "MAINT"}, (1, "MAINT"), False),
    ],
)
def test_it_is_settled_when_nobody_waits_for_an_engine_to_come(
    haproxy: HaProxy, path: Path, slots: dict[str, str], stands: tuple[int, str], waits: bool
) -> None:
    """``stands``: how many wait, and what is said of the place where they do."""
    haproxy.slots = slots
    haproxy.all, haproxy.hold = stands
    began = time.monotonic()
    assert run(path, "settled", "--within", "0.5") == 0
    assert (time.monotonic() - began > 0.4) is waits


def test_a_slot_that_is_not_there_has_left(haproxy: HaProxy, path: Path) -> None:
    assert run(path, "leave", "b", "--within", "1") == 0
    assert not [command for command in haproxy.commands if command.startswith("set")]


def test_what_left_counts_as_gone(haproxy: HaProxy, path: Path) -> None:
    assert run(path, "leave", "a", "--within", "1") == 0
    assert haproxy.commands[-1] == "set server answers/a state maint"


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("drain", "b"), "set server answers/b state drain"),
        (("close", "a"), "set server closed/closed state ready"),  # of a switch whose configuration is older
    ],
)
def test_a_refusal_is_an_error_with_its_words(
    haproxy: HaProxy, path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], command: str
) -> None:
    haproxy.refusals[command] = "No such server.\n"
    assert run(path, *words, "--within", "1") == 1
    assert f"answers {command!r} with: No such server." in capsys.readouterr().err


def test_a_slot_that_its_statistics_lack_is_not_at_rest(
    haproxy: HaProxy, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(path, "drain", "b", "--within", "1") == 1
    assert haproxy.commands[-1] == "show stat -1 4 -1"
    assert "it has no slot b" in capsys.readouterr().err


def test_an_answer_has_an_end(haproxy: HaProxy, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    haproxy.flood = True
    assert run(path, "state") == 1
    assert "without an end" in capsys.readouterr().err


@pytest.mark.parametrize("was_there", [True, False])
def test_where_no_switch_runs_nobody_is_served_by_it(
    path: Path, capsys: pytest.CaptureFixture[str], was_there: bool
) -> None:
    if was_there:
        HaProxy(path).end()
    assert run(path, "drain", "a", "--within", "60") == 0
    assert run(path, "leave", "a", "--within", "60") == 0
    for words in ("settled --within 60", "away a --within 1", "close a --within 1", "hang-up a", "open"):
        assert run(path, *words.split()) == 0, words
    assert run(path, "ready", "a") == 1
    assert run(path, "state") == 1
    assert f"Unable to ask the switch at {path} for {'state'!r}" in capsys.readouterr().err


def test_a_web_application_is_away_at_once_and_its_requests_are_waited_for(haproxy: HaProxy, path: Path) -> None:
    haproxy.looks = [2, 1, 0]
    assert run(path, "away", "a", "--within", "20") == 0
    assert haproxy.commands[0] == "set server answers/a state maint"
    assert haproxy.looks == [0]


@pytest.mark.parametrize(
    ("stream", "is_ended"),
    [
        (BEFORE_3.format(place="be=looks-a", reads="", writes="1m40s"), True),
        (BEFORE_3.format(place="be=looks-a", reads="", writes="59s"), True),
        (BEFORE_3.format(place="be=looks-a", reads="", writes="1m41s"), False),
        (BEFORE_3.format(place="be=looks-a", reads="59m20s", writes=""), False),
        (BEFORE_3.format(place="be=sockets", reads="", writes="30s"), False),
        (SINCE_3.format(place="be=looks-a", reads="", writes="1m40s"), True),
        (SINCE_3.format(place="be=looks-a", reads="", writes="2m"), False),
        (SINCE_3.format(place="be=looks-a", reads="20s", writes=""), False),
    ],
)
def test_an_answer_that_its_client_does_not_take_is_not_waited_for(
    haproxy: HaProxy, path: Path, stream: str, *, is_ended: bool
) -> None:
    """One of which the server says nothing for as long is."""
    haproxy.refusals["show sess"] = f"{stream}\n\n"
    control.Switch(path).end_untaken("looks-a")
    assert haproxy.commands == ["show sess", *["shutdown session 0x7f8fdc030d70"] * is_ended]


def test_a_web_application_is_closed_while_it_answers_and_its_requests_are_waited_for(
    haproxy: HaProxy, path: Path
) -> None:
    haproxy.looks = [2, 1, 0]
    assert run(path, "close", "a", "--within", "20") == 0
    assert haproxy.commands[0] == "set server closed/closed state ready"
    assert haproxy.looks == [0]
    assert run(path, "hang-up", "a") == 0
    assert haproxy.commands[-1] == "shutdown sessions server sockets/a"
    assert run(path, "open") == 0
    assert haproxy.commands[-1] == "set server closed/closed state maint"
    assert not [command for command in haproxy.commands if command.startswith("set server answers/")]


@pytest.mark.parametrize("state", ["active", "activating", "inactive", "failed", "deactivating"])
@pytest.mark.parametrize("has_pages", [True, False])
def test_a_switch_that_starts_stays_closed_for_as_long_as_systemd_says(
    haproxy: HaProxy, path: Path, monkeypatch: pytest.MonkeyPatch, state: str, has_pages: bool
) -> None:
    asked = list[str]()

    def shown(unit: str) -> tuple[str, bool]:
        asked.append(unit)
        return state, False

    monkeypatch.setattr(control, "unit_state", shown)
    haproxy.has_pages = has_pages
    assert run(path, "begin", "a") == 0
    closes = has_pages and state in ("active", "activating")
    assert haproxy.commands.count("set server closed/closed state ready") == closes
    assert haproxy.commands[-1] == "set server answers/a state ready"
    assert asked == [f"{path.parent.name}-closed.service"] * has_pages


def test_the_unit_that_closes_it_is_named_after_whom_the_switch_serves() -> None:
    unit = control.closed_unit_of(Path("/run/switch-open-webui/control.sock"))
    assert unit == "open-webui-closed.service"
