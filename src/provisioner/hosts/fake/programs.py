"""The few programs that a container of the fake knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.hosts.fake.world import Container, Program
from provisioner.values.state import Execution


def _cat(_container: Container, _command: Sequence[str], stdin: bytes, _environment: Mapping[str, str]) -> Execution:
    return Execution(0, stdin, b"")


def _true(_container: Container, _command: Sequence[str], _stdin: bytes, _environment: Mapping[str, str]) -> Execution:
    return Execution(0, b"", b"")


def _false(_container: Container, _command: Sequence[str], _stdin: bytes, _env: Mapping[str, str]) -> Execution:
    return Execution(1, b"", b"")


def _printenv(_container: Container, command: Sequence[str], _stdin: bytes, env: Mapping[str, str]) -> Execution:
    return Execution(0, env[command[1]].encode() + b"\n", b"") if command[1] in env else Execution(1, b"", b"")


def _stat(container: Container, command: Sequence[str], _stdin: bytes, _environment: Mapping[str, str]) -> Execution:
    """``stat -c %a PATH``."""
    mode = container.modes.get(command[-1])
    return Execution(1, b"", b"No such file") if mode is None else Execution(0, f"{mode:o}\n".encode(), b"")


def _tail(container: Container, command: Sequence[str], _stdin: bytes, _environment: Mapping[str, str]) -> Execution:
    """``tail -c BYTES -- PATH``."""
    content = container.files.get(command[-1])
    if content is None:
        return Execution(1, b"", f"tail: cannot open '{command[-1]}' for reading: No such file or directory".encode())
    return Execution(0, content[-int(command[2]) :], b"")


PROGRAMS: Mapping[str, Program] = {
    "cat": _cat,
    "true": _true,
    "false": _false,
    "printenv": _printenv,
    "stat": _stat,
    "tail": _tail,
}
