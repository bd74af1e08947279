"""The double's ``lxc-attach``: what a command finds in the container, by which ``pct exec`` is told from it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.doubles.proxmox.lxc import Lxc
from tests.processes import killed_at_end

TIMEOUT_S = 60
READY = "echo; exec sleep 600"
SEES = 'cat; pwd; id -u; cat /proc/1/cmdline | tr "\\0" " "; echo; env | sort; exit 7'


@pytest.fixture
def attach() -> Iterator[Path]:
    """The program; its only container, 105, is a shell in namespaces of its own."""
    if os.geteuid():
        pytest.skip("only root enters the namespaces of others")
    namespaces = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    with (
        tempfile.TemporaryDirectory(prefix="pve-") as folder,  # not ``tmp_path``: sockets need short paths
        killed_at_end(subprocess.Popen([*namespaces, "sh", "-c", READY], stdout=subprocess.PIPE)) as unshare,
    ):
        assert unshare.stdout
        assert unshare.stdout.readline() == b"\n"
        (child,) = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text(encoding="ascii").split()
        containers = SimpleNamespace(
            name_prefix="pve-none-",
            name=lambda vmid: f"pve-none-{vmid}",
            lab=SimpleNamespace(state=Path(folder)),
            init=lambda vmid: int(child) if vmid == 105 else None,
        )
        with closing(Lxc(cast("Any", containers), Path(folder), Path(folder))):
            yield Path(folder, "lxc-attach")


@pytest.mark.parametrize(
    ("option", "environment"),
    [
        ("--clear-env", ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "container=lxc"]),
        ("--keep-env", ["OF_THE_NODE=there", "container=lxc"]),
    ],
)
def test_a_command_runs_in_the_container_where_its_caller_is(attach: Path, option: str, environment: list[str]) -> None:
    call = [str(attach), "-n", "105", option, "--", "/bin/sh", "-c", SEES]
    done = subprocess.run(
        call,
        input=b"in\n",
        cwd="/usr",
        env={"OF_THE_NODE": "there"},
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    said = done.stdout.decode().splitlines()
    assert (done.returncode, said[:4]) == (7, ["in", "/usr", "0", "sleep 600 "])
    own = ("PWD=", "OLDPWD=", "SHLVL=", "_=", "LC_CTYPE=")
    assert [line for line in said[4:] if not line.startswith(own)] == environment, "all else is of sh and Python"


def test_a_container_that_does_not_run_cannot_be_entered(attach: Path) -> None:
    done = subprocess.run(
        [attach, "-n", "106", "--clear-env", "--", "true"], capture_output=True, check=False, timeout=TIMEOUT_S
    )
    assert (done.returncode, done.stderr) == (1, b"lxc-attach: 106: Failed to get init pid\n")
