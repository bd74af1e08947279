"""Each broken state's own text, from the lines that xrdp really writes then, on Debian 12 and 13."""

from __future__ import annotations

from typing import Any

import pytest

from tests.case_files import read_cases
from tests.unit.desktop.programs import program

reasons, sessions = program("reasons"), program("sessions")
RUNS = sessions.Session("penny", ":10", 11, leader=12, manager=13, panel=14, bus="unix:path=/tmp/b")
TMP = "/tmp"  # noqa: S108  # nothing is written
ROOM = {"/home/penny": 10**9, TMP: 10**9}


CASES = read_cases("desktop/reasons")


def evidence(kind: str, **more: Any) -> Any:
    """Return what was seen; a session may be told by its fields."""
    if isinstance(more.get("session"), dict):
        more["session"] = sessions.Session(**more["session"])
    return reasons.Evidence("penny", kind, **{"free": ROOM, **more})


def seen(kind: str, **more: Any) -> str:
    """The reason for what was seen."""
    said: str = reasons.reason(evidence(kind, **more))
    return said


def test_a_desktop_with_its_parts_is_no_problem() -> None:
    assert seen("mate", session=RUNS) == ""


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
    assert CASES[name]["said"] in seen(**CASES[name]["seen"])


@pytest.mark.parametrize(
    ("name", "sure"), [("session limit, 12", True), ("no panel", True), ("no window manager", False), ("disk", False)]
)
def test_what_is_said_in_a_log_is_not_waited_for(name: str, sure: bool) -> None:
    assert reasons.is_sure(evidence(**CASES[name]["seen"])) is sure


def test_a_session_that_begins_is_waited_for_though_it_finds_no_dock() -> None:
    begins = sessions.Session("penny", ":10", 11, 12)
    errors = ["WARNING: Unable to find provider '' of required component 'dock'"]
    assert not reasons.is_sure(reasons.Evidence("penny", "other", session=begins, errors=errors, free=ROOM))


def test_no_two_states_are_told_alike() -> None:
    told = {name: case["seen"] for name, case in CASES.items() if not name.endswith("13") and "gone" not in name}
    said = [seen(**given)[:25] for given in told.values()]
    assert len(set(said)) == len(said)
