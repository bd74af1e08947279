"""The question whether a system has started, put to a ``systemctl`` that answers as a broken or slow one would."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from provisioner.inside import system_start
from provisioner.inside.system_start import Start, start_of
from provisioner.values.state import Execution

HANGS_ONCE = """#!/bin/sh
[ "$1" = is-system-running ] || exit 1
[ -e {folder}/asked ] || { touch {folder}/asked; exec sleep 90; }
echo running
"""
STARTING = """#!/bin/sh
if [ "$1" = list-jobs ]; then
  echo "12 slow.service start running"
  echo "13 multi-user.target start waiting"
else
  echo starting
  exit 1
fi
"""
NO_BUS = """#!/bin/sh
echo "Failed to connect to bus: No such file or directory" >&2
exit 1
"""


def asked(folder: Path, systemctl: str | None, left_s: float) -> Execution:
    """What the command gives where ``systemctl`` is that program; None: there is none."""
    for name in ("sh", "date", "sleep", "timeout", "head", "touch", "echo"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    if systemctl is not None:
        program = folder / "systemctl"
        program.write_text(systemctl.replace("{folder}", str(folder)), encoding="ascii")
        program.chmod(0o755)
    environment = {**os.environ, "PATH": str(folder)}
    done = subprocess.run(system_start.command(left_s), capture_output=True, env=environment, check=False, timeout=60)
    return Execution(done.returncode, done.stdout, done.stderr)


def test_a_bus_that_says_nothing_costs_one_short_call(tmp_path: Path) -> None:
    """Without D-Bus a connection of systemctl may be taken and never answered; it gives up after 90 s by itself."""
    began = time.monotonic()
    assert start_of(asked(tmp_path, HANGS_ONCE, 60)) == Start("running")
    assert time.monotonic() - began < system_start.ASK_S + 2 * system_start.CALL_S


def test_what_a_start_waits_for_is_named(tmp_path: Path) -> None:
    found = start_of(asked(tmp_path, STARTING, 0))
    assert found == Start("starting", ("slow.service",))
    assert not found.is_over
    assert found.text == "starting (slow.service)"


def test_a_bus_that_is_not_there_yet_is_asked_again_later(tmp_path: Path) -> None:
    found = start_of(asked(tmp_path, NO_BUS, 1))
    assert found == Start("Failed to connect to bus: No such file or directory")


def test_a_system_without_systemd_is_told_apart(tmp_path: Path) -> None:
    assert start_of(asked(tmp_path, None, 60)) is None


@pytest.mark.parametrize(
    ("output", "start"),
    [
        (b"running\n", Start("running")),
        (b"degraded\n", Start("degraded")),
        (b"", Start("Killed")),
        (b"\xff" * 9000, Start("\ufffd" * 200)),
        (b"starting\n" + b"1 a.service start running\n" * 99, Start("starting", ("a.service",) * 5)),
    ],
)
def test_what_it_says_is_read_within_limits(output: bytes, start: Start) -> None:
    assert start_of(Execution(0, output, b"Killed\n")) == start
