"""How far a build is, told while Ansible compiles in a real container of a real host."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path

import pytest

from provisioner.hosts import provider_for
from provisioner.hosts.base import Provider
from provisioner.reconcile.artifacts import ensure_artifacts
from provisioner.reconcile.runner import run_playbook
from provisioner.values import paths
from provisioner.values.events import ApplyProgress, Diagnostic, Event
from provisioner.values.state import Artifact

TOTAL = 180
ENOUGH = 3
COMPILE = "build | Compile"
LOG = "/var/tmp/counting/build.log"  # noqa: S108  # in a throwaway container
IS_TOLD = "/run/is_told"
TASKS = f"""
- name: {COMPILE}
  ansible.builtin.shell: |
    set -e
    mkdir -p {LOG.rpartition("/")[0]}
    for done in $(seq 1 {TOTAL}); do
      test ! -e {IS_TOLD} || exit 0
      printf '[%s/%s] Building CXX object %s.o\\n%s.cpp: warning: [9/9]\\n' $done {TOTAL} $done $done >>{LOG}
      sleep 1
    done
"""
"""Writes what ninja would write, until it has been told often enough."""


@pytest.fixture(
    params=[
        pytest.param("incus", marks=pytest.mark.incus),
        pytest.param("proxmox", marks=[pytest.mark.incus, pytest.mark.proxmox, pytest.mark.slow]),
    ]
)
def host(request: pytest.FixtureRequest) -> Provider:
    """A host whose containers run: the lab's Incus, or the double of a Proxmox node."""
    request.getfixturevalue("incus_lab")
    is_proxmox = request.param == "proxmox"
    settings = {"access": request.getfixturevalue("pve_host").access} if is_proxmox else {}
    return provider_for("box", request.param, **settings)


@pytest.fixture
def role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A role whose build only counts; base is our own."""
    tasks = tmp_path / "roles" / "counting" / "tasks"
    tasks.mkdir(parents=True)
    (tasks / "build.yml").write_text(TASKS)
    (tmp_path / "roles" / "base").symlink_to(paths.roles() / "base")
    monkeypatch.setattr(paths, "roles", lambda: tmp_path / "roles")
    return "counting"


def test_a_build_is_told_while_it_goes_on(host: Provider, role: str, tmp_path: Path) -> None:
    name = f"prg-{secrets.token_hex(4)}"
    artifact = Artifact(
        name,
        "box",
        secrets.token_hex(32),
        role,
        "/opt/prg",
        "debian/12",
        cacheable=False,
        log=LOG,
        mounted_at="/opt/prg/d",
    )
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        if len(counts(events)) == ENOUGH and isinstance(event, ApplyProgress) and event.goes_on:
            host.push(artifact.builder, b"", IS_TOLD)

    run = partial(run_playbook, folder=tmp_path / "lab")
    try:
        ensure_artifacts([artifact], {"box": host}, name, run_playbook=run, emit=emit, cache=tmp_path)
    finally:
        host.volumes.delete(artifact.volume)
    assert ApplyProgress(name, COMPILE) in events
    assert len(counts(events)) >= ENOUGH, "it was not told while it went on"
    seen = [int(one.removeprefix(f"{COMPILE}: ").removesuffix(f" of {TOTAL}")) for one in counts(events)]
    assert seen == sorted(set(seen)), "a number came twice, or went back"
    assert not [one for one in events if isinstance(one, Diagnostic)]
    assert not host.observe(name).instances


def counts(events: list[Event]) -> list[str]:
    return [one.message for one in events if isinstance(one, ApplyProgress) and one.goes_on]
