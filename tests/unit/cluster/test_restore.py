"""A backup is brought back only to the node that was saved, and only while its cluster can spare it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.cluster import backup as saving
from provisioner.cluster import restore
from provisioner.cluster.facts import ClusterFacts, CorosyncConf, HaState, NodeFacts
from provisioner.cluster.gather import Reach
from provisioner.cluster.record import Record, create_run
from provisioner.cluster.restore import require_same, require_spare
from provisioner.cluster.run import Effects
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.reconcile.runner import PlaybookResult
from provisioner.values.errors import PreflightError
from provisioner.values.state import Execution
from tests.cluster_facts import cluster, members, node
from tests.unit.cluster.test_backup import backup

RECORD = Record("stale-corosync-rejoin", "homelab", "pve3", "pve1", "2026-11-21T08:00:00+00:00")
PVE3 = cluster().nodes[2]
BARE = replace(PVE3, local_conf=None, pve_conf=None, pmxcfs=None, quorum=None)
OFFICE = CorosyncConf("office", 3, members(3))


@pytest.mark.parametrize(
    ("found", "has_backup", "is_right"),
    [
        (PVE3, False, True),
        (replace(PVE3, local_conf=None), False, True),
        (replace(PVE3, pve_conf=None, pmxcfs=None), False, True),
        (BARE, True, True),
        (BARE, False, False),
        (replace(PVE3, local_conf=OFFICE, pve_conf=OFFICE), True, False),
        (replace(BARE, local_conf=OFFICE), True, False),
        (replace(PVE3, local_conf=OFFICE), True, False),
    ],
)
def test_only_the_node_that_was_saved_gets_it_back(found: NodeFacts, *, has_backup: bool, is_right: bool) -> None:
    if is_right:
        require_same(found, RECORD, has_backup=has_backup)
        return
    with pytest.raises(PreflightError, match="it is not the node that was saved") as caught:
        require_same(found, RECORD, has_backup=has_backup)
    assert "of the cluster homelab" in caught.value.details


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ha": None, "unread": {"ha": "it did not answer in time"}}, "what HA does is not known"),
        ({"ha": HaState(is_idle=False, lines=("service vm:100 (pve2, fence)",))}, "HA is at work"),
        ({"ha": HaState(services={"pve3": ("vm:100",)})}, "HA would fence it, because it runs vm:100"),
    ],
)
def test_a_node_that_ha_would_fence_is_not_stopped(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PreflightError, match=words):
        require_spare(replace(PVE3, **changes))
    require_spare(replace(node("pve3", members(3), ["pve3"]), **changes))


def test_a_node_without_whose_votes_the_others_have_no_quorum_is_not_stopped() -> None:
    require_spare(replace(PVE3, ha=HaState(services={"pve1": ("vm:100",)})))
    with pytest.raises(PreflightError, match="would lose quorum"):
        require_spare(node("pve3", members(3), ["pve1", "pve3"]))


@dataclass
class World:
    """What a look finds, first and later; the turn that is held, and what was put back while it was."""

    looks: list[ClusterFacts]
    is_held: bool = False
    put: list[bool] = field(default_factory=list)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """Two looks at a cluster whose pve3 is well."""
    there = World([cluster(), cluster()])

    @contextmanager
    def turn(*_: object, **__: object) -> Iterator[None]:
        there.is_held = True
        yield
        there.is_held = False

    def put_back(*_: object) -> str:
        there.put.append(there.is_held)
        return "pve-cluster is active"

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(restore, "gather", lambda *_: there.looks.pop(0))
    monkeypatch.setattr(restore, "cluster_lock", turn)
    monkeypatch.setattr(saving, "save", lambda _shell, run: run.backup)
    monkeypatch.setattr(restore, "put_back", put_back)
    return there


def restored() -> str:
    effects = Effects(lambda *_, **__: PlaybookResult(0, ()), lambda _event: None)
    seen = restore.observe(Reach("x", "root@10.0.0.1"), create_run(RECORD), effects.emit)
    restore.require_preconditions(seen)
    return restore.restore_node(seen, effects)


def test_it_is_put_back_while_nobody_else_repairs_the_cluster(world: World) -> None:
    assert "pve-cluster is active" in restored()
    assert world.put == [True]


def test_what_changed_until_the_turn_was_held_is_seen(world: World) -> None:
    """Another repair had the turn: since then HA has moved a service to the node."""
    busy = replace(PVE3, ha=HaState(services={"pve3": ("vm:100",)}))
    world.looks[1] = replace(world.looks[1], nodes=(*world.looks[1].nodes[:2], busy))
    with pytest.raises(PreflightError, match="HA would fence it"):
        restored()
    assert world.put == []


def test_a_node_without_a_list_proves_itself_by_its_copy_of_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run = create_run(RECORD)
    run.backup.mkdir()
    backup(run.backup, {"etc-pve.tar": b"tar"})
    sums = (run.backup / "SHA256SUMS").read_bytes()
    shell = Shell(Access(url="", user="", ssh="root@10.0.0.3"))
    for code, said, expected in ((0, sums, True), (0, b"x", False), (1, b"", False)):
        monkeypatch.setattr(Shell, "run", _answering(Execution(code, said, b"")))
        assert saving.has_copy(shell, run) is expected


def _answering(done: Execution) -> Callable[..., Execution]:
    def run(_shell: Shell, _argv: object, **_: object) -> Execution:
        return done

    return run


SYSTEMCTL = """\
#!/bin/sh
# /etc/pve is empty while pve-cluster is stopped, and root's keys with it
case "$*" in
"stop pve-cluster") rm -f "$PVE/keys"; cat "$ROOT/authorized_keys2" >"$ROOT/meanwhile" ;;
"start pve-cluster") echo key-of-root >"$PVE/keys" ;;
is-active*) echo active ;;
esac
"""


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="there is no sha256sum")
@pytest.mark.parametrize("others", ["", "key-of-another\n"])
def test_root_can_log_in_by_key_while_etc_pve_is_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, others: str
) -> None:
    root, pve, programs = (tmp_path / name for name in ("ssh", "pve", "bin"))
    for one in (root, pve, programs, tmp_path / "saved"):
        one.mkdir()
    for name, text in (("systemctl", SYSTEMCTL), ("install", "#!/bin/sh\n")):
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    (pve / "keys").write_text("key-of-root", encoding="utf-8")
    (root / "authorized_keys").symlink_to(pve / "keys")
    if others:
        (root / "authorized_keys2").write_text(others, encoding="utf-8")
    saved = backup(tmp_path / "saved", {"etc-pve.tar": b"tar", "corosync.conf": b"conf"})

    def run(_shell: Shell, argv: list[str], *, stdin: bytes, **_: object) -> Execution:
        script = argv[2].replace("/root/.ssh", str(root))
        path = f"{programs}:{os.environ['PATH']}"
        call = ["sh", "-c", script, "sh", str(tmp_path / "work")]
        environment = {**os.environ, "PATH": path, "PVE": str(pve), "ROOT": str(root)}
        done = subprocess.run(call, input=stdin, env=environment, capture_output=True, check=False, timeout=60)
        return Execution(done.returncode, done.stdout, done.stderr)

    monkeypatch.setattr(Shell, "run", run)
    said = restore.put_back(Shell(Access(url="", user="", ssh="root@10.0.0.3")), saved, "run")
    assert "pve-cluster is active" in said
    meanwhile = (root / "meanwhile").read_text(encoding="utf-8").splitlines()
    assert [one for one in meanwhile if not one.startswith("#")] == [*others.split(), "key-of-root"]
    left = sorted(one.name for one in root.iterdir() if one.name != "meanwhile")
    assert left == ["authorized_keys", *(["authorized_keys2"] if others else [])]
    if others:
        assert (root / "authorized_keys2").read_text(encoding="utf-8") == others
