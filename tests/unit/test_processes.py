"""What a test starts beside itself ends with the test, whatever becomes of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import awaited_at_end, killed_at_end
from tests.waiting import wait_until

WITH_A_CHILD = "sleep 600 & echo $!; wait"
DEAF = "trap '' TERM; echo begun; while :; do sleep 0.1; done"
POLITE = "trap 'exit 7' TERM; echo begun; while :; do sleep 0.1; done"


def shell(script: str, *, leads_group: bool = False) -> subprocess.Popen[str]:
    command = ["sh", "-c", script]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=leads_group
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_after_a_failure_it_is_gone_with_the_group_that_it_leads() -> None:
    process = shell(WITH_A_CHILD, leads_group=True)
    child = int(first_line(process))
    with pytest.raises(ZeroDivisionError), killed_at_end(process):
        raise ZeroDivisionError
    assert process.returncode == -signal.SIGKILL
    assert process.stdin is not None
    assert process.stdin.closed
    wait_until(lambda: not Path(f"/proc/{child}/cwd").exists())


@pytest.mark.parametrize(("script", "code"), [(POLITE, 7), (DEAF, -signal.SIGKILL)], ids=["hears", "does not hear"])
def test_it_is_asked_to_end_before(script: str, code: int) -> None:
    with killed_at_end(shell(script), grace_s=60 if code == 7 else 0.2) as process:
        assert first_line(process) == "begun"
    assert process.returncode == code


def test_what_a_program_that_has_ended_left_running_is_the_tests_own_affair() -> None:
    with killed_at_end(shell("sleep 600 >/dev/null & echo $!", leads_group=True)) as process:
        child = int(first_line(process))
        process.wait(60)
    assert Path(f"/proc/{child}").exists()
    subprocess.run(["kill", str(child)], check=True, timeout=60)


def test_one_that_ends_by_itself_is_awaited() -> None:
    with awaited_at_end(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)) as process:
        assert process.poll() is None
    assert process.returncode == 1  # its input ended


def test_one_that_does_not_end_by_itself_is_killed_and_that_is_an_error() -> None:
    with pytest.raises(subprocess.TimeoutExpired), awaited_at_end(shell(DEAF), within_s=0.2) as process:
        assert first_line(process) == "begun"
    assert process.returncode == -signal.SIGKILL
