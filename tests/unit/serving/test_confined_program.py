"""A program that is not trusted reads files, computes and answers; whatever else it tries fails."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.serving import confined_program
from provisioner.serving.confined_program import MACHINES, NOT_CONFINED, NOT_RUN, filter_for
from tests.processes import completed

TRIES = """
import ctypes, fcntl, os, resource, signal, socket, sys, threading
from provisioner.serving import confined_program
place, library = sys.argv[1], ctypes.CDLL(None, use_errno=True)
tries = {
    "make a file": lambda: os.open(place + "/new", os.O_WRONLY | os.O_CREAT),
    "write a file": lambda: os.open(place + "/there", os.O_WRONLY),
    "empty a file": lambda: os.open(place + "/there", os.O_RDONLY | os.O_TRUNC),
    "truncate": lambda: os.truncate(place + "/there", 0),
    "delete": lambda: os.unlink(place + "/there"),
    "rename": lambda: os.rename(place + "/there", place + "/other"),
    "link": lambda: os.link(place + "/there", place + "/other"),
    "symlink": lambda: os.symlink("a", place + "/other"),
    "folder": lambda: os.mkdir(place + "/folder"),
    "mode": lambda: os.chmod(place + "/there", 0o777),
    "owner": lambda: os.chown(place + "/there", 1, 1),
    "times": lambda: os.utime(place + "/there", (1, 1)),
    "attribute": lambda: os.setxattr(place + "/there", "user.a", b"b"),
    "socket": lambda: socket.socket(),
    "local socket": lambda: socket.socket(socket.AF_UNIX),
    "pair": lambda: socket.socketpair(),
    "process": lambda: os.fork(),
    "signal": lambda: os.kill(os.getppid(), 0),
    "limits of others": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0)),
    "limits": lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19),
    "user": lambda: os.setuid(1),
    "working directory": lambda: os.chdir(place),
    "memory of others": lambda: os.memfd_create("a"),
    "another filter": lambda: confined_program._confine(confined_program.filter_for(os.uname().machine)),
    "socket by another number": lambda: library.syscall(0x40000000 + 41, 1, 1, 0) != -1 or os.stat("/none"),
    "signals by files": lambda: fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid()),
    "locks": lambda: fcntl.fcntl(0, fcntl.F_SETLK, bytes(32)),
}
confined_program._confine(confined_program.filter_for(os.uname().machine))
for name, attempt in tries.items():
    try:
        attempt()
    except (OSError, ValueError) as error:
        print(name, getattr(error, "errno", 1))
    else:
        print(name, "done")
there = []
thread = threading.Thread(target=lambda: there.append(os.pread(os.open(place + "/there", os.O_RDONLY), 9, 0)))
thread.start()
thread.join()
print("read", there)
"""


def confined(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return completed([sys.executable, "-I", confined_program.__file__, *command], timeout_s=60)


def test_it_can_read_compute_and_answer_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("content", encoding="utf-8")
    done = completed([sys.executable, "-c", TRIES, tmp_path], timeout_s=60)
    *tried, read = done.stdout.splitlines()
    assert read == "read [b'content']", done.stderr
    allowed = {line for line in tried if not line.endswith((" 1", " 2"))}
    assert not allowed
    assert len(tried) == TRIES.count("lambda: ") - 1
    assert [file.name for file in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there").read_text(encoding="utf-8") == "content"


def test_another_program_in_its_place_is_confined_as_well(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho said\nexec /bin/sh -c 'echo more; echo > {tmp_path}/new'\n", encoding="utf-8")
    program.chmod(0o700)
    done = confined(program)
    assert (done.stdout, done.returncode) == ("said\nmore\n", 2)
    assert not (tmp_path / "new").exists()


def test_what_cannot_be_run_is_told_apart_from_what_failed(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("no program", encoding="utf-8")
    assert confined(tmp_path / "none").returncode == NOT_RUN
    assert confined(tmp_path / "program").returncode == NOT_RUN
    assert confined("/bin/sh", "-c", "exit 3").returncode == 3


def test_where_the_kernel_does_not_filter_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["confined", "/bin/true"])
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    monkeypatch.setattr("resource.setrlimit", lambda _kind, _limits: None)
    monkeypatch.setattr(os, "execv", lambda *_words: pytest.fail("it was run"))
    with pytest.raises(SystemExit) as ended:
        confined_program.main()
    assert ended.value.code == NOT_CONFINED


@pytest.mark.parametrize("machine", MACHINES)
def test_each_jump_of_a_filter_ends_within_it_and_its_last_word_is_no(machine: str) -> None:
    steps = list(struct.iter_unpack("=HBBI", filter_for(machine)))
    for place, (code, then, otherwise, _value) in enumerate(steps):
        assert code in (0x20, 0x15, 0x35, 0x45, 0x06)
        assert place + 1 + max(then, otherwise) < len(steps) or code == 0x06
    assert steps[-1] == (0x06, 0, 0, 0x00050001)
