"""A container that stops by itself while it is being stopped by force: what Incus answers then, as it was seen."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from provisioner.hosts.incus import stopping
from provisioner.hosts.incus.api import Client, WireError
from provisioner.hosts.incus.stopping import stop_by_force, stop_cleanly

NOT_RUNNING = 'container is not running: "one"'


class Stopping:
    """Refuses to stop the container, whose state goes through ``states``."""

    def __init__(self, words: str, *states: str) -> None:
        self.words = words
        self.states = list(states)

    def change(self, *_path: str, **_body: Any) -> None:
        """Refuse."""
        raise WireError(400, self.words)

    def find(self, *_path: str) -> dict[str, str] | None:
        """The next state; without one it is gone."""
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {"status": state} if state else None


def stop(*states: str, words: str = NOT_RUNNING) -> Stopping:
    """What is left of the host after the attempt."""
    host = Stopping(words, *states)
    stop_by_force(cast("Client", host), "one", timeout_s=0.3)
    return host


@pytest.mark.parametrize("states", [("Running", "Running", "Stopped"), ("Stopped",), ("Running", "")])
def test_what_stops_by_itself_has_been_stopped(states: tuple[str, ...]) -> None:
    assert stop(*states).states == [states[-1]]


def test_what_runs_on_is_an_error() -> None:
    with pytest.raises(WireError, match="is not running"):
        stop("Running")


def test_another_error_is_told_at_once() -> None:
    host = Stopping("no such cgroup", "Running", "Stopped")
    with pytest.raises(WireError, match="no such cgroup"):
        stop_by_force(cast("Client", host), "one")
    assert host.states == ["Stopped"]


def test_one_that_the_end_of_another_stop_caught_is_stopped_again() -> None:
    """Seen of a container that was stopped by force, started, and stopped by force at once."""
    still_there = 'Failed stopping instance, status is "Running"'
    host = Asked(WireError(400, still_there), WireError(400, still_there), None)
    stop_by_force(cast("Client", host), "one")
    assert host.find() == {"status": "Stopped"}
    with pytest.raises(WireError, match="Failed stopping instance"):
        stop("Running", words=still_there)


class Asked:
    """Answers each question to stop with the next of ``answers``: an error, or None when the container stops."""

    def __init__(self, *answers: Exception | None, waits_s: float = 0.0) -> None:
        self.answers = list(answers)
        self.waits_s = waits_s
        self.asked: list[dict[str, Any]] = []
        self.runs = True

    def change(self, *_path: str, body: dict[str, Any]) -> None:
        """Note what was asked for; take time where Incus does."""
        self.asked.append(body)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            threading.Event().wait(self.waits_s)
            raise answer
        self.runs = False

    def find(self, *_path: str) -> dict[str, str]:
        """What it is doing."""
        return {"status": "Running" if self.runs else "Stopped"}


CUT = ConnectionResetError("Connection reset by peer")
BROKEN = WireError(500, "Internal Server Error")
TIME_RAN_OUT = WireError(400, 'Failed shutting down instance, status is "Running": context deadline exceeded')
RUNS_ON = WireError(400, 'Failed shutting down instance, status is "Running"')
"""Seen on a busy machine, at once, of one that had just been started."""
GOES_ON = WireError(400, 'Instance is busy running a "stop" operation')


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again soon."""
    monkeypatch.setattr(stopping, "ASK_AGAIN_S", 0.05)


@pytest.mark.parametrize("fault", [CUT, BROKEN, WireError(0, "it broke off")])
def test_a_question_that_the_daemon_did_not_take_is_asked_again(fault: Exception) -> None:
    host = Asked(fault, fault, None)
    assert stop_cleanly(cast("Client", host), "one", 5.0)
    assert [body["action"] for body in host.asked] == ["stop"] * 3
    assert not any("force" in body for body in host.asked)


@pytest.mark.parametrize("fault", [CUT, BROKEN])
def test_one_that_was_never_asked_is_never_forced(fault: Exception) -> None:
    host = Asked(fault)
    with pytest.raises(type(fault)):
        stop_cleanly(cast("Client", host), "one", 0.4)
    assert host.runs


@pytest.mark.parametrize(("answers", "waits_s"), [((TIME_RAN_OUT,), 0.4), ((CUT, GOES_ON), 0.0), ((RUNS_ON,), 0.0)])
def test_only_one_whose_time_ran_out_may_be_forced(answers: tuple[Exception, ...], waits_s: float) -> None:
    host = Asked(*answers, waits_s=waits_s)
    assert not stop_cleanly(cast("Client", host), "one", 0.4)
