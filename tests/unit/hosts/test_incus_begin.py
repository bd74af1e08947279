"""A container that is started just after its stop: Incus may take it for a running one for a moment, as it was seen."""

from __future__ import annotations

from typing import Any, cast

import pytest

from provisioner.hosts.incus import containers
from provisioner.hosts.incus.api import Client, WireError, local_endpoint

STILL = "The instance is already running"


class Starting:
    """Refuses to start the container with each of these words in turn, and then starts it."""

    def __init__(self, *words: str, status: str = "Stopped") -> None:
        self.words = list(words)
        self.status = status

    def change(self, *_path: str, **_body: Any) -> None:
        """Refuse as long as there are words."""
        if self.words:
            raise WireError(400, self.words.pop(0))
        self.status = "Running"

    def get(self, *_path: str) -> dict[str, str]:
        """The container as it is."""
        return {"status": self.status}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "BEGIN_S", 0.2)
    monkeypatch.setattr(containers, "BEGIN_POLL_S", 0.01)


def begun(host: Starting) -> Starting:
    """The host after the start."""
    containers.begin(cast("Client", host), local_endpoint(), "one", "start")
    return host


def test_one_that_has_stopped_a_moment_ago_is_started_again() -> None:
    assert begun(Starting(STILL, STILL)).status == "Running"


def test_one_that_somebody_else_has_started_runs() -> None:
    host = Starting(*[STILL] * 1000, status="Running")
    assert begun(host).words


def test_one_that_never_runs_is_an_error() -> None:
    with pytest.raises(WireError, match="already running"):
        begun(Starting(*[STILL] * 1000))


def test_another_error_is_told_at_once() -> None:
    host = Starting("no such cgroup", STILL)
    with pytest.raises(WireError, match="no such cgroup"):
        begun(host)
    assert host.words == [STILL]
