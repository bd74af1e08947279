"""``host prepare``: which playbooks it runs on this machine, and how it ends."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.cli import host
from provisioner.cli.app import run
from provisioner.cli.console import Console
from provisioner.cli.session import Session
from provisioner.gpus.cards import Card
from provisioner.reconcile.runner import PlaybookResult, TaskEvent

CARD = Card("0000:01:00.0", "nvidia", "NVIDIA GeForce RTX 3060", "nvidia")
FAILED = TaskEvent("failed", "localhost", "gpu_host", "gpu_host : preflight | Check firmware", "there is none")


@dataclass
class Machine:
    """This machine, whose playbooks only say how they ended."""

    played: list[str] = field(default_factory=list)
    changes: dict[str, int] = field(default_factory=dict)
    fails: str = ""

    def prepare(self, *arguments: str) -> int:
        """The exit code of ``host prepare``."""
        self.played.clear()
        return run(["host", "prepare", *arguments], Session(Console(), None, self._play))

    def _play(self, playbook: str, inventory: str, **_: Any) -> PlaybookResult:
        assert "localhost" in inventory
        self.played.append(playbook)
        failures = (FAILED,) if playbook == self.fails else ()
        return PlaybookResult(2 if failures else 0, failures, dict(self.changes))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """This machine, as root; no Proxmox node."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(host, "PROXMOX", tmp_path / "pct")
    monkeypatch.setattr(host, "cards_here", lambda: (CARD,))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Machine()


def test_cards_are_prepared_when_that_is_asked_for(machine: Machine) -> None:
    assert (machine.prepare(), machine.played) == (0, ["host.yml"])
    assert (machine.prepare("--gpu"), machine.played) == (0, ["host.yml", "gpu_host.yml"])


def test_a_proxmox_node_gets_no_incus_beside_its_own_containers(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "pct").touch()
    assert (machine.prepare("--gpu"), machine.played) == (0, ["gpu_host.yml"])


def test_what_was_changed_is_said(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.prepare("--gpu")
    assert "nothing was changed" in capsys.readouterr().out
    machine.changes = {"localhost": 1}
    machine.prepare("--gpu")
    assert "This machine is ready." in capsys.readouterr().out


def test_what_the_role_refuses_is_said(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.fails = "gpu_host.yml"
    assert machine.prepare("--gpu") == 1
    assert "there is none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        ((), "it has none"),
        ((replace(CARD, driver="nouveau"),), "its driver is nouveau, not nvidia"),
        ((replace(CARD, driver="vfio-pci"),), "reserved for virtual machines"),
    ],
)
def test_a_machine_without_a_card_that_can_compute_is_refused_before_anything_is_touched(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cards: tuple[Card, ...],
    words: str,
) -> None:
    monkeypatch.setattr(host, "cards_here", lambda: cards)
    assert (machine.prepare("--gpu"), machine.played) == (4, [])
    assert words in capsys.readouterr().err
    assert machine.prepare() == 0


def test_without_root_nothing_is_run(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert (machine.prepare("--gpu"), machine.played) == (4, [])
