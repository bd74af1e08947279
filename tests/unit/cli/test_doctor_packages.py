"""The verb ``doctor`` about packages: a warning is no finding, and what cannot be asked hides nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.doctor.hosts import SCRIPT
from provisioner.hosts.fake import Container
from provisioner.values.state import Execution
from tests.unit.cli.conftest import World

ANSWER = """\
lists 1814400
newer xrdp [0.9.21.1-1+deb12u1] (0.9.21.1-1+deb12u3 Debian-Security:12/stable-security [amd64])
newer tzdata [2024a-0+deb12u1] (2025b-0+deb12u2 Debian:12.12/oldstable [all])
"""


def shell(answer: Execution) -> object:
    """A shell that gives this answer to what is asked about packages."""

    def program(_c: Container, command: Sequence[str], _in: bytes, _environment: Mapping[str, str]) -> Execution:
        return answer if command[-1] == SCRIPT else Execution(0, b"", b"")

    return program


def test_doctor_warns_and_exits_with_0(up: World) -> None:
    up.host.programs["sh"] = shell(Execution(0, ANSWER.encode(), b""))  # type: ignore[assignment]
    assert up.command("doctor").ended(0) == up.snapshot


def test_one_that_cannot_be_asked_is_told_and_hides_nothing(up: World) -> None:
    up.host.programs["sh"] = shell(Execution(100, b"", b"E: broken"))  # type: ignore[assignment]
    answer = up.done("doctor", "--json")
    assert [one["details"] for one in answer.of("diagnostic")] == ["E: broken", "E: broken"]
