"""A limit of time for each test: it fails then, what it set up is taken down, and the run goes on.

The limits are ends, no measurements: each is longer than any limit of a program that a test of its folder runs, so
that the test says which of them has hung. What is in no folder here has the limit of ``pyproject.toml``: Molecule's
verifiers, in scenarios that have one as a whole.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from pytest_timeout import Settings

FOLDER = Path(__file__).parent
LIMITS_S = {"unit": 600, "lint": 1800, "integration": 3600, "molecule": 5400}
"""By folder: in real ones, the first test also brings up the lab."""
SLOW_S = 4 * 3600
"""Of tests that try every moment, or every case."""
TAKE_DOWN_S = 3600
"""The same again for what was set up, which is taken down after a test has come to its limit, too."""


def limit_s(path: Path, *, is_slow: bool) -> float | None:
    """The limit of a test in that file; None where it is in none of the folders."""
    if not path.is_relative_to(FOLDER):
        return None
    limit = LIMITS_S.get(path.relative_to(FOLDER).parts[0])
    return SLOW_S if limit and is_slow else limit


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test that names no limit that of its folder."""
    for item in items:
        limit = limit_s(item.path, is_slow=item.get_closest_marker("slow") is not None)
        if limit and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(limit))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Begin a limit anew: that of the test may be over, and it rings once."""
    hook = item.config.hook
    hook.pytest_timeout_cancel_timer(item=item)
    settings = Settings(timeout=TAKE_DOWN_S, method="signal", func_only=False, disable_debugger_detection=False)
    hook.pytest_timeout_set_timer(item=item, settings=settings)
    yield
