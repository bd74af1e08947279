"""Commands and files in containers: stdin, arguments, exit codes; the sieve; and which ones are frozen."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from provisioner.hosts.proxmox import execute
from provisioner.hosts.proxmox.attach import Ends, Sieve, attach
from provisioner.hosts.proxmox.execute import HELD_SCRIPT, KILL_SCRIPT, MARK_VARIABLE, USUAL_ENVIRONMENT, PctCall
from provisioner.hosts.proxmox.ssh import CommandKilledError, Shell
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.state import Execution
from tests.processes import awaited_at_end
from tests.unit.hosts.proxmox.nearby import Nearby, nearby, shell

__all__ = ["nearby", "shell"]  # fixtures

CANARY = "canary-4713"
UID, GID = os.getuid(), os.getgid()


def test_command_environment_and_input_are_no_arguments(shell: Shell, nearby: Nearby) -> None:
    done = execute.execute(
        shell, 105, ["sh", "-c", f'cat; echo "$WORD {CANARY}"'], stdin=b"in\n", environment={"WORD": f"a'\n{CANARY}"}
    )
    assert done.stdout.decode() == f"in\na'\n{CANARY} {CANARY}\n"
    assert CANARY not in nearby.asked


def test_words_that_are_not_utf_8_are_told_to_a_terminal_as_they_are(shell: Shell) -> None:
    ours, its = pty.openpty()
    environment = {"WORD": "a\udcff"}
    try:
        command = ["sh", "-c", 'printf "<%s %s>" "$WORD" "$1"', "sh", "\udcfe\u00e4"]
        assert attach(shell, 105, command, Ends(its, its, its, terminal=True), environment) == 0
        assert os.read(ours, 1000) == b"<a\xff \xfe\xc3\xa4>"
    finally:
        os.close(ours)
        os.close(its)


def test_the_environment_is_the_same_as_on_other_hosts(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_NODE", "leaked")
    found = execute.execute(shell, 105, ["env"]).stdout.decode()
    assert "OF_THE_NODE" not in found
    assert {"HOME=/root", "USER=root", "LANG=C.UTF-8"} <= set(found.splitlines())


@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_begins_at_home_and_without_one_at_the_root(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    command = ["sh", "-c", 'pwd >"$1"', "sh", str(tmp_path / "where")]
    for home, where in ((tmp_path, tmp_path), (tmp_path / "missing", Path("/"))):
        monkeypatch.setitem(USUAL_ENVIRONMENT, "HOME", str(home))
        if terminal:
            ours, its = pty.openpty()
            assert attach(shell, 105, command, Ends(its, its, its, terminal=True), {}) == 0
            os.close(ours)
            os.close(its)
        else:
            assert execute.execute(shell, 105, command).returncode == 0
        assert (tmp_path / "where").read_text() == f"{where}\n"


def test_exit_codes_are_the_commands(shell: Shell) -> None:
    assert execute.execute(shell, 105, ["sh", "-c", "exit 255"]).returncode == 255
    assert execute.execute(shell, 105, ["no-such-command"]).returncode == 127
    assert execute.execute(shell, 105, ["/etc/passwd"]).returncode == 126
    assert execute.execute(shell, 105, ["sh", "-c", "kill -TERM $$"]).returncode == 143


def test_a_container_that_does_not_run_is_an_error_in_pcts_words(shell: Shell) -> None:
    with pytest.raises(ProviderError, match="Unable to run true in container web") as caught:
        execute.execute(shell, 106, ["true"], name="web")
    assert caught.value.details == "container '106' not running!"


def test_an_input_that_ends_before_the_command_is_known_runs_nothing() -> None:
    call = PctCall(105, ["touch", "/no/such/file"])
    inside = call.argv[call.argv.index("/usr/bin/env") :]
    done = subprocess.run(inside, input=call.head[:-10], capture_output=True, check=False, timeout=60)
    assert done.returncode == 125
    assert call.own_stderr(done.stderr) is None


def test_a_time_limit_kills_what_runs_inside(shell: Shell) -> None:
    with pytest.raises(ProviderError, match="Unable to run sh in container 105") as caught:
        execute.execute(shell, 105, ["sh", "-c", "setsid sleep 70301 & exec env -i sleep 70302"], timeout_s=0.5)
    assert "killed after 0 s" in caught.value.details
    assert subprocess.run(["pgrep", "-f", "^sleep 7030[12]"], check=False, timeout=60).returncode == 1


def test_killing_what_is_not_there_is_success() -> None:
    done = subprocess.run(
        ["sh", "-c", KILL_SCRIPT, "sh", f"{MARK_VARIABLE}=nobody", "TERM", "20"], timeout=10, check=False
    )
    assert done.returncode == 0


def test_what_is_dead_and_was_not_waited_for_is_not_killed_for_ever() -> None:
    mark = f"{MARK_VARIABLE}=not-waited-for"
    with awaited_at_end(
        subprocess.Popen(["sleep", "70303"], env=os.environ | {MARK_VARIABLE: "not-waited-for"})
    ) as unwaited:
        done = subprocess.run(["sh", "-c", KILL_SCRIPT, "sh", mark, "TERM", "20"], timeout=10, check=False)
        assert done.returncode == 0
        assert Path(f"/proc/{unwaited.pid}/status").read_text(encoding="ascii").count("\nState:\tZ") == 1
    assert unwaited.returncode == -signal.SIGTERM


def test_a_file_appears_whole_with_its_mode(shell: Shell, tmp_path: Path) -> None:
    target = tmp_path / "a b"
    target.write_bytes(b"before")
    target.chmod(0o644)
    execute.push_file(shell, 105, b"after", str(target), mode=0o640, uid=UID, gid=GID)
    assert target.read_bytes() == b"after"
    assert target.stat().st_mode & 0o7777 == 0o640
    link = tmp_path / "link"
    link.symlink_to(target)
    execute.push_file(shell, 105, b"other", str(link), uid=UID, gid=GID)
    assert not link.is_symlink(), "what a link leads to is not written"
    assert target.read_bytes() == b"after"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a b", "bin", "link"]


def test_a_file_that_cannot_be_written_or_read_leaves_nothing(shell: Shell, tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="Unable to copy a file to"):
        execute.push_file(shell, 105, b"x", str(tmp_path / "no" / "file"))
    with pytest.raises(ProviderError, match="it is a directory"):
        execute.push_file(shell, 105, b"x", str(tmp_path))
    with pytest.raises(ProviderError, match="Unable to copy /no/such/file from container web"):
        execute.pull_file(shell, 105, "/no/such/file", tmp_path / "target", name="web")
    with pytest.raises(ProviderError, match="it is no file"):
        execute.pull_file(shell, 105, "/dev/zero", tmp_path / "target")
    assert [one.name for one in tmp_path.iterdir()] == ["bin"]


def test_a_file_is_pulled_as_it_is(shell: Shell, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 10_000)
    execute.pull_file(shell, 105, str(source), tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_sieve_gives_the_commands_own_words_however_they_come(size: int) -> None:
    stream = b"noise\nMARK:node:1\nINSIDE:inside\nown MAR words MARMARK:end:7\nlate"
    sieve = Sieve(b"INSIDE:inside\n", b"MARK")
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    own = b"".join([*map(sieve.own, pieces), sieve.rest()])
    assert own == b"own MAR words MARlate"
    assert bytes(sieve.said) == b"noise\nMARK:node:1\nINSIDE:inside\nMARK:end:7\n"


def test_a_sieve_keeps_what_was_said_instead_of_beginning() -> None:
    sieve = Sieve(b"INSIDE:inside\n", b"MARK")
    assert sieve.own(b"container '106' not running!\nMARK:end:255\n") + sieve.rest() == b""
    assert bytes(sieve.said) == b"container '106' not running!\nMARK:end:255\n"


SLOW = "It was killed after 1 s."
FROZEN = "CT 101 is frozen: nothing in it runs. Resume it, on its node: lxc-unfreeze -n 101"
LOCKED = (
    "CT 101 is locked ({}). Wait until that has ended; a lock that nothing holds any more goes by, on its node: "
    "pct unlock 101"
)


class Node:
    """A node on which nothing in the container ends, and that says ``state`` of it: LXC's word, and its lock."""

    def __init__(self, state: bytes | Exception) -> None:
        self.state = state

    def run(self, command: Sequence[str], **_options: Any) -> Execution:
        """Answer for what asks the node itself; a command in the container takes too long."""
        if command[2] != HELD_SCRIPT:
            raise CommandKilledError("Unable to wait for pct", details=SLOW)
        if isinstance(self.state, Exception):
            raise self.state
        return Execution(0, self.state, b"")


@pytest.mark.parametrize(
    ("state", "details"),
    [
        (b"FROZEN \n", f"{SLOW}\n{FROZEN}"),
        (b"FROZEN backup\n", f"{SLOW}\n{LOCKED.format('backup')}"),
        (b"RUNNING migrate\n", f"{SLOW}\n{LOCKED.format('migrate')}"),
        (b" snapshot-delete\n", f"{SLOW}\n{LOCKED.format('snapshot-delete')}"),
        (b"RUNNING \n", SLOW),
        (b"", SLOW),
        (ProviderError("Unable to run lxc-info"), SLOW),
        (UnavailableError("Unable to reach root@pve1 by ssh"), SLOW),
    ],
)
def test_a_command_that_did_not_end_says_what_holds_its_container(state: bytes | Exception, details: str) -> None:
    shell = cast("Shell", Node(state))
    with pytest.raises(ProviderError, match="Unable to run true in container one") as caught:
        execute.execute(shell, 101, ["true"], timeout_s=1, name="one")
    assert caught.value.details == details
