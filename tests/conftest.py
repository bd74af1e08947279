"""What all tests share: the labs of Incus, the checkout, and the plugins of the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provisioner.values import paths

if TYPE_CHECKING:  # most tests need neither, and both take time to import
    from tests.lab.far import FarIncus
    from tests.lab.incus import Lab

pytest_plugins = ["tests.circles", "tests.snapshots", "tests.time_limits"]

ROOT = Path(__file__).resolve().parents[1]

if sys.dont_write_bytecode:  # half of the time of a collection is for what pytest makes of each assert
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(paths.cache() / "tests-bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix  # for the programs that tests start


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
