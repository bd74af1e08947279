"""A run that is killed at any moment is brought to its end by the same command."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.up.killing import begun, killed_after
from tests.integration.up.quickstart_lab import Lab
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus]

STEP_S = 0.5
LONGEST_S = 60.0
SAMPLE = (5, 16)
"""Of the steps those that every run of the tests takes: while containers are made, and while roles run."""
FILE = lab_text("kill_loop")
STRANGER = "kill-stranger"


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("kill"), incus_lab.environment, "debian/12", "debian/12")
    lab.write(FILE)
    destroy(lab)
    lab.incus("delete", "--force", STRANGER, check=False)
    lab.incus("init", "debian/12", STRANGER)
    yield lab
    destroy(lab)
    lab.incus("delete", "--force", STRANGER)


def destroy(lab: Lab) -> None:
    lab.succeeded("destroy", "--prune", "--yes", "--lab", "kill")


def names(lab: Lab) -> set[str]:
    """All containers of the lab and all throwaway ones."""
    listed = json.loads(lab.incus("list", "--format", "json"))
    mine = [one["name"] for one in listed if (one["config"] or {}).get("user.provisioner.lab") == "kill"]
    assert len(mine) == len(set(mine))
    return set(mine)


def check_whole(lab: Lab) -> None:
    """Everything is there once, works, and nothing of the killed run is left."""
    assert names(lab) == {"kill-llama", "kill-gateway"}
    lab.succeeded("plan", "--detailed-exitcode")
    verified = lab.provision("status", "--json")
    health = [one["healthy"] for line in verified.lines if line["type"] == "container" for one in line["services"]]
    assert health == [True, True]
    assert lab.incus("config", "get", STRANGER, "user.provisioner.lab").strip() == ""
    assert json.loads(lab.incus("list", STRANGER, "--format", "json"))[0]["status"] == "Stopped"
    profiles = [one["name"] for one in json.loads(lab.incus("profile", "list", "--format", "json"))]
    assert [one for one in profiles if one.startswith("provisioner-lock-kill")] == []
    assert list((lab.folder / ".provision").glob("run-*")) == []
    # Secrets of a killed run go with the next one that has secrets to write down.
    secrets = Path("/dev/shm").glob("provision-*")  # noqa: S108
    assert [one for one in secrets if not Path(f"/proc/{one.name.split('-')[1]}").exists()] == []


def resumes(lab: Lab, seconds: float, number: signal.Signals = signal.SIGKILL) -> bool:
    """Kill an ``up`` of the whole lab after so long, and have the next one end it; False when it had ended."""
    destroy(lab)
    if not killed_after(lab, seconds, number):
        return False
    again = lab.provision("up", "--yes")
    assert again.code == 0, f"killed after {seconds} s:\n{again.out[-3000:]}{again.err[-3000:]}"
    check_whole(lab)
    return True


@pytest.mark.parametrize("step", SAMPLE)
def test_a_killed_run_is_brought_to_its_end(lab: Lab, step: int) -> None:
    assert resumes(lab, step * STEP_S)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupted_run_ends_in_order_and_is_brought_to_its_end(lab: Lab, number: signal.Signals) -> None:
    destroy(lab)
    with begun(lab) as run:
        wait_for_ansible(run)
        run.send_signal(number)
        assert run.wait(60) == 130
    assert list((lab.folder / ".provision").glob("run-*")) == []
    profiles = lab.incus("profile", "list", "--format", "csv")
    assert "provisioner-lock-kill" not in profiles
    again = lab.succeeded("up", "--yes")
    assert "did not come to its end" in again.err
    check_whole(lab)


def wait_for_ansible(run: subprocess.Popen[bytes]) -> None:
    """Block until Ansible works for the run."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, _, rest = status.read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue  # it ended meanwhile
            if name.startswith("ansible-playboo") and rest.split()[1] == str(run.pid):
                return
        assert run.poll() is None
        time.sleep(0.1)
    pytest.fail("Ansible did not begin")


@pytest.mark.slow
def test_a_run_killed_at_every_moment_is_brought_to_its_end(lab: Lab) -> None:
    step = 0
    while resumes(lab, (step := step + 1) * STEP_S):
        assert step * STEP_S < LONGEST_S
    assert step > max(SAMPLE), "a full run took less than the steps that are taken of it"
