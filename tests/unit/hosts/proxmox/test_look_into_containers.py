"""Many containers looked into by one command on their node: what each gave, and what keeps one from being looked at."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from provisioner.hosts.proxmox import execute, observe, volumes
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.values.errors import PreflightError, ProviderError
from tests.unit.hosts.proxmox.nearby import RUNNING, Nearby, nearby, shell

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
    found = observe.look_into_containers(shell, ECHO, VMIDS, stdins, shared=b"\xff\n", timeout_s=20)
    assert {name: one.stdout for name, one in found.executions.items()} == {
        name: b"\xff\n" + own for name, own in stdins.items()
    }
    assert {(one.returncode, one.stderr) for one in found.executions.values()} == {(7, b"to stderr\n")}
    assert asked(nearby) == 1
    assert CANARY not in nearby.asked


def test_twenty_cost_no_more_commands_than_one(shell: Shell, nearby: Nearby) -> None:
    names = [f"c{number}" for number in range(20)]
    vmids, stdins = dict.fromkeys(names, ONE), {one: one.encode() for one in names}
    found = observe.look_into_containers(shell, ["cat"], vmids, stdins, shared=b"", timeout_s=20)
    assert {name: one.stdout.decode() for name, one in found.executions.items()} == {one: one for one in names}
    assert asked(nearby) == 1
    assert nearby.entered == ["lxc-attach"] * 20


def test_one_that_hangs_says_what_its_node_does_with_it(
    shell: Shell, nearby: Nearby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "KILL_TIMEOUT_S", 0.2)
    (nearby.folder / f"{ONE}.frozen").touch()
    nearby.configures(TWO, "#lock: no option\nhostname: two\nlock: backup\n\n[before]\nlock: none\n")
    nearby.installs("pct", "#!/bin/sh\nexec sleep 70110\n")
    nearby.installs("lxc-attach", "#!/bin/sh\nexec sleep 70110\n")
    found = observe.look_into_containers(
        shell, ["true"], VMIDS, dict.fromkeys(("one", "two", "three"), b""), shared=b"", timeout_s=1
    )
    slow = "It was killed after 1 s."
    frozen = f"CT {ONE} is frozen: nothing in it runs. Resume it, on its node: lxc-unfreeze -n {ONE}"
    advice = "Wait until that has ended; a lock that nothing holds any more goes by, on its node"
    assert {name: error.details for name, error in found.failures.items()} == {
        "one": f"{slow}\n{frozen}",
        "two": f"{slow}\nCT {TWO} is locked (backup). {advice}: pct unlock {TWO}",
        "three": slow,
    }


def test_one_that_does_not_run_is_named_in_pcts_words(shell: Shell) -> None:
    vmids = {"one": ONE, "web": 999}
    found = observe.look_into_containers(shell, ["true"], vmids, dict.fromkeys(vmids, b""), shared=b"", timeout_s=20)
    assert list(found.executions) == ["one"]
    assert {name: str(error) for name, error in found.failures.items()} == {
        "web": "Unable to look into container web\ncontainer '999' not running!"
    }


def test_one_that_hangs_is_killed_and_keeps_no_other_from_answering(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "LOOK_GRACE_S", 1)
    command = ["sh", "-c", 'read line; if [ "$line" = hang ]; then sleep 70105 & sleep 70105; fi; echo done']
    began = time.monotonic()
    stdins = {"one": b"go\n", "two": b"hang\n", "three": b"hang\n"}
    found = observe.look_into_containers(shell, command, VMIDS, stdins, shared=b"", timeout_s=2)
    assert found.executions["one"].stdout == b"done\n"
    assert {name: error.details for name, error in found.failures.items()} == dict.fromkeys(
        ("two", "three"), "It was killed after 2 s."
    )
    assert time.monotonic() - began < 60
    assert "70105" not in _processes()


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_one_that_prints_for_ever_is_cut_and_keeps_no_other_from_answering(shell: Shell, stream: str) -> None:
    flood = f"exec yes 70107{stream}"
    command = ["sh", "-c", f'read line; if [ "$line" = flood ]; then {flood}; fi; echo done']
    found = observe.look_into_containers(
        shell, command, VMIDS, {"one": b"go\n", "two": b"flood\n"}, shared=b"", timeout_s=20
    )
    assert found.executions["one"].stdout == b"done\n"
    assert list(found.executions) == ["one"]
    error = found.failures["two"]
    assert error.message == "Unable to look into container two"
    assert error.details.startswith("It wrote more than 16 MiB")
    assert "yes 70107" not in _processes("yes")


def test_one_whose_shell_does_nothing_that_it_is_told_is_given_up(
    shell: Shell, nearby: Nearby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "KILL_TIMEOUT_S", 2.0)
    attach = nearby.folder / "lxc-attach"
    hang = f'[ "$2" = {TWO} ] && {{ shift 3; exec env -i "PROVISIONER_EXECUTION=$(mark "$@")" sleep 70109; }}\n'
    mark = 'mark() { for one; do case $one in PROVISIONER_EXECUTION=*) echo "${one#*=}"; esac; done; }\n'
    nearby.installs("lxc-attach", attach.read_text(encoding="ascii").replace("shift 4", f"{mark}{hang}shift 4"))
    began = time.monotonic()
    found = observe.look_into_containers(shell, ["cat"], VMIDS, {"one": b"1", "two": b"2"}, shared=b"", timeout_s=2)
    assert found.executions["one"].stdout == b"1"
    assert found.failures["two"].details == "It was killed after 2 s."
    assert time.monotonic() - began < 30
    assert "70109" not in _processes(), "its node sees its processes"


def _processes(program: str = "sleep") -> str:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it ended meanwhile
    return "\n".join(one for one in found if one.startswith(program))


def test_artifact_volumes_are_told_by_the_same_command(
    shell: Shell, nearby: Nearby, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, file in (("v-1", "ready"), ("v-2", "ready"), ("v-3", "digest")):
        (tmp_path / "root" / name).mkdir(parents=True)
        (tmp_path / "root" / name / file).touch()
    monkeypatch.setattr(volumes, "ROOT", str(tmp_path / "root"))
    ready = frozenset({"v-1", "v-2"})
    assert observe.look_into_containers(shell, ["true"], VMIDS, {"one": b""}, shared=b"", timeout_s=20).volumes == ready
    assert observe.look_into_containers(shell, ["true"], {}, {}, shared=b"", timeout_s=20).volumes == ready
    assert asked(nearby) == 2


def test_nothing_is_left_on_the_node(shell: Shell) -> None:
    before = set(Path("/dev/shm").glob("provision.*"))  # noqa: S108 - only looked at
    observe.look_into_containers(shell, ["cat"], VMIDS, dict.fromkeys(VMIDS, b"x"), shared=b"", timeout_s=20)
    assert set(Path("/dev/shm").glob("provision.*")) <= before  # noqa: S108


def test_a_machine_that_is_no_node_is_told_from_one(shell: Shell, nearby: Nearby) -> None:
    (nearby.folder / "pct").unlink()
    with pytest.raises(ProviderError, match="Unable to look into containers on root@pve:2222") as caught:
        observe.look_into_containers(shell, ["true"], VMIDS, {"one": b""}, shared=b"", timeout_s=20)
    assert caught.value.details == "There is no pct there."
    assert "Proxmox VE node" in caught.value.resolution


@pytest.mark.parametrize("says", ["", 'exec /usr/bin/stat "$@" | sed "s/^/1/"', "echo none"])
def test_an_answer_of_another_length_than_it_says_is_none(shell: Shell, nearby: Nearby, says: str) -> None:
    nearby.installs("stat", f"#!/bin/sh\n{says}\n")
    with pytest.raises(ProviderError, match="its answer is damaged"):
        observe.look_into_containers(shell, ["true"], VMIDS, {"one": b""}, shared=b"", timeout_s=20)


def test_without_ssh_nothing_can_be_looked_into(nearby: Nearby) -> None:
    assert nearby
    assert observe.look_into_containers(None, ["true"], {}, {}, shared=b"", timeout_s=20).volumes == frozenset()
    with pytest.raises(PreflightError, match="needs ssh"):
        observe.look_into_containers(None, ["true"], VMIDS, {"one": b""}, shared=b"", timeout_s=20)
