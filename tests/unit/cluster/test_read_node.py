"""What a node wrote → facts: whole answers, cut ones, and what cannot be read; never a healthy word too much."""

from __future__ import annotations

import json
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from provisioner.cluster.diagnosis import diagnose, is_healthy
from provisioner.cluster.facts import ClusterFacts, Condition, HaState, Link, NodeFacts
from provisioner.cluster.read_corosync import UnreadableError, answers
from provisioner.cluster.read_node import (
    read_guests,
    read_ha,
    read_known_hosts,
    read_node,
    read_references,
    read_storages,
)
from provisioner.cluster.references import read_guest_references, title_of, vmid_of, vmids_of
from provisioner.values import paths
from tests.case_files import read_cases
from tests.corosync_captures import KINDS, NODES, look_answer, look_text

CASES = read_cases("cluster/read_node")

TIMEOUT_S = 60
NEEDED = CASES["needed"]
"""Sections without which nobody may call a node healthy."""


def sections(node: str = "n3", kind: str = "healthy") -> dict[str, tuple[int, str]]:
    return {name: (one.code, one.text) for name, one in answers(look_answer(kind, node)).items() if name != "end"}


@cache
def good() -> tuple[NodeFacts, ...]:
    return tuple(read_node(look_answer("healthy", name), f"10.77.0.1{name[1]}") for name in NODES[:2])


def verdict(changed: Mapping[str, tuple[int, str]]) -> bool:
    """Whether a healthy cluster still reads so when n3 answers this; a clear refusal is no."""
    try:
        stale = read_node(look_text(changed), "10.77.0.13")
    except UnreadableError:
        return False
    return is_healthy(diagnose(ClusterFacts("n1", (*good(), stale))))


def test_all_sections_of_the_script_are_read() -> None:
    script = (paths.data() / "cluster" / "look.sh").read_text(encoding="utf-8")
    assert set(re.findall(r"^(?:section|pve) ([a-z-]+) ", script, re.MULTILINE)) == set(sections())


def _look_sh(folder: Path, programs: Mapping[str, str], *words: str) -> NodeFacts:
    """What the script says on this machine, with these programs first on its PATH."""
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
        (folder / name).chmod(0o755)
    call = ["/bin/sh", str(paths.data() / "cluster" / "look.sh"), *words]
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    return read_node(done.stdout, "10.77.0.13")


def test_the_programs_of_a_node_are_asked_at_the_same_time(tmp_path: Path) -> None:
    """Each answers only when all of them have begun."""
    slow = {"pveversion": "9.2", "ha-manager": "", "journalctl": ""}
    others = " && ".join(f'[ -e "{tmp_path}/{name}.begun" ]' for name in slow)
    together = f'touch "$0.begun"; for _ in $(seq 50); do {others} && exec echo "$said"; sleep 0.1; done; exit 9'
    programs = {name: f'said="{said}"; {together}' for name, said in slow.items()}
    keeps = 'mkdir "$0.folder"; echo "$0.folder"'
    found = _look_sh(tmp_path, {**programs, "pvecm": "", "mktemp": keeps})
    assert found.version == "9.2"
    assert "ha" not in found.unread
    assert not (tmp_path / "mktemp.folder").exists(), "nothing is left"


def test_the_lists_are_told_without_a_program_of_proxmox(tmp_path: Path) -> None:
    """A node is asked for them first, and then it and all others at the same time."""
    mocked = dict.fromkeys(("pveversion", "ha-manager", "journalctl", "pvecm"), f"echo called >{tmp_path}/called")
    found = _look_sh(tmp_path, mocked, "lists")
    assert (found.is_proxmox, found.name) == (True, platform.node().partition(".")[0])
    assert not (tmp_path / "called").exists()


