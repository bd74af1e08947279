"""Order, options and reasons of the whole test run: quick things first, real containers last, every skip explained."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.lab.far import far_incus
from tests.lab.incus import incus_lab

__all__ = ["far_incus", "incus_lab"]  # fixtures for everybody

ROOT = Path(__file__).resolve().parents[1]
ORDER = ("lint", "unit", "integration", "molecule")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two questions a run can be asked differently: how much, and for how long."""
    group = parser.getgroup("provisioner")
    group.addoption("--all", action="store_true", help="also slow tests and what has passed on this machine before")
    group.addoption(
        "--budget-minutes",
        type=float,
        default=50,
        metavar="N",
        help="begin no Molecule scenario that would end later than N minutes after the run began (default: 50)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run folders in the order of ``ORDER``; leave what is slow to ``--all``."""
    items.sort(key=_rank)
    if config.getoption("--all"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: runs with --all (make test-all)"))


def pytest_report_header(config: pytest.Config) -> Iterable[str]:
    """Say what this run includes."""
    scope = "everything (--all)" if config.getoption("--all") else "what CI runs; slow tests with --all"
    return [f"scope: {scope}"]


def _rank(item: pytest.Item) -> int:
    folder = item.path.relative_to(ROOT / "tests").parts[0]
    return ORDER.index(folder) if folder in ORDER else len(ORDER)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def run_started() -> float:
    """When the whole run began (Unix time): with ``make``, before it installed anything."""
    return float(os.environ.get("PROVISION_TEST_STARTED") or time.time())
