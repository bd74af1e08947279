"""A container's disk that fills during a change: no answer is cut, and up goes on once there is room."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.integration.up.quickstart_lab import Lab, asked_meanwhile
from tests.lab.incus import LAB, hold_to_limits
from tests.lab.incus import Lab as Incus
from tests.processes import completed
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus, pytest.mark.slow]

NAME, ENGINE = "filled", "filled-llama"
FILE = f"""
name: {NAME}
models:
  tiny: {{ source: "builtin:tiny", context: CONTEXT }}
containers:
  {ENGINE}: {{ image: IMAGE, disk: 2GiB, services: {{ llama_cpp: {{ model: tiny, api_key: !secret engine_key }} }} }}
"""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One engine with a limit of its disk, up."""
    lab = Lab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE.replace("CONTEXT", "512"))
    with lab.brought_up():
        hold_to_limits(LAB)
        yield lab


BEGUN = f"incus query /1.0/instances/{ENGINE}/snapshots | grep -q provision"
BESIDE = f"incus exec {ENGINE} -- systemctl is-active --quiet llama-server-beside"


@pytest.mark.parametrize("moment", [BEGUN, BESIDE], ids=["begun", "served by the one beside"])
def test_no_answer_is_cut_where_the_disk_fills_during_a_change(lab: Lab, moment: str) -> None:
    lab.write(FILE.replace("CONTEXT", str(576 + 64 * len(lab.runs))))
    environment = {**os.environ, **lab.environment}
    with ThreadPoolExecutor(1) as pool, asked_meanwhile(lab, ENGINE, "tiny") as statuses:
        run = pool.submit(lab.provision, "up", "--yes")
        wait_until(lambda: completed(["sh", "-c", moment], env=environment, timeout_s=60).returncode == 0)
        with without_room(ENGINE):
            ended = run.result(300)
    assert set(statuses) == {200}
    assert ended.code == 1
    assert re.search("(?i)disk quota exceeded|Nothing can be written there", ended.err)
    lab.succeeded("up", "--yes")
    assert "No changes" in lab.succeeded("plan").out


@contextmanager
def without_room(container: str) -> Iterator[None]:
    """Have nothing be written to a container's disk until the block ends."""
    pool = LAB.state / "storage-pools/default"
    shown = completed(["btrfs", "qgroup", "show", "-rf", str(pool / "containers" / container)], timeout_s=60).stdout
    group = shown.split()[-5]
    try:
        assert completed(["btrfs", "qgroup", "limit", "10M", group, str(pool)], timeout_s=60).returncode == 0
        yield
    finally:
        assert completed(["btrfs", "qgroup", "limit", "2G", group, str(pool)], timeout_s=60).returncode == 0
