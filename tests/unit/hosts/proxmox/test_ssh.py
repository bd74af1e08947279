"""Commands on a node: how they are called, what of the output is theirs, and what each failure of ssh is called."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from provisioner.hosts.proxmox import ssh
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.ssh import (
    SESSIONS,
    CommandTimeoutError,
    Frame,
    OutputLimitError,
    Shell,
    destination_of,
    unreachable_error,
)
from provisioner.values import limits
from provisioner.values.errors import PreflightError, ProviderError, UnavailableError
from tests.case_files import read_cases
from tests.unit.hosts.proxmox.nearby import Nearby, nearby, shell

CASES = read_cases("hosts/proxmox/shell")

TIMEOUT_S = 60
__all__ = ["nearby", "shell"]  # fixtures

NODE = destination_of("root@pve:2222")


@pytest.mark.parametrize(
    ("text", "login", "host", "port"),
    [
        ("root@192.168.1.10", "root@192.168.1.10", "192.168.1.10", ""),
        ("pve1", "pve1", "pve1", ""),
        ("root@pve1:2222", "root@pve1", "pve1", "2222"),
        ("root@[fd00::1]:22", "root@fd00::1", "fd00::1", "22"),
        ("[fd00::1]", "fd00::1", "fd00::1", ""),
    ],
)
def test_a_destination_is_taken_apart(text: str, login: str, host: str, port: str) -> None:
    found = destination_of(text)
    assert (found.login, found.host, found.port) == (login, host, port)


def test_without_ssh_the_file_is_what_to_change() -> None:
    with pytest.raises(PreflightError, match="needs ssh") as caught:
        Shell(Access("https://pve:8006", "root@pam")).run(["true"])
    assert "ssh: root@" in caught.value.resolution


def test_ssh_asks_nobody_and_trusts_no_unknown_key(nearby: Nearby, tmp_path: Path) -> None:
    access = Access("https://pve:8006", "root@pam", ssh="root@pve:2222", ssh_config=tmp_path / "config")
    Shell(access).run(["true"])
    for call in nearby.asked.splitlines():
        assert call.startswith(f"-F {tmp_path}/config ") or not call.startswith("-")
    assert nearby.asked.count("-oBatchMode=yes -oStrictHostKeyChecking=yes") == 2, "once to connect, once to run"
    assert nearby.asked.count("-p 2222") == 2
    assert "-oControlPersist=60" in nearby.asked
    assert " -- root@pve exec /bin/sh" in nearby.asked


def test_words_arrive_as_they_are(shell: Shell) -> None:
    words = ["a b", "$HOME", "'", '"', "\n", "*", "ä", ""]
    assert shell.run(["printf", "%s|", *words]).stdout.decode() == "|".join(words) + "|"


def test_what_ssh_and_start_files_say_is_not_the_commands(shell: Shell, nearby: Nearby) -> None:
    nearby.says("perl: warning: Setting locale failed.\nmux_client_request_session: refused\n")
    done = shell.run(["sh", "-c", "printf own >&2; exit 3"])
    assert (done.returncode, done.stderr) == (3, b"own")


def test_exit_code_255_is_a_commands_right(shell: Shell) -> None:
    assert shell.run(["sh", "-c", "exit 255"]).returncode == 255


def test_an_ssh_that_fails_is_no_command_that_fails(shell: Shell, nearby: Nearby) -> None:
    nearby.says("ssh: connect to host pve port 2222: Connection refused\n")
    nearby.fails(255)
    with pytest.raises(UnavailableError, match="Unable to reach root@pve:2222 by ssh"):
        shell.run(["true"])


def test_a_busy_server_is_asked_again_and_not_for_ever(
    shell: Shell, nearby: Nearby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "CONNECT_AGAIN_S", (0.0, 0.0))
    nearby.says("kex_exchange_identification: read: Connection reset by peer\n")
    nearby.fails(255)
    with pytest.raises(UnavailableError) as caught:
        shell.run(["true"])
    assert "MaxStartups" in caught.value.resolution
    assert nearby.asked.count(" -N -f ") == 3
    nearby.fails_times(2)
    assert shell.run(["echo", "at last"]).stdout == b"at last\n"


def test_a_command_whose_end_is_unknown_is_an_error(shell: Shell) -> None:
    with pytest.raises(ProviderError, match="Unable to tell how sh on root@pve:2222 ended"):
        shell.run(["sh", "-c", "kill -KILL $PPID"])


def test_a_missing_pct_is_not_a_commands_127(shell: Shell, nearby: Nearby) -> None:
    (nearby.folder / "pct").unlink()
    with pytest.raises(ProviderError, match="Unable to run pct on") as caught:
        shell.run(["pct", "list"])
    assert "Proxmox VE node" in caught.value.resolution
    assert shell.run(["sh", "-c", "exit 127"]).returncode == 127


def test_input_is_streamed_and_a_failing_source_is_an_error(shell: Shell) -> None:
    assert shell.run(["cat"], stdin=iter([b"a", b"b"])).stdout == b"ab"
    assert shell.run(["true"], stdin=b"x" * 1_000_000).returncode == 0, "nobody has to read it"

    def broken() -> object:
        yield b"a"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        shell.run(["cat"], stdin=broken())  # type: ignore[arg-type]


def test_a_command_has_a_time_limit(shell: Shell) -> None:
    sought = ["pgrep", "-f", "^sleep 70201"]
    told: list[int] = []
    with pytest.raises(CommandTimeoutError, match="Unable to wait for sh") as caught:
        shell.run(
            ["sh", "-c", "exec sleep 70201"],
            timeout_s=3.0,  # within it the command has begun, on a busy machine as well
            before_kill=lambda: told.append(
                subprocess.run(sought, capture_output=True, check=False, timeout=TIMEOUT_S).returncode
            ),
        )
    assert told == [0], "it is told while the command, and with it all that it has started, can still be found"
    assert "killed" in caught.value.details
    assert subprocess.run(sought, capture_output=True, check=False, timeout=TIMEOUT_S).returncode == 1


def test_what_ends_others_waits_for_none_of_their_sessions(shell: Shell) -> None:
    ended: list[int] = []

    def hang() -> None:
        with pytest.raises(CommandTimeoutError):
            shell.run(["sleep", "70204"], timeout_s=0.5, before_kill=end)

    def end() -> None:
        ended.append(shell.run(["true"], is_ending=True).returncode)

    hanging = [threading.Thread(target=hang, daemon=True) for _ in range(SESSIONS)]
    for thread in hanging:
        thread.start()
    for thread in hanging:
        thread.join(20)
    assert ended == [0] * SESSIONS


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_a_command_may_not_write_for_ever(shell: Shell, stream: str) -> None:
    told: list[str] = []
    with pytest.raises(OutputLimitError, match="Unable to take what sh on root@pve:2222 writes") as caught:
        shell.run(["sh", "-c", f"exec yes{stream}"], before_kill=lambda: told.append("first"))
    assert told == ["first"]
    assert caught.value.details == "It wrote more than 16 MiB, which is all that is taken from it; it was killed."


def test_who_asks_for_more_gets_more_and_what_is_streamed_needs_no_memory(shell: Shell, tmp_path: Path) -> None:
    much = ["head", "-c", str(20 * 2**20), "/dev/zero"]
    assert len(shell.run(much, limit=32 * 2**20).stdout) == 20 * 2**20
    with (tmp_path / "file").open("wb") as file:
        assert shell.run(much, stdout=file, limit=32 * 2**20).stdout == b""
    assert (tmp_path / "file").stat().st_size == 20 * 2**20
    with (tmp_path / "file").open("wb") as file, pytest.raises(OutputLimitError):
        shell.run(much, stdout=file, limit=2**20)


def test_a_node_on_which_even_killing_hangs_is_left_to_itself(
    shell: Shell, nearby: Nearby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KILL_S", 0.5)
    ssh = nearby.folder / "ssh"
    hang = 'case "$*" in *kill*) exec sleep 70203 ;; esac\nexec sh'
    ssh.write_text(ssh.read_text(encoding="ascii").replace("exec sh", hang), encoding="ascii")
    began = time.monotonic()
    with pytest.raises(CommandTimeoutError):
        shell.run(["sh", "-c", "exec sleep 70205"], timeout_s=0.5)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(("said", "advice"), CASES["each failure of ssh says what to do"])
def test_each_failure_of_ssh_says_what_to_do(said: str, advice: str) -> None:
    error = unreachable_error(NODE, said)
    assert advice in error.resolution
    assert error.details == said


def test_a_frame_takes_out_what_it_put_in() -> None:
    frame = Frame("m" * 32)
    done = subprocess.run(
        ["sh", "-c", frame.command(["sh", "-c", "printf x >&2; exit 4"])],
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    late = done.stderr + b"late"
    outcome = frame.outcome(b"noise\n" + late)
    assert (outcome.code, outcome.stderr, outcome.noise, outcome.is_missing) == (4, b"xlate", b"noise\n", False)
    assert done.returncode == 0
    assert Frame().outcome(late).pid is None, "another frame's words are not ours"


def test_the_sockets_folder_is_ours_alone_and_its_path_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = tmp_path / "provision"
    if len(os.fsencode(folder)) + 17 <= ssh.SOCKET_PATH_BYTES:
        assert ssh.socket_folder() == folder
        assert folder.stat().st_mode & 0o777 == 0o700
        folder.chmod(0o755)
        with pytest.raises(UnavailableError, match="Unable to use folder"):
            ssh.socket_folder()
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert len(os.fsencode(ssh.socket_folder() / ("x" * 16))) <= ssh.SOCKET_PATH_BYTES
