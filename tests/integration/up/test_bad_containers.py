"""Containers that cannot be looked into, or cannot keep their stamp: said in words, and mended when they let us."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.inside import agent
from provisioner.reconcile import gather
from provisioner.values.errors import ProviderError
from tests.integration.up.drift_lab import DriftLab
from tests.integration.up.quickstart_lab import Ran
from tests.lab.incus import LAB, hold_to_limits
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus]

NAME, ONE, BASE = "bad", "bad-one", "bad-one/base"
FILE = f"""
name: {NAME}
containers:
  {ONE}: {{ cpu: 1, memory: 512MiB, disk: 1GiB }}
"""
STAMP = f"{agent.FOLDER}/base.json"
UNREADABLE = "its stamp cannot be read"
FILL = """
cd /root
for size in 512M 128M 32M 8M 1M 64K 4K; do
  while fallocate -l $size filled.$size.$(date +%N) 2>/dev/null; do :; done
done
n=0
while head -c 2000 /dev/zero 2>/dev/null > filled.$n; do n=$((n + 1)); done
"""
"""Until not even a small file can be written."""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriftLab]:
    """One container without services, up."""
    lab = DriftLab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    with lab.brought_up():
        assert lab.look() == {}
        yield lab


def mended(lab: DriftLab) -> Ran:
    """``up`` works, and then there is nothing to do."""
    ran = lab.up()
    assert ran.code == 0, ran.out + ran.err
    assert lab.look() == {}
    return ran


def written(stamp: dict[str, Any]) -> str:
    """The shell that puts this in the stamp's place."""
    return f"cat > {STAMP} <<'END'\n{json.dumps(agent.sealed(stamp))}\nEND"


def test_a_stamp_that_does_not_count_is_named_and_written_anew(lab: DriftLab) -> None:
    (stamp,) = lab.stamps(ONE)
    cases = {
        f": > {STAMP}": UNREADABLE,
        f"echo not JSON > {STAMP}": UNREADABLE,
        f"echo '[]' > {STAMP}": UNREADABLE,
        f"rm {STAMP}; mkdir {STAMP}": UNREADABLE,
        f"rmdir {STAMP}; mkfifo {STAMP}": UNREADABLE,
        f"rm {STAMP}": "not proved yet",
        written(stamp) + f"\nsed -i s/python3/python9/ {STAMP}": "its stamp is damaged",
        written({**stamp, "version": agent.VERSION - 1}): "its stamp was written by an older provision",
        written({**stamp, "of": "another/lab"}): "its stamp is of another/lab",
        written({**stamp, "version": agent.VERSION + 1}): "its stamp was written by a newer provision",
    }
    for script, words in cases.items():
        lab.sh(ONE, script)
        assert lab.look() == {BASE: (words,)}, script
    planned = lab.provision("plan", "--detailed-exitcode")
    assert planned.code == 2
    assert "written by a newer provision" in planned.out
    mended(lab)


def test_a_stamp_of_a_role_that_is_not_asked_for_is_told_and_left(lab: DriftLab) -> None:
    lab.sh(ONE, f"cp {STAMP} {agent.FOLDER}/other.json")
    ran = lab.up()
    assert ran.code == 0
    assert f"{ONE}/other" in lab.provision("plan").out
    lab.sh(ONE, f"rm {agent.FOLDER}/other.json")


@pytest.mark.parametrize(
    ("break_it", "mend_it", "words"),
    [
        (
            f"mount -t tmpfs -o size=4k,nr_inodes=1 full {agent.FOLDER}",
            f"umount {agent.FOLDER}",
            "No space left on device",
        ),
        (
            f"mount --bind {agent.FOLDER} {agent.FOLDER}; mount -o remount,bind,ro {agent.FOLDER}",
            f"umount {agent.FOLDER}",
            "Read-only file system",
        ),
        pytest.param(
            f"mv {agent.FOLDER} /root/kept; touch {agent.FOLDER}",
            f"rm {agent.FOLDER}",
            "File exists",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["full", "read-only", "a file in its place"],
)
def test_where_no_stamp_can_be_kept_up_works_and_warns(lab: DriftLab, break_it: str, mend_it: str, words: str) -> None:
    lab.sh(ONE, f"rm -f {STAMP}")
    lab.sh(ONE, break_it)
    try:
        ran = lab.up()
        assert ran.code == 0, ran.out + ran.err
        assert f"Unable to note in container {ONE} that it works" in ran.err
        assert words in ran.err
        assert lab.provision("plan", "--detailed-exitcode").code == 2
    finally:
        lab.sh(ONE, mend_it)
    mended(lab)


def test_a_full_disk_fails_and_names_the_container_until_there_is_room(lab: DriftLab) -> None:
    hold_to_limits(LAB)
    lab.sh(ONE, f"rm -f {STAMP}")
    lab.sh(ONE, FILL)
    try:
        ran = lab.up()
        assert ran.code == 1, ran.out + ran.err
        assert f"Unable to configure {ONE}" in ran.err
        assert "Disk quota exceeded" in ran.err, ran.err
        assert lab.look() == {BASE: ("not proved yet",)}
    finally:
        lab.sh(ONE, "rm -f /root/filled.*")
    mended(lab)


@pytest.mark.network
def test_a_container_without_python_gets_it_back(lab: DriftLab) -> None:
    lab.sh(ONE, "rm /usr/bin/python3")
    assert lab.look() == {BASE: ("python3 is missing",)}
    mended(lab)
    assert lab.sh(ONE, "python3 -c 'print(6 * 7)'").strip() == "42"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("exec sleep 3141", "killed after 2 s"),
        ("echo not JSON", "not JSON"),
        (":", "said nothing"),
        ("echo broken >&2; exit 1", "broken"),
        ("kill -SEGV $$", "Look at it with: provision exec bad-one"),
    ],
)
def test_a_python_that_hangs_lies_or_dies_is_an_error_that_names_the_container(
    lab: DriftLab, monkeypatch: pytest.MonkeyPatch, program: str, words: str
) -> None:
    monkeypatch.setattr(gather, "TIMEOUT_S", 2.0)
    python = "/usr/bin/python3"
    lab.sh(ONE, f"mv {python} {python}.kept; printf '#!/bin/sh\\n%s\\n' '{program}' > {python}; chmod 755 {python}")
    started = time.monotonic()
    try:
        with pytest.raises(ProviderError, match=f"Unable to .*{ONE}") as caught:
            lab.look()
        assert time.monotonic() - started < 20
        assert words in str(caught.value)
        assert lab.sh(ONE, "pgrep -f '[s]leep 3141' || true") == ""
    finally:
        lab.sh(ONE, f"mv {python}.kept {python}")
    assert lab.look() == {}
