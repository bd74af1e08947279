"""``cluster forget`` and ``runbook run`` on a cluster in memory: what is told, done in which order, and kept."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from provisioner.cli.console import Console
from provisioner.cli.session import Session
from provisioner.cluster import backup, forget, quorum
from provisioner.cluster import gather as gathering
from provisioner.cluster.facts import Guest, NodeFacts
from provisioner.cluster.gather import Reach
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.reconcile.runner import PlaybookResult, TaskEvent
from provisioner.values.errors import ExitCode, UnavailableError
from provisioner.values.events import Event
from provisioner.values.state import Execution
from tests.cluster_facts import cluster
from tests.unit.cli.conftest import provision

CONF = "totem {\nconfig_version: 7\n}\nnodelist {\nnode {\nname: pve3\nnodeid: 3\nring0_addr: 10.0.0.3\n}\n}\n"
CONFIG = b"hostname: ct103\nrootfs: local-lvm:vm-103-disk-0\n"


class _Loader(yaml.SafeLoader):
    """A safe one that knows Ansible's tag for what is no template."""


def _plain(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


_Loader.add_constructor("!unsafe", _plain)


@dataclass
class Cluster:
    """Three nodes, pve3 off, with one guest; a playbook changes it as the real one would."""

    monkeypatch: pytest.MonkeyPatch
    snapshot: SnapshotAssertion
    played: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    leftovers: str = "key\troot@pve3\tSHA256:x\nline\tjobs.cfg\tvzdump: nightly\tnode pve3\n"
    alive: tuple[str, ...] = ()
    fails: str = ""
    there: dict[str, NodeFacts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start with all of it there."""
        guest = Guest(103, "pve3", "lxc", "ct103", ("local-lvm:vm-103-disk-0",))
        found = cluster(off=("pve3",)).nodes
        self.there = {
            one.address: replace(one, guests={**one.guests, "pve3": (guest,)}, vmlist={103: "pve3"}) for one in found
        }

    def look(self, reached: Reach, _emit: Callable[[Event], None] | None = None) -> NodeFacts:
        """What a node says."""
        if reached.destination.host not in self.there:
            raise UnavailableError(f"Unable to reach {reached.destination}", details="timed out")
        return self.there[reached.destination.host]

    def answer(self, _shell: Shell, _program: str, script: str, arguments: Sequence[str], _timeout_s: float) -> str:
        """What the scripts say."""
        if script == "leftovers.sh":
            return self.leftovers
        if script == "addresses.sh":
            return "10.0.0.3\n"
        return "".join(f"{one}\tssh\t{'alive' if one in self.alive else 'silent'}\tport 22\n" for one in arguments)

    def playbook(self, name: str, inventory: str, *, on_task: Callable[[TaskEvent], None], **_: Any) -> PlaybookResult:
        """Do what the playbook does, and say one task of it."""
        (lead,) = yaml.load(inventory, Loader=_Loader)["all"]["children"]["lead"]["hosts"].values()  # noqa: S506
        self.played.append((Path(name).stem, lead["repair_plan"]))
        if Path(name).stem == self.fails:
            failed = TaskEvent("failed", "pve1", "", "remove-member | Remove", message="no quorum?")
            on_task(failed)
            return PlaybookResult(2, (failed,))
        for address, one in self.there.items():
            self.there[address] = self._after(Path(name).stem, one)
        return PlaybookResult(0)

    def _after(self, runbook: str, node: NodeFacts) -> NodeFacts:
        if runbook == "retired-node":
            assert node.pve_conf is not None
            assert node.pmxcfs is not None
            conf = replace(node.pve_conf, version=8, members=node.pve_conf.members[:2])
            peers = tuple(one for one in node.pmxcfs.peers if one.name != "pve3")
            pmxcfs = replace(node.pmxcfs, peers=peers)
            return replace(node, pve_conf=conf, local_conf=conf, running_version=8, running=conf.members, pmxcfs=pmxcfs)
        if runbook == "ghost-node":
            return replace(node, guests={name: () for name in node.guests if name != "pve3"}, vmlist={})
        if runbook == "removed-node-leftovers":
            self.leftovers = re.sub("^key.*\n", "", self.leftovers)
        return node

    def command(self, *words: str) -> tuple[int, str, str]:
        """Run ``provision``; its exit code and both outputs."""
        answer = provision(self.monkeypatch, *words, session=Session(Console(), None, self.playbook))
        return answer.code, answer.out, answer.err

    def result(self, *words: str) -> dict[str, Any]:
        """The ``result`` line of a command that succeeds."""
        code, out, err = self.command(*words, "--json")
        assert code == 0, out + err
        (found,) = [line for line in map(json.loads, out.splitlines()) if line["type"] == "result"]
        return dict(found)


def _saved(_shell: Shell, made: Any) -> Path:
    made.backup.mkdir(mode=0o700)
    (made.backup / "corosync.conf").write_text(CONF)
    return Path(made.backup)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: SnapshotAssertion) -> Cluster:
    """The cluster, reached without ssh."""
    made = Cluster(monkeypatch, snapshot)
    monkeypatch.setattr(gathering, "read_lists", made.look)
    monkeypatch.setattr(gathering, "observe_node", made.look)
    monkeypatch.setattr(gathering, "script_answer", made.answer)
    monkeypatch.setattr(forget, "script_answer", made.answer)
    monkeypatch.setattr(backup, "save", _saved)
    monkeypatch.setattr(Shell, "open", lambda _self: None)
    monkeypatch.setattr(Shell, "run", lambda *_a, **_k: Execution(0, CONFIG, b""))
    monkeypatch.setattr(forget, "cluster_lock", lambda *_, **_words: nullcontext())
    monkeypatch.setattr(quorum, "node_lock", lambda *_: nullcontext())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return made


FORGET = ("cluster", "forget", "pve3", "root@10.0.0.1", "--off-for-good", "pve3", "--archive-guests")


def test_without_yes_everything_is_told_and_nothing_is_done(world: Cluster, tmp_path: Path) -> None:
    code, out, _ = world.command(*FORGET)
    assert code == 0
    assert out == world.snapshot
    assert world.played == []
    assert not (tmp_path / "state").exists()


def test_the_runbooks_run_one_after_the_other_with_what_was_decided(world: Cluster) -> None:
    result = world.result(*FORGET, "--yes")
    assert [name for name, _ in world.played] == ["retired-node", "ghost-node", "removed-node-leftovers"]
    plans = dict(world.played)
    assert plans["retired-node"] == {"node": "pve3", "nodeid": 3, "off_for_good": "pve3"}
    assert [(one["kind"], one["vmid"]) for one in plans["ghost-node"]["archived"]] == [("lxc", 103)]
    assert plans["ghost-node"]["moves"] == []
    assert plans["removed-node-leftovers"] == {"node": "pve3", "addresses": ["10.0.0.3"], "storages": []}
    ghost = Path(result["records"][1])
    archived = ghost / "guests/lxc/103.conf"
    assert archived.read_bytes() == CONFIG
    assert stat.S_IMODE(archived.stat().st_mode) == 0o600
    record = json.loads((ghost / "record.json").read_text())
    assert record["backup"] == str(Path(result["records"][0]) / "backup")
    assert (ghost / "report.html").read_text().startswith("<!doctype html>")
    assert [one["command"] for one in result["references"]] == ["pvesh set /cluster/backup/nightly --delete node"]


def test_a_second_run_has_nothing_to_do(world: Cluster) -> None:
    world.result(*FORGET, "--yes")
    world.played.clear()
    again = world.result("cluster", "forget", "pve3", "root@10.0.0.1", "--yes")
    assert (again["kind"], again["runbooks"], again["is_done"]) == ("removed", [], True)
    assert world.played == []


def test_what_failed_is_told_and_the_next_run_goes_on(world: Cluster) -> None:
    world.fails = "ghost-node"
    code, _, err = world.command(*FORGET, "--yes")
    assert code == ExitCode.FAILED
    assert err == world.snapshot
    world.fails = ""
    world.played.clear()
    world.result("cluster", "forget", "pve3", "root@10.0.0.1", "--archive-guests", "--yes")
    assert [name for name, _ in world.played] == ["ghost-node", "removed-node-leftovers"]


def test_a_sign_of_life_refuses_whatever_was_said(world: Cluster) -> None:
    world.alive = ("10.0.0.3",)
    code, _, err = world.command(*FORGET, "--yes")
    assert code == ExitCode.REFUSED
    assert err == world.snapshot
    assert world.played == []


def test_what_is_left_in_the_end_is_no_success(world: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "_after", lambda _self, _runbook, node: node)
    code, _, err = world.command(*FORGET, "--yes")
    assert code == ExitCode.VERIFICATION_FAILED
    assert err == world.snapshot


def test_lost_quorum_is_told_refused_and_done(world: Cluster) -> None:
    alone = cluster(off=("pve2", "pve3")).nodes[0]
    world.there = {alone.address: alone}
    words = ("runbook", "run", "lost-quorum", "--host", "root@10.0.0.1", "--off", "pve2")
    code, out, err = world.command(*words, "--yes")
    assert code == ExitCode.REFUSED
    assert out + err == world.snapshot
    code, out, _ = world.command(*words, "--off", "pve3")
    assert (code, world.played) == (0, [])
    assert out == world.snapshot
    code, _, err = world.command(*words, "--off", "pve3", "--yes")
    assert world.played == [("lost-quorum", {"node": "pve1", "votes": 1, "off_ids": [2, 3]})]
    assert code == ExitCode.VERIFICATION_FAILED  # nobody became quorate here
    assert err == world.snapshot


@pytest.mark.parametrize(
    ("node", "ends"), [("pve3", ExitCode.VERIFICATION_FAILED), ("pve2", ExitCode.DONE), ("pve8", ExitCode.USAGE)]
)
def test_power_on_check_is_the_check_of_one_node(world: Cluster, node: str, ends: ExitCode) -> None:
    code, out, err = world.command("runbook", "run", "power-on-check", "--host", "root@10.0.0.1", "--node", node)
    assert code == ends
    assert out + err == world.snapshot
