"""Order, options and reasons of the whole test run: quick things first, real containers last, every skip explained."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.scheduling import ByScope, is_too_late, rank

if TYPE_CHECKING:  # what only some tests ask for is no input of the others
    from tests.lab.far import FarIncus
    from tests.lab.incus import Lab

pytest_plugins = ["tests.inputs.choice", "tests.snapshots"]

ROOT = Path(__file__).resolve().parents[1]
STARTED = float(os.environ.get("PROVISION_TEST_STARTED") or time.time())
"""When the whole run began (Unix time): with ``make``, before it installed anything."""


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
    group.addoption(
        "--integration-minutes",
        type=float,
        default=65,
        metavar="N",
        help="begin no integration test later than N minutes after the run began (default: 65); --all begins all",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put files into the order of ``scheduling``; leave what is slow to ``--all``."""
    workers = hasattr(config, "workerinput")
    items.sort(key=lambda item: rank(item.path.relative_to(ROOT / "tests").as_posix(), workers=workers))
    if config.getoption("--all"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: runs with --all (make test-all)"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave the rest of the real tests for another run, on a machine that is too slow for all of them."""
    minutes: float = item.config.getoption("--integration-minutes")
    path = item.path.relative_to(ROOT / "tests").as_posix() if item.path.is_relative_to(ROOT / "tests") else ""
    is_over = is_too_late(path, elapsed_s=time.time() - STARTED, budget_s=minutes * 60)
    if is_over and not item.config.getoption("--all"):
        pytest.skip(f"left for another run: {minutes:g} minutes of this one are over")


def pytest_report_header(config: pytest.Config) -> Iterable[str]:
    """Say what this run includes."""
    scope = "everything (--all)" if config.getoption("--all") else "what CI runs; slow tests with --all"
    return [f"scope: {scope}"]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByScope:
    """Share the tests out by what they have in common, in their order."""
    config.option.loadscopereorder = False
    return ByScope(config, log)


@pytest.fixture(scope="session")
def incus_lab() -> Iterator[Lab]:
    """The lab's Incus, found by every program that the tests start (``INCUS_DIR``); skips where there can be none."""
    from tests.lab.incus import LAB, used_by_tests

    with used_by_tests(LAB) as lab:
        yield lab


@pytest.fixture(scope="session")
def far_incus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarIncus]:
    """The second Incus, with a client certificate of this test run that it trusts."""
    from tests.lab.far import far_from

    with far_from(tmp_path_factory.mktemp("far")) as far:
        yield far


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def run_started() -> float:
    """When the whole run began (Unix time): with ``make``, before it installed anything."""
    return STARTED
