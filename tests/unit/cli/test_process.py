"""The command as a process: signals, broken pipes, odd locales, terminals."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.processes import awaited_at_end, completed
from tests.unit.cli.conftest import ENGINE_KEY, GATEWAY_KEY

WAITING = """\
import sys, time
from provisioner.lab import opening
from provisioner.cli.app import run
def wait(*_, **__):
    print("begun", flush=True)
    time.sleep(60)
opening.open_lab = wait
sys.exit(run(sys.argv[1:]))
"""


def provision(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command run by this Python."""
    return completed(
        (sys.executable, "-m", "provisioner", *arguments), cwd=folder, env={**os.environ, **variables}, timeout_s=60
    )


@contextmanager
def waiting(lab: Path, number: signal.Signals, handler: Any) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """The command while it waits, and its output; it inherits what is done with the signal."""
    former = signal.signal(number, handler)
    command = (sys.executable, "-c", WAITING, "validate", "--json")
    try:
        begun = awaited_at_end(subprocess.Popen(command, cwd=lab.parent, stdout=subprocess.PIPE, text=True))
    finally:
        signal.signal(number, former)
    with begun as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process, process.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_130_and_a_summary(lab: Path, number: signal.Signals) -> None:
    # Tests that run in the background ignore some signals, and their children would inherit that.
    with waiting(lab, number, signal.default_int_handler) as (process, output):
        process.send_signal(number)
        lines = output.read().splitlines()
    assert process.returncode == 130
    assert '"exit_code": 130' in lines[-1]


def test_nohup_means_that_a_closed_terminal_ends_nothing(lab: Path) -> None:
    with waiting(lab, signal.SIGHUP, signal.SIG_IGN) as (process, _):
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        process.kill()
    ignored = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn"))
    assert ignored & 1 << signal.SIGHUP - 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("show", "--expanded"), 0), (("plan", "--json", "a.yml", "b.yml"), 64), (("--help",), 1)],  # 1 is click's own
)
def test_a_reader_that_goes_away_is_not_worth_a_word(lab: Path, arguments: tuple[str, ...], code: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        (sys.executable, "-m", "provisioner", *arguments),
        cwd=lab.parent,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == code


def test_a_terminal_without_utf8_gets_escapes(lab: Path) -> None:
    lab.write_text(lab.read_text() + "\u00fcml\u00e4ut: 1\n", encoding="utf-8")
    done = provision("validate", folder=lab.parent, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 64
    assert "homelab.yml:13:" in done.stderr
    assert done.stderr.isascii()


@pytest.mark.parametrize(
    ("variables", "arguments", "is_coloured"),
    [
        ({}, (), True),
        ({"NO_COLOR": "1"}, (), False),
        ({"PROVISION_NO_COLOR": "1"}, (), False),
        ({"TERM": "dumb"}, (), False),
        ({}, ("--no-color",), False),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    lab: Path, variables: dict[str, str], arguments: tuple[str, ...], is_coloured: bool
) -> None:
    controller, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    subprocess.run(
        (sys.executable, "-m", "provisioner", "validate", "none.yml", *arguments),
        cwd=lab.parent,
        env={**environment, "TERM": "xterm", **variables},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        check=False,
        timeout=60,
    )
    os.close(terminal)
    said = b""
    while select.select([controller], [], [], 0.5)[0]:
        try:
            said += os.read(controller, 4096)
        except OSError:  # the other end is closed and everything is read
            break
    os.close(controller)
    assert b"Unable to read none.yml" in said
    assert (b"\033[" in said) is is_coloured
    assert b"\033[" not in provision("validate", "none.yml", folder=lab.parent).stderr.encode()


MOST_MODULES = 86
"""Modules of ours that a plan imports of a file with an engine and a gateway on one Incus; it may only shrink."""


def test_a_plan_imports_no_driver_that_the_file_does_not_name(lab: Path) -> None:
    program = (
        "import sys\n"
        "from provisioner.cli.app import run\n"
        "run(sys.argv[1:])\n"
        "print(*[name for name in sys.modules if name.startswith('provisioner')], file=sys.stderr)\n"
    )
    arguments = ("plan", str(lab), "--json")
    nowhere = os.environ | {"INCUS_DIR": str(lab.parent / "no incus")}
    command = (sys.executable, "-c", program, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=nowhere, timeout=60)
    imported = done.stderr.split()
    assert "provisioner.hosts.incus.api" in imported
    assert [name for name in imported if "proxmox" in name.partition("hosts.")[2] or "cluster" in name] == []
    assert len(imported) <= MOST_MODULES


def test_what_only_a_change_needs_is_not_imported_to_find_that_there_is_none(lab: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "import provisioner.cli.plan, provisioner.hosts.incus, provisioner.reconcile.up\n"
        "from provisioner.lab import desired_fleet\n"
        "from provisioner.lab.opening import find_files, look_at_models, open_lab\n"
        "lab = open_lab(Path(sys.argv[1]))\n"
        "files = find_files(lab).files\n"
        "look_at_models(lab, files)\n"
        "assert desired_fleet(lab.resolved, files).instances\n"
        "print(*sorted(sys.modules))\n"
    )
    done = subprocess.run(
        (sys.executable, "-c", program, str(lab)), capture_output=True, text=True, check=True, timeout=120
    )
    imported = set(done.stdout.split())
    assert "provisioner.reconcile.observe" in imported
    assert imported.isdisjoint(
        {"ansible", "ansible_runner", "jinja2", "proxmoxer", "pylxd", "requests", "rich", "urllib.request"}
    )
    assert imported.isdisjoint({"provisioner.loads", "provisioner.gpus.look", "provisioner.gpus.health"})


def test_secrets_of_the_environment_are_not_in_what_it_prints(lab: Path) -> None:
    for arguments in (("show",), ("show", "--expanded", "--json"), ("validate", "-v")):
        done = provision(*arguments, folder=lab.parent)
        assert done.returncode == 0
        assert ENGINE_KEY not in done.stdout + done.stderr
        assert GATEWAY_KEY not in done.stdout + done.stderr
