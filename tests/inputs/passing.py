"""Counts, while tests run, which parts of them pass as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tests.inputs.parts import part_of


def when(moment: float) -> str:
    """A Unix time as people of this machine's zone write it."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


class Passing:
    """The tests that are expected, and what became of them."""

    def __init__(self) -> None:
        self._expected: dict[str, set[str]] = {}
        self._ended: set[str] = set()
        self._failed: set[str] = set()
        self._skipped: set[str] = set()

    def expect(self, nodeids: Iterable[str]) -> None:
        """These tests have been collected."""
        for nodeid in nodeids:
            self._expected.setdefault(part_of(nodeid), set()).add(nodeid)

    def parts(self) -> list[str]:
        """The parts of which tests are expected."""
        return sorted(self._expected)

    def report(self, nodeid: str, phase: str | None, outcome: str) -> None:
        """One phase of a test has ended: ``setup``, ``call`` or ``teardown``."""
        if outcome == "failed":
            self._failed.add(nodeid)
        if outcome == "skipped":
            self._skipped.add(nodeid)
        if phase == "teardown":
            self._ended.add(nodeid)

    def passed(self) -> dict[str, tuple[int, int]]:
        """Each part whose tests all ended without a failure: how many it has, and how many were not skipped."""
        found = {}
        for part, expected in self._expected.items():
            if expected <= self._ended and not expected & self._failed:
                found[part] = (len(expected), len(expected - self._skipped))
        return found