def test_once_pmxcfs_hangs_nothing_more_of_it_is_tried(tmp_path: Path) -> None:
    script = """\
case $6 in
  *" /etc/pve/.members"*) exit 124 ;;
  *" /etc/pve/"*) echo "$6" >>"$0.tried" ;;
esac
shift 3
exec "$@"
"""
    found = _look_sh(tmp_path, {"timeout": script, "pvecm": ""})
    assert {"members", "pve-conf", "vmlist", "storage", "ha"} <= set(found.unread)
    assert set(found.unread.values()) >= {"it did not answer in time"}
    assert not (tmp_path / "timeout.tried").exists()


def test_healthy_capture_is_read_whole() -> None:
    found = read_node(look_answer("healthy", "n3"), "10.77.0.13", 0.25)
    assert (found.name, found.address, found.clock_offset_s) == ("n3", "10.77.0.13", 0.25)
    assert found.addresses == ("127.0.0.1", "10.77.0.13")
    assert [(one.name, one.nodeid, one.votes, one.addresses) for one in found.running] == [
        (f"n{number}", number, 1, (f"10.77.0.1{number}",)) for number in (1, 2, 3)
    ]
    assert found.quorum
    assert (found.quorum.is_quorate, found.quorum.present) == (True, {1: 1, 2: 1, 3: 1})
    assert found.links == (Link(1, 0, is_connected=True), Link(2, 0, is_connected=True))
    assert found.joined == {1: 1, 2: 1, 3: 1}
    assert found.signatures.unreachable == frozenset()
    assert found.is_writable
    assert found.unread == {}


