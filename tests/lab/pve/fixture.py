"""The fixture ``pve``: a double of its own for each test, that answers failed logins at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.pve.double import Double, double


@pytest.fixture
def pve() -> Iterator[Double]:
    """A cluster of three nodes; look at ``world``, ask ``url`` with the certificate ``ca``."""
    with double() as running:
        running.world.auth_delay_s = 0
        running.world.locks.timeout_s = 0.3
        yield running
