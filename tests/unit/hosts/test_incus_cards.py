"""What an Incus host does for the cards of its own machine, and how their nodes are made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.gpus.cards import Card
from provisioner.hosts.incus import IncusProvider
from provisioner.hosts.incus.cards import Cards
from provisioner.values.errors import ProviderError

LACKING = Card(
    "0000:01:00.0", "nvidia", "RTX 3060", "nvidia", missing=("/dev/nvidia1", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
)

CARDS = IncusProvider("box").cards


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose programs note how they were called, and that has a card without its nodes."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(Cards, "read", lambda _cards: (LACKING,))
    write(tmp_path, "nvidia-modprobe")
    write(tmp_path, "systemctl", 'test "$1" != cat')
    return tmp_path


def write(folder: Path, name: str, ending: str = "true") -> None:
    """A program that notes its arguments and ends as ``ending`` does."""
    program = folder / name
    program.write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/calls\n{ending}\n')
    program.chmod(0o755)


def calls(folder: Path) -> list[str]:
    """How programs were called."""
    return (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []


def test_nodes_of_cards_and_of_unified_memory_take_a_call_each(programs: Path) -> None:
    assert CARDS.repair() == "ran nvidia-modprobe -c 1 -c 255 and ran nvidia-modprobe -u -c 0"
    assert calls(programs)[1:] == ["nvidia-modprobe -c 1 -c 255", "nvidia-modprobe -u -c 0"]


def test_the_unit_does_it_where_it_is_installed(programs: Path) -> None:
    write(programs, "systemctl")
    assert CARDS.repair() == "ran systemctl restart provision-gpu.service"
    assert calls(programs)[-1] == "systemctl restart provision-gpu.service"


def test_nothing_is_done_where_nothing_is_missing(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Cards, "read", lambda _cards: (Card("0000:01:00.0", "amd", "Vega", "amdgpu", missing=("/dev/kfd",)),)
    )
    assert CARDS.repair() == ""
    assert calls(programs) == []


@pytest.mark.parametrize("ending", ["echo 'Operation not permitted' >&2; exit 1", None])
def test_what_fails_is_said(programs: Path, ending: str | None) -> None:
    if ending is None:
        (programs / "nvidia-modprobe").unlink()
    else:
        write(programs, "nvidia-modprobe", ending)
    with pytest.raises(ProviderError, match="nvidia-modprobe ended with") as caught:
        CARDS.repair()
    assert caught.value.details == ("there is no nvidia-modprobe" if ending is None else "Operation not permitted")
    assert "sudo provision doctor --fix" in caught.value.resolution


def test_this_machine_says_what_it_does() -> None:
    assert CARDS.driver().complaint == ""
