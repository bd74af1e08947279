"""What ``host prepare`` made is noted, and ``host remove`` takes no more; programs of the machine only log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from provisioner.cli import host
from provisioner.cli.app import run
from provisioner.hosts.incus import made_here
from provisioner.hosts.incus.made_here import Note, Thing, noted, read_note, write_note
from provisioner.hosts.incus.translate import ARTIFACT
from provisioner.values import paths
from provisioner.values.errors import PreflightError, ProviderError
from tests.processes import killed_at_end

PLACE = "/nowhere/incus"
POOL, NETWORK = Thing("pool", "default", PLACE), Thing("network", "incusbr0", PLACE)
IMAGE = Thing("image", "debian/12", PLACE, "f00d")
STATE = Thing("state", PLACE, PLACE)
SILENT = Thing("state", PLACE, PLACE, made_here.SILENT)
OURS = frozenset({POOL, NETWORK, IMAGE, STATE, Thing("package", "incus-base"), Thing("member", "penny")})
USED = ["/1.0/images/f00d", "/1.0/profiles/default", "/1.0/storage-pools/default/volumes/custom/built"]
SAID: Mapping[str, Any] = {
    "storage-pools": [{"name": "default", "used_by": USED}],
    "networks": [
        {"name": "incusbr0", "managed": True, "used_by": ["/1.0/profiles/default"]},
        {"name": "eth0", "managed": False},
    ],
    "volumes": [{"name": "built", "config": {ARTIFACT: "1"}, "used_by": []}],
    "images": ["/1.0/images/f00d"],
    "profiles": ["/1.0/profiles/default"],
    "projects": ["/1.0/projects/default"],
}


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "provisioner/host.json"


def test_a_note_is_read_as_it_was_written_and_by_root_alone(note: Path) -> None:
    assert read_note(note) == Note()
    for one in (Note(OURS), Note(OURS, frozenset({POOL}))):
        write_note(one, note)
        assert read_note(note) == one
    assert note.stat().st_mode & 0o777 == 0o600


HOSTILE = {
    "no JSON": "{",
    "a list": "[]",
    "another version": {"version": 2, "made": [], "begun": None},
    "a further key": {"version": 1, "made": [], "begun": None, "run": "rm"},
    "a further part": [{"kind": "pool", "name": "a", "place": PLACE, "command": "rm"}],
    "a kind of its own": [{"kind": "disk", "name": "sda"}],
    "a number": [{"kind": "package", "name": 7}],
    "an option": [{"kind": "package", "name": "--allow-remove-essential"}],
    "a way up": [{"kind": "folder", "name": "/var/cache/provisioner/../../home/provisioner/images"}],
    "somebody's file": [{"kind": "file", "name": "/etc/shadow"}],
    "somebody's folder": [{"kind": "folder", "name": "/home/penny/images"}],
    "a folder of no daemon": [{"kind": "state", "name": "/usr/lib", "place": "/usr/lib"}],
    "the root": [{"kind": "state", "name": "/", "place": "/"}],
    "a line elsewhere": [{"kind": "line", "name": "/etc/passwd", "value": "root:x:0:0"}],
    "a group": [{"kind": "group", "name": "sudo"}],
    "a pool of nobody": [{"kind": "pool", "name": "default"}],
    "a pool of a relative folder": [{"kind": "pool", "name": "default", "place": "incus"}],
    "a newline": [{"kind": "package", "name": "a\nb"}],
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_note_is_refused(note: Path, name: str) -> None:
    content = HOSTILE[name]
    page = {"version": 1, "made": content, "begun": None} if isinstance(content, list) else content
    note.parent.mkdir()
    note.write_text(content if isinstance(content, str) else json.dumps(page))
    note.chmod(0o600)
    with pytest.raises(PreflightError, match="Unable to believe"):
        read_note(note)


def test_a_note_that_others_can_write_is_refused(note: Path) -> None:
    write_note(Note(OURS), note)
    note.chmod(0o620)
    with pytest.raises(PreflightError, match="others can write it"):
        read_note(note)


class Machine:
    """A machine that is what a test says."""

    def __init__(self, *things: Thing) -> None:
        self.things = set(things)

    def look(self, _folders: object, _caches: object) -> frozenset[Thing]:
        """What is there."""
        return frozenset(self.things)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    one = Machine(Thing("package", "bash"), STATE)
    monkeypatch.setattr(made_here, "look", one.look)
    return one


def test_what_was_there_before_is_not_ours_and_a_killed_run_forgets_nothing(note: Path, machine: Machine) -> None:
    killed = noted(Path(PLACE), (), note)
    killed.__enter__()
    machine.things |= {POOL}
    with pytest.raises(PreflightError, match="its last run has not ended"):
        made_here.found_here(read_note(note), ())
    with noted(Path(PLACE), (), note):
        machine.things |= {NETWORK}
    assert read_note(note) == Note(frozenset({POOL, NETWORK}))
    with noted(Path(PLACE), (), note):
        machine.things |= {IMAGE}
    assert read_note(note).made == {POOL, NETWORK, IMAGE}


def test_things_of_an_incus_that_did_not_answer_before_are_not_ours(note: Path, machine: Machine) -> None:
    machine.things = {SILENT}
    with noted(Path(PLACE), (), note):
        machine.things = {STATE, POOL, Thing("package", "zstd")}
    assert read_note(note).made == {Thing("package", "zstd")}


def test_what_was_changed_since_is_left_alone(note: Path, machine: Machine) -> None:
    write_note(Note(frozenset({POOL, IMAGE})), note)
    machine.things = {POOL, Thing("image", "debian/12", PLACE, "another")}
    assert made_here.found_here(read_note(note), ()) == {POOL}
    machine.things |= {SILENT}
    with pytest.raises(PreflightError, match="it does not answer"):
        made_here.found_here(read_note(note), ())


class Incus:
    """An Incus that says what a test has it say."""

    said: Mapping[str, Any] = SAID

    def __init__(self, _endpoint: object) -> None: ...

    def get(self, *path: str, **_: str) -> Any:
        """What is there."""
        return self.said["volumes" if "volumes" in path else path[0]]


@pytest.mark.parametrize(
    ("part", "entry", "words"),
    [
        ("storage-pools", {"name": "default", "used_by": [*USED, "/1.0/instances/web?project=home"]}, "instances/web"),
        ("storage-pools", {"name": "tank", "used_by": []}, "pool/tank"),
        ("networks", {"name": "lan0", "managed": True, "used_by": []}, "network/lan0"),
        ("images", "/1.0/images/beef", "images/beef"),
        ("projects", "/1.0/projects/home", "projects/home"),
        ("volumes", {"name": "photos", "config": {}, "used_by": []}, ""),
    ],
)
def test_things_of_others_are_named_and_nothing_is_removed(
    monkeypatch: pytest.MonkeyPatch, part: str, entry: Any, words: str
) -> None:
    monkeypatch.setattr(made_here, "Client", Incus)
    built = Thing("volume", "built", PLACE, "default")
    assert made_here.require_unused(OURS) == (built,)
    monkeypatch.setattr(Incus, "said", {**SAID, part: [*SAID[part], entry]})
    if not words:  # it is no volume of ours, and who has it in a pool says so there
        assert made_here.require_unused(OURS) == (built,)
        return
    with pytest.raises(PreflightError) as caught:
        made_here.require_unused(OURS)
    assert words in caught.value.details


PROGRAM = """#!/bin/sh
echo "$(basename "$0") $*${INCUS_DIR:+ in $INCUS_DIR}" >> "$LOG"
case "$*" in *--simulate*) echo 'Purg incus-base [6.0.4-2]'; echo "$MORE" ;; esac
[ "$(basename "$0")" != "$FAILS" ] || { echo 'it is busy' >&2; exit 1; }
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the programs of the machine say how they were called; none of them does anything."""
    for name in ("incus", "apt-get", "gpasswd", "groupdel", "rm", "umount", "start-stop-daemon", "systemctl"):
        (tmp_path / name).write_text(PROGRAM)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(made_here, "SYSTEMD", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.delenv("INCUS_DIR", raising=False)
    return tmp_path / "log"


def test_things_are_removed_from_the_inside_out_and_the_note_last(log: Path, note: Path) -> None:
    write_note(Note(OURS), note)
    volume = Thing("volume", "built", PLACE, "default")
    said = list(made_here.remove(OURS, [volume], note))
    assert said[0] == f"built volume built of the Incus in {PLACE}"
    calls = [line for line in log.read_text().splitlines() if not line.startswith("start-stop-daemon")]
    assert calls == [
        f"incus storage volume delete default built in {PLACE}",
        f"incus image delete debian/12 in {PLACE}",
        f"incus network delete incusbr0 in {PLACE}",
        f"incus storage delete default in {PLACE}",
        "gpasswd --delete penny incus-admin",
        "systemctl stop incus*.socket incus*.service",
        "apt-get --yes purge incus-base",
        f"rm --recursive --force --one-file-system -- {PLACE}",
    ]
    assert not note.exists()


def test_after_a_failure_the_note_stays(log: Path, note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_note(Note(OURS), note)
    monkeypatch.setenv("FAILS", "gpasswd")
    with pytest.raises(ProviderError) as caught:
        list(made_here.remove(OURS, (), note))
    assert (caught.value.message, caught.value.details) == (
        "Unable to run gpasswd --delete penny incus-admin",
        "it is busy",
    )
    assert note.exists()
    assert "apt-get" not in log.read_text()


@pytest.mark.usefixtures("log")
def test_packages_that_others_need_are_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    made_here.require_packages_alone(OURS)
    monkeypatch.setenv("MORE", "Remv docker.io [20.10]")
    with pytest.raises(PreflightError) as caught:
        made_here.require_packages_alone(OURS)
    assert caught.value.details == "docker.io"
    made_here.require_packages_alone([POOL])


def test_packages_by_which_another_incus_runs_are_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_here, "DAEMON", str(Path(sys.executable).resolve()))
    environment = {"INCUS_DIR": "/elsewhere"}
    waits = [sys.executable, "-c", "input()"]
    with killed_at_end(subprocess.Popen(waits, stdin=subprocess.PIPE, env=environment)):
        with pytest.raises(PreflightError, match="Unable to remove the packages of Incus: the Incus in"):
            made_here.require_no_other_daemon(OURS)
        made_here.require_no_other_daemon([POOL])


def test_a_line_is_taken_out_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "subuid"
    file.write_text("root:1000000:65536\npenny:100000:65536\nroot:1:2\n")
    made_here._remove_lines([Thing("line", str(file), value="root:1000000:65536")])
    assert file.read_text() == "penny:100000:65536\nroot:1:2\n"


def test_what_the_roles_write_and_install_is_known() -> None:
    texts = [file.read_text() for role in ("incus_host", "gpu_host") for file in (paths.roles() / role).rglob("*.yml")]
    together = "\n".join(texts).replace("{{ __gpu_host_unit }}", "provision-gpu.service")
    for name in made_here.FILES[:-1]:
        assert name in together, name
    for folder in made_here.FOLDERS:
        assert folder in together + (paths.roles() / "incus_host/files/start_incus.sh").read_text(), folder
    wanted = set[str]()
    for name in ("main", "Debian-12", "Debian-13"):
        page = yaml.safe_load((paths.roles() / f"incus_host/vars/{name}.yml").read_text())
        for key in ("__incus_host_packages", "__incus_host_backports", "__incus_host_build_packages"):
            value = page.get(key) or []
            wanted |= set(
                value if isinstance(value, list) else [word for word in value.split("'") if word[:1].isalpha()]
            )
    assert wanted - {"__incus_host_backports + ["} <= made_here.PACKAGES


# The verb.


@pytest.fixture
def ours(note: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with what is ours, as root."""
    monkeypatch.setattr(host, "NOTE", note)
    monkeypatch.setattr(host, "is_root", lambda: True)
    monkeypatch.setattr(made_here, "Client", Incus)
    monkeypatch.setattr(made_here, "DAEMON", "/nowhere/incusd")
    machine.things |= OURS
    write_note(Note(OURS), note)
    return note


@pytest.mark.usefixtures("log")
def test_everything_is_listed_before_it_asks(
    ours: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert run(["host", "remove"]) == 4
    assert capsys.readouterr().out == snapshot
    assert ours.exists()
    assert run(["host", "remove", "--yes"]) == 0
    assert not ours.exists()
    capsys.readouterr()
    assert run(["host", "remove", "--yes"]) == 0
    assert "Nothing to remove" in capsys.readouterr().out


def test_without_root_nothing_is_removed(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "is_root", lambda: False)
    assert run(["host", "remove", "--yes"]) == 4
    assert ours.exists()
