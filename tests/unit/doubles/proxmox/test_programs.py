"""The programs of the double's node that need no container that runs: how long they take."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from tests.doubles.proxmox import Double
from tests.doubles.proxmox.pct import Pct


@pytest.fixture
def pct(pve: Double) -> Iterator[Pct]:
    """The node's programs; its containers live in memory."""
    with (
        tempfile.TemporaryDirectory(prefix="pve-") as folder,  # not ``tmp_path``: sockets need short paths
        closing(Pct(pve, cast("Any", pve.world.containers), Path(folder))) as programs,
    ):
        yield programs


@pytest.mark.parametrize(
    "words", [("pct", "set", "105", "--memory", "300"), ("pvesh", "get", "/version")], ids=lambda words: words[0]
)
def test_each_program_takes_the_time_that_perl_takes(pve: Double, pct: Pct, words: tuple[str, ...]) -> None:
    pve.world.add_guest(105, "pve1")
    pct.cost_s = 0.3
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([pct.bin / words[0], *words[1:]], check=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime >= pct.cost_s
