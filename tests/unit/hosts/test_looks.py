"""A look into containers of one host: at once into several, and into a single one so that it can be interrupted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from provisioner.hosts.fake import FakeProvider
from provisioner.values.errors import ProviderError
from provisioner.values.state import Execution

MEETING_S = 30


class Watched(FakeProvider):
    """Says by which thread it is asked; of several asked at once each waits until all have come."""

    def __init__(self, at_once: int) -> None:
        super().__init__("box")
        self.met = threading.Barrier(at_once)
        self.threads: dict[str, threading.Thread] = {}

    def execute(self, name: str, command: Sequence[str], **_: Any) -> Execution:  # noqa: ARG002
        """What it was asked, after all have come."""
        self.threads[name] = threading.current_thread()
        self.met.wait(MEETING_S)
        if name == "silent":
            raise ProviderError("Unable to reach it")
        return Execution(0, name.encode(), b"")


def test_a_single_one_is_looked_into_by_the_thread_that_ctrl_c_interrupts() -> None:
    provider = Watched(1)
    found = provider.look(["true"], {"one": b""}, timeout_s=5)
    assert provider.threads == {"one": threading.current_thread()}
    assert found.executions["one"].stdout == b"one"


def test_several_are_looked_into_at_once() -> None:
    provider = Watched(3)
    found = provider.look(["true"], {"one": b"", "two": b"", "silent": b""}, timeout_s=5)
    assert {name: ran.stdout for name, ran in found.executions.items()} == {"one": b"one", "two": b"two"}
    assert list(found.failures) == ["silent"]
    assert threading.current_thread() not in provider.threads.values()


def test_an_interruption_of_a_single_one_is_passed_on() -> None:
    class Interrupted(FakeProvider):
        def execute(self, name: str, command: Sequence[str], **_: Any) -> Execution:  # noqa: ARG002
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted("box").look(["true"], {"one": b""}, timeout_s=5)
