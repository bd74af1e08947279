"""Sessions as /proc shows them: whose, what runs in them, and which ones xrdp has forgotten."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.unit.desktop.programs import program

sessions = program("sessions")
SERVER = "/usr/lib/xorg/Xorg\0:10\0-auth\0.Xauthority\0-config\0xrdp/xorg.conf\0-noreset"
STARTED = 500
BUS = "unix:abstract=/tmp/dbus-x,guid=1"


def process(proc: Path, pid: int, name: str, words: str = "", environment: str = "") -> None:
    """One process in a folder that stands for /proc."""
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cmdline").write_text(words)
    (folder / "environ").write_text(environment)
    (folder / "stat").write_text(f"{pid} ({name}) S 1 " + " ".join(["0"] * 17) + f" {STARTED} 0")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self").mkdir()
    process(tmp_path, 1, "systemd")
    process(tmp_path, 10, "Xorg", SERVER)
    process(tmp_path, 11, "x-session-manag", environment=f"DISPLAY=:10.0\0DBUS_SESSION_BUS_ADDRESS={BUS}\0")
    process(tmp_path, 12, "marco", environment="DISPLAY=:10.0\0")
    process(tmp_path, 13, "mate-panel", environment="DISPLAY=:11\0")
    process(tmp_path, 20, "Xorg", "/usr/lib/xorg/Xorg\0:0")
    return tmp_path


def test_a_session_is_a_server_of_xrdp_with_what_runs_on_its_display(proc: Path) -> None:
    (found,) = sessions.sessions(proc, 400)
    assert (found.display, found.server, found.leader, found.manager, found.panel) == (":10", 10, 11, 12, 0)
    assert found.user == sessions.name_of(os.getuid())
    assert found.bus == BUS


@pytest.mark.parametrize(("sesman", "orphaned"), [(400, False), (501, True), (0, False)])
def test_a_session_older_than_sesman_is_known_to_nobody(proc: Path, sesman: int, orphaned: bool) -> None:
    assert sessions.sessions(proc, sesman)[0].orphaned is orphaned


def test_the_end_of_a_session_ends_what_runs_on_its_display_and_nothing_of_others(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = 2**30  # no process of this machine
    left = [sessions.Process(pid, proc) for pid in (1, 11, 12, 13)]
    vars(left[2])["user"] = os.getuid() + 1
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(sessions, "processes", lambda: left)
    monkeypatch.setattr(sessions.os, "kill", lambda pid, number: told.append((pid, number)))
    sessions.end(sessions.Session(sessions.name_of(os.getuid()), ":10", ended, ended))
    assert told == [(ended, signal.SIGTERM), (11, signal.SIGTERM)]


def test_without_servers_there_are_none_and_systemd_is_not_asked(tmp_path: Path) -> None:
    assert sessions.sessions(tmp_path) == []


def test_a_bus_answers_while_something_listens(tmp_path: Path) -> None:
    place = tmp_path / "bus"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        assert sessions.bus_answers(f"unix:path={place},guid=2;tcp:host=x")
    place.unlink()
    assert not sessions.bus_answers(f"unix:path={place}")
    assert not sessions.bus_answers("")
