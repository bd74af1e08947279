"""Many containers looked into by one command on their node: what each gave, and what keeps one from being looked at."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from provisioner.errors import PreflightError, ProviderError
from provisioner.providers.proxmox import looking, volumes
from provisioner.providers.proxmox.shell import Shell
from tests.unit.providers.proxmox.nearby import RUNNING, Nearby, nearby, shell

__all__ = ["nearby", "shell"]  # fixtures

CANARY = "canary-4720"
ONE, TWO, THREE = RUNNING
VMIDS = {"one": ONE, "two": TWO, "three": THREE}
ECHO = ("sh", "-c", 'cat; echo "to stderr" >&2; exit 7')


def asked(nearby: Nearby) -> int:
    """How often ssh was told to run something; opening the connection is not."""
    return sum(" -N -f " not in line and line.startswith("-") for line in nearby.asked.splitlines())


def test_all_are_asked_by_one_command_and_each_gets_its_own(shell: Shell, nearby: Nearby) -> None:
    stdins = {name: f"{name}\0{CANARY}\n".encode() for name in VMIDS}
    found = looking.look(shell, ECHO, VMIDS, stdins, shared=b"\xff\n", timeout_s=20)
    assert {name: one.stdout for name, one in found.executions.items()} == {
        name: b"\xff\n" + own for name, own in stdins.items()
    }
    assert {(one.returncode, one.stderr) for one in found.executions.values()} == {(7, b"to stderr\n")}
    assert asked(nearby) == 1
    assert CANARY not in nearby.asked


def test_twenty_cost_no_more_commands_than_one(shell: Shell, nearby: Nearby) -> None:
    names = [f"c{number}" for number in range(20)]
    vmids, stdins = dict.fromkeys(names, ONE), {one: one.encode() for one in names}
    found = looking.look(shell, ["cat"], vmids, stdins, shared=b"", timeout_s=20)
    assert {name: one.stdout.decode() for name, one in found.executions.items()} == {one: one for one in names}
    assert asked(nearby) == 1


def test_one_that_does_not_run_is_named_in_pcts_words(shell: Shell) -> None:
    vmids = {"one": ONE, "web": 999}
    with pytest.raises(ProviderError, match="Unable to look into container web") as caught:
        looking.look(shell, ["true"], vmids, dict.fromkeys(vmids, b""), shared=b"", timeout_s=20)
    assert caught.value.details == "container '999' not running!"


def test_one_that_hangs_is_killed_and_keeps_no_other_from_answering(shell: Shell) -> None:
    command = ["sh", "-c", 'read line; if [ "$line" = hang ]; then sleep 70105 & sleep 70105; fi; echo done']
    began = time.monotonic()
    stdins = {"one": b"go\n", "two": b"hang\n", "three": b"hang\n"}
    with pytest.raises(ProviderError, match=r"Unable to look into container (one|two)") as caught:
        looking.look(shell, command, VMIDS, stdins, shared=b"", timeout_s=5)
    assert caught.value.details == "It was killed after 5 s."
    assert time.monotonic() - began < 60
    assert "70105" not in _processes()


def _processes() -> str:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it ended meanwhile
    return "\n".join(one for one in found if one.startswith("sleep"))


def test_artifact_volumes_are_told_by_the_same_command(
    shell: Shell, nearby: Nearby, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, file in (("v-1", "ready"), ("v-2", "ready"), ("v-3", "digest")):
        (tmp_path / "root" / name).mkdir(parents=True)
        (tmp_path / "root" / name / file).touch()
    monkeypatch.setattr(volumes, "ROOT", str(tmp_path / "root"))
    ready = frozenset({"v-1", "v-2"})
    assert looking.look(shell, ["true"], VMIDS, {"one": b""}, shared=b"", timeout_s=20).volumes == ready
    assert looking.look(shell, ["true"], {}, {}, shared=b"", timeout_s=20).volumes == ready
    assert asked(nearby) == 2


def test_nothing_is_left_on_the_node(shell: Shell) -> None:
    before = set(Path("/dev/shm").glob("provision.*"))  # noqa: S108 - only looked at
    looking.look(shell, ["cat"], VMIDS, dict.fromkeys(VMIDS, b"x"), shared=b"", timeout_s=20)
    assert set(Path("/dev/shm").glob("provision.*")) <= before  # noqa: S108


def test_a_machine_that_is_no_node_is_told_from_one(shell: Shell, nearby: Nearby) -> None:
    (nearby.folder / "pct").unlink()
    with pytest.raises(ProviderError, match="Unable to look into containers on root@pve:2222") as caught:
        looking.look(shell, ["true"], VMIDS, {"one": b""}, shared=b"", timeout_s=20)
    assert caught.value.details == "There is no pct there."
    assert "Proxmox VE node" in caught.value.resolution


def test_without_ssh_nothing_can_be_looked_into(nearby: Nearby) -> None:
    assert nearby
    assert looking.look(None, ["true"], {}, {}, shared=b"", timeout_s=20).volumes == frozenset()
    with pytest.raises(PreflightError, match="needs ssh"):
        looking.look(None, ["true"], VMIDS, {"one": b""}, shared=b"", timeout_s=20)
