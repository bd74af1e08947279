"""A rollback that is killed once its container is stopped: the same command goes back, and has it run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.up.quickstart_lab import Lab
from tests.lab.incus import Lab as Incus
from tests.processes import killed_at_end
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus]

NAME = "killback-one"
FILE = f"name: killback\ncontainers:\n  {NAME}: {{ image: debian/12 }}\n"
ROLLBACK = ("rollback", NAME, "--to", "good", "--yes")


@pytest.fixture
def lab(incus_lab: Incus, tmp_path: Path) -> Iterator[Lab]:
    """One container that runs, with a snapshot."""
    lab = Lab(tmp_path, incus_lab.environment, "debian/12", "debian/12")
    lab.write(FILE)
    well(lab, "destroy", "--prune", "--yes", "--lab", "killback")
    well(lab, "up", "--yes")
    well(lab, "snapshot", "--name", "good")
    yield lab
    well(lab, "destroy", "--prune", "--yes", "--lab", "killback")


def well(lab: Lab, *words: str) -> None:
    lab.succeeded(*words)


def state(lab: Lab) -> str:
    return str(json.loads(lab.incus("list", NAME, "--format", "json"))[0]["status"])


def left(lab: Lab) -> list[str]:
    """What runs have written beside the containers."""
    names = [one["name"] for one in json.loads(lab.incus("profile", "list", "--format", "json"))]
    return [one for one in names if one.startswith("provisioner-") and "killback" in one]


def test_a_rollback_that_was_killed_with_its_container_stopped_has_it_run_again(lab: Lab) -> None:
    lab.incus("exec", NAME, "--", "touch", "/root/broken")
    command = [str(Path(sys.executable).parent / "provision"), *ROLLBACK]
    with killed_at_end(
        subprocess.Popen(
            command,
            cwd=lab.folder,
            env={**os.environ, **lab.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    ) as run:
        wait_until(lambda: state(lab) == "Stopped")
        run.send_signal(signal.SIGKILL)
        assert run.wait(60) == -signal.SIGKILL
    assert "provisioner-unfinished-killback_killback-one" in left(lab)
    again = lab.succeeded(*ROLLBACK)
    assert "it ran until a rollback of it was interrupted, and is started" in again.out
    assert state(lab) == "Running"
    assert lab.incus("exec", NAME, "--", "ls", "-A", "/root").find("broken") == -1
    assert left(lab) == []
