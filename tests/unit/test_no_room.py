"""A place where we write that is full or cannot be written: what, where and what to do, with the right exit code."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from provisioner.cli import faults
from provisioner.cli.faults import WAYS_OUT, fault_of
from provisioner.reconcile.journal import interrupted, recording
from provisioner.values.errors import ExitCode
from provisioner.values.events import ApplyStart, Diagnostic, Event

FULL = Path("/dev/full")


@pytest.mark.parametrize("number", sorted(WAYS_OUT), ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("begun", [False, True])
def test_each_refusal_says_what_where_and_what_to_do(number: int, *, begun: bool, tmp_path: Path) -> None:
    error = OSError(number, os.strerror(number), str(tmp_path / "a" / "b"))
    fault = fault_of(error, begun=begun)
    assert fault is not None
    assert fault.message == f"Unable to use {tmp_path}/a/b"
    assert fault.details == os.strerror(number)
    assert fault.resolution
    assert "{" not in fault.resolution
    assert fault.exit_code == (ExitCode.FAILED if begun else ExitCode.REFUSED)


@pytest.mark.parametrize("error", [ConnectionResetError(errno.ECONNRESET, "x"), ValueError("x"), OSError("no number")])
def test_what_is_no_refusal_of_the_system_stays_unforeseen(error: Exception) -> None:
    assert fault_of(error, begun=False) is None


def test_what_is_full_is_found_where_the_error_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "LITTLE_BYTES", 2**70)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(OSError, match="No space") as caught, FULL.open("wb", buffering=0) as file:
        file.write(b"x")
    fault = fault_of(caught.value, begun=False)
    assert fault is not None
    assert str(tmp_path / "cache" / "provisioner") in fault.message
    assert "df -h" in fault.resolution
    monkeypatch.setattr(faults, "LITTLE_BYTES", -1)
    fault = fault_of(caught.value, begun=False)
    assert fault is not None
    assert fault.details == "No space left on device"


def test_work_that_has_begun_goes_on_without_a_journal(tmp_path: Path) -> None:
    told: list[Event] = []
    with recording(tmp_path, "up", told.append) as record:
        (journal,) = (tmp_path / "journal").iterdir()
        full = os.open(FULL, os.O_WRONLY)
        for one in list(Path("/proc/self/fd").iterdir()):
            if one.exists() and one.readlink() == journal:
                os.dup2(full, int(one.name))
        os.close(full)
        record(ApplyStart("a", "create"))
        record(ApplyStart("b", "create"))
    assert [one for one in told if isinstance(one, ApplyStart)] == [
        ApplyStart("a", "create"),
        ApplyStart("b", "create"),
    ]
    (warning,) = [one for one in told if isinstance(one, Diagnostic)]
    assert warning.message == f"Unable to write what is done into {journal}"
    assert "No space left" in warning.details
    assert interrupted(tmp_path).startswith("up of ")
