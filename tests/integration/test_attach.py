"""Streams joined to a command in a real container: bytes, terminals, signals, readers that go away."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import secrets
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Self

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance
from tests.lab.far import WAYS, provider_by
from tests.processes import awaited_at_end, killed_at_end
from tests.waiting import wait_until

pytestmark = pytest.mark.incus

LARGE_BYTES = 8_000_000
PATIENCE_S = 20.0
ENDPOINT = "TEST_ATTACH_ENDPOINT"
ATTACH = f"""
import json, os, sys
from provisioner.hosts.incus import IncusProvider
from provisioner.hosts.incus.api import Endpoint
attach = IncusProvider("box", endpoint=Endpoint(**json.loads(os.environ[{ENDPOINT!r}]))).attach
sys.exit(attach(sys.argv[1], sys.argv[3:], stdin=0, stdout=1, stderr=2, terminal=sys.argv[2] == "terminal"))
"""


@pytest.fixture(scope="module", params=WAYS)
def provider(request: pytest.FixtureRequest) -> Iterator[IncusProvider]:
    """The driver over each way; what the tests start finds the same one."""
    one = provider_by(request)
    os.environ[ENDPOINT] = json.dumps(asdict(one.endpoint))
    yield one
    del os.environ[ENDPOINT]


def words(container: str, *command: str, terminal: bool = False) -> tuple[str, ...]:
    return (sys.executable, "-c", ATTACH, container, "terminal" if terminal else "streams", *command)


def attached(container: str, *command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words(container, *command), input=stdin, capture_output=True, check=False, timeout=60)


def is_running(provider: IncusProvider, container: str, what: str) -> bool:
    return provider.execute(container, ["pgrep", "-f", what]).returncode == 0


def test_streams_and_the_exit_code_are_the_commands_own(container: str) -> None:
    done = attached(container, "sh", "-c", "cat; echo wrong >&2; exit 7", stdin="ä\0\n".encode())
    assert (done.stdout, done.stderr, done.returncode) == ("ä\0\n".encode(), b"wrong\n", 7)


def test_a_command_that_is_not_there_gives_127_and_says_so(container: str) -> None:
    done = attached(container, "no-such-command")
    assert (done.stdout, done.stderr, done.returncode) == (b"", b"no-such-command: Command not found\n", 127)


def test_many_bytes_pass_both_ways_at_once(container: str) -> None:
    content = secrets.token_bytes(LARGE_BYTES)
    assert attached(container, "cat", stdin=content).stdout == content


def test_a_file_is_read_and_written_without_a_pipe(container: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(secrets.token_bytes(LARGE_BYTES))
    with source.open("rb") as stdin, target.open("wb") as stdout:
        done = subprocess.run(words(container, "cat"), stdin=stdin, stdout=stdout, check=False, timeout=60)
    assert done.returncode == 0
    assert target.read_bytes() == source.read_bytes()


def test_output_comes_while_the_command_runs(container: str) -> None:
    with awaited_at_end(
        subprocess.Popen(
            words(container, "sh", "-c", "echo first; read line; echo $line"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.stdin.write(b"second\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"second\n"
    assert process.returncode == 0


def test_an_empty_output_does_not_end_the_command(container: str) -> None:
    assert attached(container, "sh", "-c", "exec >&- 2>&-; sleep 1; exit 9").returncode == 9


@pytest.mark.parametrize(
    "script",
    [
        "echo begun; sleep 71001; true",
        "trap '' INT TERM HUP; echo begun; while :; do sleep 71001; done",
        "echo begun; exec env -i /bin/sleep 71001",
    ],
    ids=["with a child", "that does not hear", "that lost its mark"],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_with_its_children(
    provider: IncusProvider, container: str, script: str, number: signal.Signals
) -> None:
    # Tests that run in the background ignore some signals, and their children would inherit that.
    heard = signal.signal(number, signal.default_int_handler)
    try:
        attached = killed_at_end(
            subprocess.Popen(words(container, "sh", "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
    finally:
        signal.signal(number, heard)
    with attached as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 130
    assert not is_running(provider, container, "sleep 71001")


@pytest.mark.parametrize("script", ["yes", "echo first; sleep 71002; true"], ids=["that writes", "that is silent"])
def test_a_reader_that_goes_away_ends_the_command_quietly(provider: IncusProvider, container: str, script: str) -> None:
    with killed_at_end(
        subprocess.Popen(
            words(container, "sh", "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 141
        assert process.stderr.read() == b""
    assert not is_running(provider, container, "^yes|sleep 71002")


def test_in_a_thread_the_end_of_the_reader_ends_it(provider: IncusProvider, container: str) -> None:
    reading, writing = os.pipe()
    codes: list[int] = []
    with Path(os.devnull).open("rb") as nothing:
        run = threading.Thread(
            target=lambda: codes.append(
                provider.attach(
                    container,
                    ["sh", "-c", "echo begun; sleep 71003"],
                    stdin=nothing.fileno(),
                    stdout=writing,
                    stderr=writing,
                    terminal=False,
                )
            ),
            daemon=True,
        )
        run.start()
        assert os.read(reading, 6) == b"begun\n"
        os.close(reading)
        run.join(PATIENCE_S)
    os.close(writing)
    assert codes == [141]
    assert not is_running(provider, container, "sleep 71003")


def test_a_missing_container_is_named(provider: IncusProvider) -> None:
    with pytest.raises(ProviderError, match="Unable to run true in container no-such-container"):
        provider.attach("no-such-container", ["true"], stdin=0, stdout=1, stderr=2, terminal=False)


class Terminal:
    """A terminal of the test's own, with a command attached to it; both end with the block of a ``with``."""

    def __init__(self, container: str, *command: str, term: str = "vt220") -> None:
        self.controller, self.device = pty.openpty()
        self.resize(33, 77)
        self.before = termios.tcgetattr(self.device)
        self.said = b""
        self.stack = ExitStack()
        self.stack.callback(os.close, self.controller)
        self.stack.callback(os.close, self.device)
        self.process = self.stack.enter_context(
            killed_at_end(
                subprocess.Popen(
                    self.call(container, *command),
                    stdin=self.device,
                    stdout=self.device,
                    stderr=self.device,
                    env={**os.environ, "TERM": term},
                )
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def call(self, container: str, *command: str) -> tuple[str, ...]:
        """What attaches the command to a terminal."""
        return words(container, *command, terminal=True)

    def resize(self, lines: int, columns: int) -> None:
        """Give it another size."""
        fcntl.ioctl(self.device, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self.controller, text.encode())

    def expect(self, text: str) -> None:
        """Return when it has shown ``text``, and forget what came before."""
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self.said:
            left = deadline - time.monotonic()
            assert select.select([self.controller], [], [], max(0.0, left))[0], f"no {text!r} in {self.said!r}"
            self.said += os.read(self.controller, 4096)
        self.said = self.said.partition(text.encode())[2]

    def ended(self) -> int:
        """The exit code, once it has ended; the terminal must be as it was."""
        code = self.process.wait(PATIENCE_S)
        assert termios.tcgetattr(self.device) == self.before
        return code


def test_a_shell_has_a_terminal_with_our_size_and_name(container: str) -> None:
    with Terminal(container, "/bin/bash", "--norc", "--noprofile") as terminal:
        terminal.expect("# ")
        terminal.type("tty; echo $TERM; stty size\n")
        terminal.expect("/dev/pts/")
        terminal.expect("vt220")
        terminal.expect("33 77")
        terminal.resize(41, 101)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.type("sleep 0.2; stty size\n")
        terminal.expect("41 101")
        terminal.type("exit 5\n")
        assert terminal.ended() == 5


def test_ctrl_c_and_ctrl_d_are_the_shells_own(provider: IncusProvider, container: str) -> None:
    with Terminal(container, "/bin/sh", "-c", "PS1=ready- exec /bin/sh") as terminal:
        terminal.expect("ready-")
        terminal.type("sleep 71004\n")
        wait_until(lambda: is_running(provider, container, "^sleep 71004"))
        terminal.type("\x03")
        terminal.expect("ready-")
        terminal.type("echo $?\n")
        terminal.expect("130")
        terminal.expect("ready-")
        terminal.type("\x04")
        assert terminal.ended() == 0


def test_a_terminal_is_restored_when_we_are_ended(provider: IncusProvider, container: str) -> None:
    with Terminal(container, "/bin/sh", "-c", "echo begun; sleep 71005; true") as terminal:
        terminal.expect("begun")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 130
        wait_until(lambda: not is_running(provider, container, "sleep 71005"))


def test_a_terminal_is_restored_when_the_container_goes_away(provider: IncusProvider) -> None:
    lab = f"at{secrets.token_hex(4)}"
    one = Instance(f"{lab}-gone", "box", lab, "debian/12")
    provider.create(one)
    try:
        provider.start(one)
        provider.wait_until_ready(one)
        with Terminal(one.name, "/bin/sh", "-c", "echo begun; sleep 71006; true") as terminal:
            terminal.expect("begun")
            provider.stop(one, timeout_s=0.0)
            assert terminal.ended() != 0
    finally:
        provider.delete(one)
