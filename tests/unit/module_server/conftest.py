"""Servers that end with their tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.inside.module_server.handing import SWITCH
from tests.module_servers import Box


@pytest.fixture(autouse=True)
def not_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here is about a server that may serve."""
    monkeypatch.delenv(SWITCH, raising=False)


@pytest.fixture(scope="module")
def shared() -> Iterator[Box]:
    """A server for all tests of a file that leave it as it is."""
    yield from _box()


@pytest.fixture
def box() -> Iterator[Box]:
    """A server of the test's own."""
    yield from _box()


def _box() -> Iterator[Box]:
    # The name of a socket has at most 107 characters, and pytest's own folders have long ones.
    with tempfile.TemporaryDirectory(prefix="ms-") as folder:
        box = Box(Path(folder))
        yield box
        box.stop()
        assert box.sockets == []
