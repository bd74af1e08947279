"""A lab that an earlier version made is taken over as it is: its services start anew once, its containers do not."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from tests.integration.up.quickstart_lab import Lab
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
BEFORE = os.environ.get("PROVISION_BEFORE", "d564a5fba82445712a6ba0c6441040e87756eabd")
"""The commit of the earlier version: the first edition, before a lab was resolved once."""
PARTS = ("pyproject.toml", "src", "roles", "playbooks", "inventory")
UNITS = {"old-llama": "llama-server.service", "old-gate": "litellm.service"}
FILE = """\
name: old
models: { tiny: { source: "builtin:tiny", context: 512 } }
containers:
  old-llama: { services: { llama_cpp: { model: tiny, api_key: !secret engine_key } } }
  old-gate: { services: { litellm: { master_key: !secret master_key, aliases: { fast: [tiny] } } } }
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The earlier version's checkout."""
    command = ["git", "archive", "--format=tar", BEFORE, *PARTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=60)
    if done.returncode:
        pytest.skip(f"commit {BEFORE} is not in this clone: {done.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory, earlier: Path) -> Iterator[Lab]:
    """The lab as the earlier version made it."""
    lab = Lab(tmp_path_factory.mktemp("old"), incus_lab.environment, "debian/12", "debian/12", name="old")
    lab.write(FILE)
    with lab.gone_afterwards():
        made = lab.provision_of(earlier, "up", "--yes")
        assert made.code == 0, made.out[-4000:] + made.err[-4000:]
        yield lab


def containers(lab: Lab) -> dict[str, tuple[str, ...]]:
    """Of each container what shows that it was neither made nor started anew, nor given other volumes."""
    found: dict[str, tuple[str, ...]] = {}
    for container in lab.made():
        identity = (container["created_at"], container["config"]["volatile.uuid"], container["last_used_at"])
        volumes = sorted(device["source"] for device in container["devices"].values() if "source" in device)
        found[container["name"]] = (*identity, *volumes)
    return found


def starts(lab: Lab) -> dict[str, int]:
    """How often each service was started."""
    found = {}
    for name, unit in UNITS.items():
        told = lab.incus("exec", name, "--", "journalctl", "--unit", unit, "--output", "cat", "--grep", "^Started ")
        found[name] = len(told.splitlines())
    return found


def test_the_plan_replaces_and_restarts_nothing(lab: Lab) -> None:
    planned = lab.succeeded("plan", "--json")
    changes = [line for line in planned.lines if line["type"] == "planned_change"]
    assert {line["action"] for line in changes} == {"update", "configure"}
    assert not [line for line in changes if "restarted" in line["reason"]]


def test_an_up_leaves_containers_as_they_are_and_starts_services_once(lab: Lab) -> None:
    """They start anew because the earlier version's units finished no answers before they stopped."""
    before, started = containers(lab), starts(lab)
    assert before.keys() == UNITS.keys()
    lab.succeeded("up", "--yes")
    assert containers(lab) == before
    assert starts(lab) == {name: count + 1 for name, count in started.items()}
    assert lab.provision("plan", "--detailed-exitcode").code == 0