@pytest.mark.parametrize("program", ["sqlite3", "python3"])
@pytest.mark.parametrize("is_open", [True, False])
def test_the_version_of_config_db_is_read_and_nothing_is_left_beside_it(
    tmp_path: Path, program: str, *, is_open: bool
) -> None:
    """While pmxcfs runs its newest writes are in the log beside the file; and a node may lack the command."""
    file, programs = tmp_path / "config.db", tmp_path / "bin"
    programs.mkdir()
    found = Path(sys.executable).resolve() if program == "python3" else shutil.which(program)
    (programs / program).symlink_to(found or pytest.skip(f"there is no {program}"))
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE tree (inode INTEGER, version INTEGER, mtime INTEGER)")
    connection.execute("INSERT INTO tree VALUES (0, 4711, 1763700000), (9, 4700, 1763600000)")
    connection.commit()
    if not is_open:
        connection.close()
    before = sorted(tmp_path.iterdir())
    script = (paths.data() / "cluster" / "look.sh").read_text(encoding="utf-8")
    section = script.partition("section database 15 '")[2].partition("'\n")[0]
    shell = ["/bin/sh", "-c", section.replace("/var/lib/pve-cluster/config.db", str(file))]
    said = subprocess.run(
        shell, env={"PATH": str(programs)}, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout
    assert (said, sorted(tmp_path.iterdir())) == ("4711|1763700000\n", before)
    connection.close()
    assert read_node(look_text({**sections(), "database": (0, said)}), "").database == (4711, 1763700000)


def test_removed_node_is_remembered_with_its_version_and_address() -> None:
    found = read_node(look_answer("removed", "n1"), "10.77.0.11")
    assert (found.departed, found.heard[3]) == ({3: 5}, "10.77.0.13")


@pytest.mark.parametrize(
    ("kind", "node", "rejected", "undecryptable"),
    [
        ("moved", "n3", {"10.77.0.61", "10.77.0.62"}, set()),
        ("readdr", "n1", {"10.77.0.13"}, set()),
        ("idreuse", "n1", {"10.77.0.13"}, set()),
        ("key", "n1", set(), {"10.77.0.13"}),
        ("key", "n3", set(), {"10.77.0.11", "10.77.0.12"}),
        ("version", "n3", set(), set()),
        ("removed", "n3", set(), set()),
    ],
)
def test_log_tells_whose_packets_are_turned_away(
    kind: str, node: str, rejected: set[str], undecryptable: set[str]
) -> None:
    log = read_node(look_answer(kind, node), "").signatures
    assert (set(log.rejected), set(log.undecryptable)) == (rejected, undecryptable)


def test_log_tells_that_corosync_ended_because_it_was_behind() -> None:
    found = read_node(look_answer("version", "n3"), "")
    assert found.signatures.outdated == (2, 1)
    assert found.quorum is None
    assert found.running_version is None
    assert found.unread == {}


def test_only_the_log_since_the_last_start_counts() -> None:
    whole = sections(kind="moved")
    code, log = whole["journal"]
    again = look_text({**whole, "journal": (code, f"{log}\nCorosync Cluster Engine 3.1.9 starting up")})
    assert read_node(again, "").signatures.rejected == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("node", ["n1", "n3"])
def test_answer_that_is_cut_off_is_no_answer(kind: str, node: str) -> None:
    text = look_answer(kind, node)
    for length in range(0, len(text) - 1, 41):
        with pytest.raises(UnreadableError):
            read_node(text[:length], "10.77.0.13")


@pytest.mark.parametrize("name", NEEDED)
def test_section_that_is_missing_is_never_healthy(name: str) -> None:
    whole = sections()
    assert verdict(whole)
    assert not verdict({key: value for key, value in whole.items() if key != name})


@pytest.mark.parametrize(
    ("code", "name"),
    [*((124, name) for name in sorted(sections())), *((code, name) for code in (1, 127, 137) for name in NEEDED)],
)
def test_section_that_failed_or_took_too_long_is_never_healthy(code: int, name: str) -> None:
    assert not verdict({**sections(), name: (code, "")})


@pytest.mark.parametrize("name", ["members", "pve-conf", "local-conf", "quorum", "cmap"])
def test_section_that_is_cut_is_never_healthy(name: str) -> None:
    whole = sections()
    code, text = whole[name]
    for length in range(len(text)):
        if text[:length].strip() != text.strip() and "3          1 n" not in text[:length]:
            assert not verdict({**whole, name: (code, text[:length])}), text[:length]


@pytest.mark.parametrize("name", sorted(sections()))
@pytest.mark.parametrize(
    "noise", ["\x00\xff", "@ end 0", "{", "}", "key: value", "[]", "null", "= /etc/pve/nodes/x", "1" * 9999]
)
def test_noise_raises_nothing_but_a_clear_error(name: str, noise: str) -> None:
    for text in (noise, f"{sections()[name][1]}\n{noise}"):
        try:
            read_node(look_text({**sections(), name: (0, text)}), "10.77.0.13")
        except UnreadableError as error:
            assert error.message.startswith("Unable to")  # noqa: PT017 - either is right


def test_host_without_pvecm_is_no_proxmox() -> None:
    assert not read_node(look_text({**sections(), "proxmox": (127, "")}), "10.0.0.9").is_proxmox


def test_hanging_pmxcfs_is_told() -> None:
    parts = ("members", "pve-conf", "vmlist", "guests", "folders", "ha")
    hung = {**sections(), **dict.fromkeys(parts, (124, ""))}
    found = read_node(look_text(hung), "")
    assert found.unread["members"] == "it did not answer in time"
    assert (found.pmxcfs, found.pve_conf, found.guests) == (None, None, {})


def test_unclustered_node_lacks_files_and_nothing_is_unread() -> None:
    gone = (2, "sed: can't read /etc/corosync/corosync.conf: No such file or directory")
    lone: dict[str, tuple[int, str]] = {
        **sections(),
        "units": (
            0,
            "Id=corosync.service\nLoadState=loaded\nActiveState=inactive\n\nId=pve-cluster.service\nActiveState=active",
        ),
        "members": (0, json.dumps({"nodename": "n3", "version": 1})),
        "pve-conf": gone,
        "local-conf": gone,
        "digests": (1, "sha256sum: /etc/corosync/authkey: No such file or directory"),
        "quorum": (1, "Cannot initialize CMAP service"),
        "cmap": (1, "Failed to initialize the cmap API. Error CS_ERR_LIBRARY"),
        "mode": (0, "755"),
    }
    found = read_node(look_text(lone), "10.0.0.3")
    assert found.unread == {}
    assert (found.local_conf, found.pmxcfs and found.pmxcfs.peers) == (None, ())
    assert found.is_writable


@pytest.mark.parametrize(
    ("content", "is_told"),
    [
        (None, False),
        ("ssh-ed25519 AAAA someone\n", False),
        ("# BEGIN of a repair by provision\nssh-ed25519 AAAA root\n# END of a repair by provision\n", True),
    ],
)
def test_keys_that_a_rejoin_left_are_told_with_the_command_that_removes_them(
    tmp_path: Path, content: str | None, *, is_told: bool
) -> None:
    file = tmp_path / "authorized_keys2"
    if content is not None:
        file.write_text(f"ssh-rsa BBBB another\n{content}", encoding="ascii")
    script = (paths.data() / "cluster" / "look.sh").read_text(encoding="utf-8")
    section = script.partition("section way-in 5 '")[2].partition("'\n")[0]

    def said() -> NodeFacts:
        shell = ["/bin/sh", "-c", section.replace("/root/.ssh/authorized_keys2", str(file))]
        done = subprocess.run(shell, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
        return read_node(look_text({**sections(), "way-in": (0, done.stdout)}), "10.77.0.13")

    found = diagnose(ClusterFacts("n1", (*good(), said())))
    assert is_healthy(found) is not is_told
    if is_told:
        assert (found[0].condition, found[0].node) == (Condition.LEFTOVERS, "n3")
        command = found[0].advice.partition("(root@10.77.0.13): ")[2]
        subprocess.run(
            ["sh", "-c", command.replace("/root/.ssh/authorized_keys2", str(file))], check=True, timeout=TIMEOUT_S
        )
        assert file.read_text(encoding="ascii") == "ssh-rsa BBBB another\n"
        assert is_healthy(diagnose(ClusterFacts("n1", (*good(), said()))))


FILES_THAT_NAME_GUESTS = {
    "ha/resources.cfg": "ct: 444\n\tstate started\n\nvm: 100\n\tcomment secret: words\n",
    "jobs.cfg": "vzdump: nightly\n\tschedule 02:00\n\tvmid 101,444\n",
    "user.cfg": "user:root@pam:1:0:::canary@example.com::\npool:web:words:101,444:local:\npool:none:::local:\n",
}


@pytest.mark.parametrize("entry", ["", "ct:", "9" * 5000, "ct:²", "ct:-1", "vm:1.5"])
def test_a_number_of_a_guest_that_is_none_is_none(entry: str) -> None:
    assert vmid_of(entry) == 0


def test_only_what_names_guests_leaves_a_node(tmp_path: Path) -> None:
    for name, text in FILES_THAT_NAME_GUESTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    script = (paths.data() / "cluster" / "look.sh").read_text(encoding="utf-8")
    section = script.partition("pve guest-references 10 '")[2].partition("'\n")[0]
    shell = ["/bin/sh", "-c", section.replace("/etc/pve", str(tmp_path))]
    said = subprocess.run(shell, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
    assert "canary" not in said
    assert "secret" not in said
    found = read_guest_references(said.splitlines())
    assert [(title_of(one), sorted(vmids_of(one))) for one in found] == [
        ("HA resource ct:444", [444]),
        ("HA resource vm:100", [100]),
        ("backup job nightly", [101, 444]),
        ("pool web", [101, 444]),
        ("pool none", []),
    ]


def test_mode_without_w_is_read_only() -> None:
    assert not read_node(look_text({**sections(), "mode": (0, "555")}), "").is_writable


GUESTS = f"""\
= /etc/pve/nodes/pve1/lxc/101.conf {"a" * 64}
hostname: web
rootfs: local-lvm:vm-101-disk-0,size=8G
mp0: /srv/models,mp=/models
mp1: nas:subvol-101-disk-1,mp=/data,backup=0
= /etc/pve/nodes/pve2/qemu-server/102.conf {"b" * 64}
name: win
ide2: local:iso/virtio.iso,media=cdrom,size=500M
scsi0: rbd:vm-102-disk-0,size=32G
unused0: rbd:vm-102-disk-9
ide3: none,media=cdrom"""


def test_guests_are_read_with_their_volumes() -> None:
    found = read_guests(["pve1", "pve2", "old"], GUESTS.splitlines())
    assert found["old"] == ()
    (web,), (win,) = found["pve1"], found["pve2"]
    assert (web.vmid, web.kind, web.name, web.digest) == (101, "lxc", "web", "a" * 64)
    assert web.volumes == ("local-lvm:vm-101-disk-0", "nas:subvol-101-disk-1")
    assert (win.kind, win.volumes) == ("qemu", ("rbd:vm-102-disk-0", "rbd:vm-102-disk-9"))


def test_storages_and_what_names_a_node() -> None:
    storages = read_storages(
        ["dir: local", "lvmthin: fast", "\tnodes pve1,old", "nfs: nas", "dir: share", "\tshared 1"]
    )
    assert [(one.name, one.kind, one.is_shared, one.nodes) for one in storages] == [
        ("local", "dir", False, ()),
        ("fast", "lvmthin", False, ("pve1", "old")),
        ("nas", "nfs", True, ()),
        ("share", "dir", True, ()),
    ]
    references = read_references(
        storages,
        ["group: web", "\tnodes pve1:2,old", "node-affinity: keep", "\tnodes old"],
        ["local: 101-0", "\ttarget old", "\tsource pve1"],
    )
    assert references["old"] == ("storage fast", "HA group web", "HA node-affinity keep", "replication job 101-0")
    assert "storage fast" in references["pve1"]


def test_known_hosts_are_names_and_addresses() -> None:
    assert read_known_hosts(["pve1,10.0.0.1", "pve2", "pve1"]) == ("pve1", "10.0.0.1", "pve2")


@pytest.mark.parametrize(("lines", "is_idle"), CASES["ha is idle only in settled states"])
def test_ha_is_idle_only_in_settled_states(lines: list[str], is_idle: bool) -> None:
    assert read_ha(lines).is_idle is is_idle


def test_an_error_of_ha_is_not_waited_for() -> None:
    assert "ha-manager set ct:101 --state disabled" in read_ha(["service ct:101 (pve1, error)"]).advice
    assert read_ha(["service ct:101 (pve1, migrate)"]).advice.startswith("Wait until")


def test_ha_services_are_told_by_node() -> None:
    found = read_ha(["quorum OK", "service ct:101 (pve1, started)", "service vm:7 (pve1, started)"])
    assert isinstance(found, HaState)
    assert found.services == {"pve1": ("ct:101", "vm:7")}


def test_facts_of_two_captures_differ_only_where_the_nodes_do() -> None:
    one, other = (read_node(look_answer("healthy", name), "") for name in ("n1", "n2"))
    assert isinstance(one, NodeFacts)
    own: dict[str, Any] = {
        "name": "",
        "addresses": (),
        "networks": (),
        "links": (),
        "pmxcfs": None,
        "signatures": one.signatures,
        "nodeid": None,
    }
    assert replace(one, **own) == replace(other, **own)


@pytest.mark.parametrize("word", ["..", "9" * 5000, "-1", "²", ""])
@pytest.mark.parametrize("section", ["cmap", "quorum", "links", "pve-conf", "local-conf", "journal", "database"])
def test_numbers_that_are_none_break_nothing(section: str, word: str) -> None:
    code, text = sections()[section]
    for number in set(re.findall(r"(?<![\w.])\d{1,3}(?![\w.])", text)):
        changed = re.sub(rf"(?<![\w.]){number}(?![\w.])", word, text)
        facts = read_node(look_text({**sections(), section: (code, changed)}), "10.77.0.13")
        assert facts.name == "n3"
