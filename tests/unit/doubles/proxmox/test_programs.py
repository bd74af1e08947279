"""The programs of the double's node that need no container that runs: what they print, and how they end."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from tests.doubles.proxmox import Double
from tests.doubles.proxmox.pct import Pct

TEMPLATE = "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst"
WEB = ("create", "105", TEMPLATE, "--hostname", "web", "--rootfs", "local-lvm:4", "--memory", "256")


@pytest.fixture
def pct(pve: Double) -> Iterator[Pct]:
    """The node's programs; its containers live in memory."""
    with (
        tempfile.TemporaryDirectory(prefix="pve-") as folder,  # not ``tmp_path``: sockets need short paths
        closing(Pct(pve, cast("Any", pve.world.containers), Path(folder))) as programs,
    ):
        yield programs


def run(pct: Pct, program: str, *words: str) -> tuple[int, str, str]:
    done = subprocess.run([pct.bin / program, *words], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_pct_creates_what_the_api_has_then(pve: Double, pct: Pct) -> None:
    code, out, err = run(pct, "pct", *WEB)
    assert (code, err) == (0, "Task finished with 1 warning(s)!\n")
    assert "WARN: Systemd 252 detected. You may need to enable nesting." in out
    assert "TASK" not in out
    guest = pve.world.guests[105]
    assert (guest.node, guest.config["hostname"], guest.config["memory"]) == ("pve1", "web", "256")
    assert run(pct, "pct", "status", "105")[1] == "status: stopped\n"
    assert run(pct, "pct", "start", "105")[0] == 0
    assert run(pct, "pct", "status", "105")[1] == "status: running\n"


def test_pct_create_ends_as_the_real_one_where_it_cannot(pve: Double, pct: Pct) -> None:
    assert run(pct, "pct", *WEB)[0] == 0
    code, _, err = run(pct, "pct", *WEB)
    assert (code, "CT 105 already exists on node 'pve1'" in err) == (255, True)
    code, _, err = run(pct, "pct", "create", "106")
    assert (code, err) == (255, "400 not enough arguments\npct create <vmid> <ostemplate> [OPTIONS]\n")
    code, _, err = run(pct, "pct", "create", "106", TEMPLATE, "--memory", "much")
    assert code == 255
    assert err.startswith("400 Parameter verification failed.\nmemory: ")
    code, _, err = run(pct, "pct", "create", "106", "local:vztmpl/none.tar.zst", "--rootfs", "local-lvm:4")
    assert code == 255
    assert err.startswith("unable to create CT 106 - ")
    assert 106 not in pve.world.guests


def test_pvesm_status_has_a_line_for_each_storage(pve: Double, pct: Pct) -> None:
    pve.world.storages["local-zfs"].enabled = False
    code, out, _ = run(pct, "pvesm", "status")
    head, *lines = out.splitlines()
    assert code == 0
    assert head.split() == ["Name", "Type", "Status", "Total", "Used", "Available", "%"]
    assert len({len(one) for one in (head, *lines)}) == 1, out
    found = {one.split()[0]: one.split()[1:] for one in lines}
    assert list(found) == sorted(pve.world.storages)
    kib = str(pve.world.storages["local-lvm"].total // 1024)
    assert found["local-lvm"] == ["lvmthin", "active", kib, "0", kib, "0.00%"]
    assert found["local-zfs"][1:] == ["disabled", "0", "0", "0", "N/A"]
    assert run(pct, "pvesm", "status", "--storage", "local")[1].count("\n") == 2


def test_pvesm_list_has_what_guests_have_first(pct: Pct) -> None:
    assert run(pct, "pct", *WEB)[0] == 0
    _, out, _ = run(pct, "pvesm", "list", "local-lvm")
    assert [one.split() for one in out.splitlines()] == [
        ["Volid", "Format", "Type", "Size", "VMID"],
        ["local-lvm:vm-105-disk-0", "raw", "rootdir", str(4 << 30), "105"],
    ]
    _, out, _ = run(pct, "pvesm", "list", "local", "--content", "vztmpl")
    assert [TEMPLATE, "tzst", "vztmpl", "120000000"] in [one.split() for one in out.splitlines()]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list", "none"), "storage 'none' does not exist\n"),
        (("list",), "400 not enough arguments\npvesm list <storage> [OPTIONS]\n"),
        (("path",), "ERROR: unknown command 'pvesm path'\n"),
        ((), "ERROR: unknown command 'pvesm '\n"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_pvesm_says_what_it_cannot(pct: Pct, words: tuple[str, ...], said: str) -> None:
    assert run(pct, "pvesm", *words) == (255, "", said)


@pytest.mark.parametrize(
    "words", [("pct", "status", "105"), ("pvesh", "get", "/version"), ("pvesm", "status")], ids=lambda words: words[0]
)
def test_each_program_takes_the_time_that_perl_takes(pct: Pct, words: tuple[str, ...]) -> None:
    assert run(pct, "pct", *WEB)[0] == 0
    cost_s = 0.3
    pct.cost_s = cost_s
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run(pct, *words)[0] == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime >= cost_s
