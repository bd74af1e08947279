"""How far a build is, told while it runs in a real container of a real host."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from provisioner.artifacts import ensure_artifacts
from provisioner.events import ApplyProgress, Diagnostic, Event
from provisioner.providers import provider_for
from provisioner.providers.base import Provider
from provisioner.runner import PlaybookResult, TaskEvent
from provisioner.state import Artifact, Secret

TOTAL = 500
ENOUGH = 3
TIMEOUT_S = 180.0
POLL_S = 0.2
COMPILE = "build | Compile"
SCRIPT = """
mkdir -p "$(dirname "$1")"
(
  sleep 3
  for done in $(seq 1 "$2"); do
    printf '[%s/%s] Building CXX object %s.o\\n%s.cpp: warning: [9/9]\\n' "$done" "$2" "$done" "$done" >>"$1"
    sleep 1
  done
) </dev/null >/dev/null 2>&1 &
"""
"""Writes what ninja writes into a file, while others look; at first there is none."""


@pytest.fixture(
    params=[
        pytest.param("incus", marks=pytest.mark.incus),
        pytest.param("proxmox", marks=[pytest.mark.incus, pytest.mark.proxmox]),
    ]
)
def host(request: pytest.FixtureRequest) -> Provider:
    """A host whose containers run: the lab's Incus, or the double of a Proxmox node."""
    request.getfixturevalue("incus_lab")
    is_proxmox = request.param == "proxmox"
    settings = {"access": request.getfixturevalue("pve_host").access} if is_proxmox else {}
    return provider_for("box", request.param, **settings)


def counts(events: Sequence[Event]) -> list[str]:
    return [one.message for one in events if isinstance(one, ApplyProgress) and one.goes_on]


def test_a_build_is_told_while_it_goes_on(host: Provider, tmp_path: Path) -> None:
    log = "/var/tmp/prg/build.log"  # noqa: S108  # in a throwaway container
    name = f"prg-{secrets.token_hex(4)}"
    artifact = Artifact(name, "box", secrets.token_hex(32), "none", "/opt/prg", "debian/12", cacheable=False, log=log)
    events: list[Event] = []

    def build(
        playbook: str, inventory: str, *, on_task: Callable[[TaskEvent], None], secrets: Sequence[Secret] = ()
    ) -> PlaybookResult:
        """Stands for Ansible alone: the container, its volume and the program in it are real."""
        assert (playbook, secrets) == ("artifacts.yml", ())
        assert artifact.builder in inventory
        on_task(TaskEvent("start", artifact.builder, "none", COMPILE))
        done = host.execute(artifact.builder, ["sh", "-c", SCRIPT, "sh", log, str(TOTAL)])
        assert done.returncode == 0, done.stderr
        deadline = time.monotonic() + TIMEOUT_S
        while len(counts(events)) < ENOUGH:
            assert time.monotonic() < deadline, "it was not told while it went on"
            time.sleep(POLL_S)
        on_task(TaskEvent("ok", artifact.builder, "none", COMPILE))
        return PlaybookResult(0)

    try:
        ensure_artifacts([artifact], {"box": host}, name, run_playbook=build, emit=events.append, cache=tmp_path)
    finally:
        host.delete_volume(artifact.volume)
    seen = [int(one.removeprefix(f"{COMPILE}: ").removesuffix(f" of {TOTAL}")) for one in counts(events)]
    assert seen == sorted(set(seen)), "a number came twice, or went back"
    assert not [one for one in events if isinstance(one, Diagnostic)]
    assert not host.observe(name).instances
