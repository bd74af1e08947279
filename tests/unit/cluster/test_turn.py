"""The lock of a cluster's repair, on a node that says more, less or something else than it should."""

from __future__ import annotations

import time

import pytest

from provisioner.cluster import turn
from provisioner.providers.proxmox.shell import Shell
from provisioner.values.errors import LockedError, UnavailableError
from tests.unit.providers.proxmox.nearby import Nearby, nearby, shell

__all__ = ["nearby", "shell"]  # fixtures


def answers(nearby: Nearby, command: str) -> None:
    """Let the node run this instead of what it is told."""
    ssh = nearby.folder / "ssh"
    ssh.write_text(ssh.read_text(encoding="ascii").replace('exec sh -c "$3"', f"exec {command}"), encoding="ascii")


def test_whoever_has_the_lock_works(shell: Shell, nearby: Nearby) -> None:
    answers(nearby, "sh -c 'echo noise; echo turn:mine; cat >/dev/null'")
    with turn.turn(shell, "me"):
        worked = True
    assert worked


def test_who_has_it_is_said(shell: Shell, nearby: Nearby) -> None:
    answers(nearby, "sh -c 'echo turn:busy; echo penny, since noon'")
    with pytest.raises(LockedError) as caught, turn.turn(shell, "me"):
        pass
    assert caught.value.details == "penny, since noon"


def test_a_node_that_never_stops_talking_is_not_listened_to(
    shell: Shell, nearby: Nearby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "CONNECT_TIMEOUT_S", 0.5)
    answers(nearby, "yes 'this goes on for ever'")
    with pytest.raises(UnavailableError) as caught, turn.turn(shell, "me"):
        pass
    assert len(caught.value.details) <= 2 * turn.ANSWER_BYTES


def test_a_node_that_says_nothing_is_not_waited_for(
    shell: Shell, nearby: Nearby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "ANSWER_S", 0.5)
    monkeypatch.setattr(turn, "CONNECT_TIMEOUT_S", 0.5)
    answers(nearby, "sleep 70401")
    began = time.monotonic()
    with pytest.raises(UnavailableError), turn.turn(shell, "me"):
        pass
    assert time.monotonic() - began < 20
