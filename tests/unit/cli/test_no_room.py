"""The calls that are made where there is no room (tests/integration/test_no_room.py) are of every verb."""

from __future__ import annotations

from provisioner.cli.app import VERBS
from tests.case_files import read_cases

CASES = read_cases("cli/no_room")

CALLS: dict[str, tuple[tuple[str, ...], ...]] = CASES["calls"]
CODES = {"init": (64,), "graph": (4, 64), "report": (4, 64), "eject": (1, 4), "lock": (1, 4)}
"""What is written for a user, where the user said: the words are wrong, or what was begun was taken back."""


def test_every_verb_is_called() -> None:
    assert CALLS.keys() == VERBS.keys()
