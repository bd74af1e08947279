"""One test per Molecule scenario: create, converge, again without a change, testinfra, destroy, in real containers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from provisioner.values import paths
from tests.ansible_environment import ansible_environment
from tests.processes import killed_at_end

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 2400
"""An end, no measurement: the longest takes 15 minutes alone, and half as much again on a machine that is shared."""
GRACE_S = 60
"""What Molecule and its Ansible have to end in order; then they are killed."""
NAMES = sorted(page.parent.name for page in ROOT.glob("molecule/*/molecule.yml"))
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FAILED_STEP = re.compile(r"Return code: [1-9]")
"""The line with which Molecule ends what a program of a step has printed, where that failed."""
SHOWN_LINES = 120


def molecule(*arguments: str, log: Path) -> int:
    """Run Molecule with its output in ``log``; its exit code, or 124 when it took longer than ``TIMEOUT_S``."""
    command = ("molecule", *arguments)
    with (
        log.open("ab") as output,
        killed_at_end(
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | ansible_environment(ROOT),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ),
            grace_s=GRACE_S,
        ) as process,
    ):
        try:
            return process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return 124


def what_failed(log: str) -> str:
    """Return the last lines of Molecule's log up to the first step that failed, without colours.

    After such a step Molecule destroys what it has made, which fills the end of the log. Without one: its end.
    """
    lines = [COLOUR.sub("", line) for line in log.splitlines()]
    ends = [number for number, line in enumerate(lines, 1) if FAILED_STEP.search(line)]
    end = ends[0] if ends else len(lines)
    return "\n".join(lines[max(end - SHOWN_LINES, 0) : end])


@pytest.mark.molecule
@pytest.mark.incus
@pytest.mark.usefixtures("incus_lab")
@pytest.mark.parametrize("name", NAMES)
def test_scenario(name: str) -> None:
    cache = paths.cache() / "molecule"
    cache.mkdir(parents=True, exist_ok=True)
    log = cache / f"{name}.log"
    log.unlink(missing_ok=True)
    code = molecule("test", "--scenario-name", name, log=log)
    if code:
        molecule("destroy", "--scenario-name", name, log=log)
        shown = what_failed(log.read_text(encoding="utf-8", errors="replace"))
        pytest.fail(f"molecule test --scenario-name {name} exited {code}; from {log}:\n{shown}", pytrace=False)


def test_what_failed_is_shown_and_not_how_its_containers_are_deleted() -> None:
    log = "\n".join(
        [
            *(f"line {number}" for number in range(500)),
            "\x1b[2m\x1b[32m└─ Return code: 0 ────\x1b[0m",
            "\x1b[31mfatal: no such model\x1b[0m",
            "\x1b[2m\x1b[31m└─ Return code: 2 ────\x1b[0m",
            *(f"deleting {number}" for number in range(500)),
            "\x1b[2m\x1b[31m└─ Return code: 1 ────\x1b[0m",
        ]
    )
    shown = what_failed(log).splitlines()
    assert shown[-3:] == ["└─ Return code: 0 ────", "fatal: no such model", "└─ Return code: 2 ────"]
    assert len(shown) == SHOWN_LINES


@pytest.mark.parametrize("log", ["", "one\ntwo"])
def test_of_a_log_without_a_failed_step_the_end_is_shown(log: str) -> None:
    assert what_failed(log) == log
