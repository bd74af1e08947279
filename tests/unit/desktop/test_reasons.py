"""Each broken state's own text, from the lines that xrdp really writes then, on Debian 12 and 13."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.desktop.programs import program

reasons, sessions = program("reasons"), program("sessions")
RUNS = sessions.Session("penny", ":10", 11, leader=12, manager=13, panel=14, bus="unix:path=/tmp/b")
TMP = "/tmp"  # noqa: S108  # nothing is written
ROOM = {"/home/penny": 10**9, TMP: 10**9}


def seen(kind: str, **more: Any) -> str:
    """The reason for what was seen."""
    said: str = reasons.reason(reasons.Evidence("penny", kind, **{"free": ROOM, **more}))
    return said


def test_a_desktop_with_its_parts_is_no_problem() -> None:
    assert seen("mate", session=RUNS) == ""


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "password, 12": (
        {"kind": "log", "code": 12, "log": ["[INFO ] AUTHFAIL: user=penny ip=::1 time=1"]},
        "the password of penny was refused",
    ),
    "session limit, 12": (
        {"kind": "log", "log": ["[ERROR] max concurrent session limit exceeded. login for user penny denied"]},
        "no more sessions are allowed",
    ),
    "session limit, 13": (
        {"kind": "log", "code": 12, "log": ["Can't create session for user penny - Max session limit reached"]},
        "`max_sessions`",
    ),
    "no display": (
        {"kind": "log", "code": 12, "log": ["[ERROR] X server -- no display in range (10 to 12) is available"]},
        "no display is left for a session: no display in range (10 to 12) is available",
    ),
    "no xorgxrdp, 12": (
        {"kind": "blank", "log": ["[ERROR] There is no X server active on display 10"]},
        "no X server starts for penny: There is no X server active on display 10",
    ),
    "no xorgxrdp, 13": ({"kind": "log", "log": ["[ERROR] X server failed to start"]}, "no X server starts for penny"),
    "its driver is gone": ({"kind": "blank", "has_driver": False}, "is xorgxrdp installed?"),
    "no panel": (
        {
            "kind": "background",
            "session": sessions.Session("penny", ":10", 11, 12, 13, 0),
            "errors": ["WARNING: Unable to find provider 'mate-panel' of required component 'panel'"],
        },
        "the desktop has no panel (mate-panel): WARNING: Unable to find provider 'mate-panel'",
    ),
    "no window manager": (
        {"kind": "mate", "session": sessions.Session("penny", ":10", 11, 12, 0, 14)},
        "the desktop has no window manager (marco): it does not run",
    ),
    "nothing drawn": (
        {"kind": "blank", "session": sessions.Session("penny", ":10", 11)},
        "the session runs and draws nothing",
    ),
    "no bus": (
        {
            "kind": "dialog",
            "session": sessions.Session("penny", ":11", 11, 12),
            "errors": ["WARNING: Failed to acquire org.gnome.SessionManager"],
        },
        "the session got no bus of its own",
    ),
    "ended at once": (
        {
            "kind": "blank",
            "code": 12,
            "log": ["[WARN ] Window manager exited quickly (0 secs). This could indicate a problem"],
            "errors": ["mate-session: command not found"],
        },
        "the last line of ~/.xsession-errors is: mate-session: command not found",
    ),
    "disk": (
        {"kind": "log", "code": 12, "free": {"/home/penny": 4096, TMP: 10**9}},
        "the disk is full: /home/penny",
    ),
    "nothing listens": ({"kind": "blank", "code": 147}, "nothing answers on the port"),
    "no TLS": ({"kind": "blank", "code": 133, "words": "ERRCONNECT"}, "agree on no TLS (ERRCONNECT)"),
    "something else": ({"kind": "other"}, "judged as other"),
}


@pytest.mark.parametrize(
    "line",
    [
        "[INFO ] AUTHFAIL: user=ann ip=::1 time=1",
        "[INFO ] AUTHFAIL: user=pennyworth ip=::1 time=1",
        "[ERROR] pam_authenticate failed: Authentication failure",
        "[ERROR] max concurrent session limit exceeded. login for user ann denied",
        "Can't create session for user ann - Max session limit reached",
    ],
)
def test_what_happened_to_somebody_else_meanwhile_is_no_reason(line: str) -> None:
    assert seen("mate", session=RUNS, log=[line]) == ""
    assert not reasons.is_sure(reasons.Evidence("penny", "log", log=[line], free=ROOM))


@pytest.mark.parametrize("name", CASES)
def test_a_broken_state_has_its_own_text(name: str) -> None:
    given, words = CASES[name]
    assert words in seen(**given)


@pytest.mark.parametrize(
    ("name", "sure"), [("session limit, 12", True), ("no panel", True), ("no window manager", False), ("disk", False)]
)
def test_what_is_said_in_a_log_is_not_waited_for(name: str, sure: bool) -> None:
    given, _ = CASES[name]
    assert reasons.is_sure(reasons.Evidence("penny", **{"free": ROOM, **given})) is sure


def test_a_session_that_begins_is_waited_for_though_it_finds_no_dock() -> None:
    begins = sessions.Session("penny", ":10", 11, 12)
    errors = ["WARNING: Unable to find provider '' of required component 'dock'"]
    assert not reasons.is_sure(reasons.Evidence("penny", "other", session=begins, errors=errors, free=ROOM))


def test_no_two_states_are_told_alike() -> None:
    said = [seen(**given)[:25] for name, (given, _) in CASES.items() if not name.endswith("13") and "gone" not in name]
    assert len(set(said)) == len(said)
