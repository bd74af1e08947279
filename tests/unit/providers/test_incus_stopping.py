"""A container that stops by itself while it is being stopped by force: what Incus answers then, as it was seen."""

from __future__ import annotations

from typing import Any, cast

import pytest

from provisioner.providers.incus.client import Client
from provisioner.providers.incus.stopping import by_force
from provisioner.providers.incus.wire import WireError

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
    by_force(cast("Client", host), "one", timeout_s=0.3)
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
        by_force(cast("Client", host), "one")
    assert host.states == ["Stopped"]
