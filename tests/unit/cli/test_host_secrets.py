"""Verbs that touch hosts and use no other secret: they look up what logs in to a host, and only that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.case_files import read_cases
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.fixture import pve
from tests.unit.cli.conftest import provision

CASES = read_cases("cli/host_secrets")

__all__ = ["pve"]

CANARY = "canary-desk-1b"
FILE: str = CASES["file"]
COMMAND = 'secrets: {{ command: ["{program}", "{{name}}"] }}'
PROGRAM = f"""#!/bin/sh
echo "$1" >>asked
[ "$1" = pve_token ] || {{ echo {CANARY}; exit; }}
cat token
"""
VERBS = (
    *("down --yes", "destroy --yes --lab homelab", "snapshot", "snapshot --list", "rollback desk --yes"),
    *("clone desk copy", "exec desk -- true", "logs desk", "open desk", "bench --kind tts", "show --client openai"),
)
"""All that need a host, and none of its containers' secrets."""
APART = ("show", "show --expanded", "graph", "fit", "logs --run")
"""Verbs to which no host has to be known."""


@pytest.fixture
def token(pve: Double) -> str:
    """The secret of root's token at the double."""
    return pve.world.access.add_token("root@pam", "ci", privsep=False)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the lab's file may be written; nobody has given a secret yet."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "homelab.yml"


def write(file: Path, pve: Double, secrets: str = "") -> None:
    file.write_text(FILE.format(secrets=secrets, url=pve.url, ca=pve.ca), encoding="utf-8")


def with_command(file: Path, pve: Double, token: str) -> Path:
    """A file whose secrets come from a program that notes what it was asked for; where it does so."""
    (file.parent / "token").write_text(token, encoding="ascii")
    program = file.parent / "tell"
    program.write_text(PROGRAM, encoding="ascii")
    program.chmod(0o755)
    write(file, pve, COMMAND.format(program=program))
    return file.parent / "asked"


@pytest.mark.parametrize("line", VERBS)
def test_the_command_is_run_for_the_host_s_secret_alone(
    line: str, pve: Double, token: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = with_command(file, pve, token)
    answer = provision(monkeypatch, *line.split())
    assert asked.read_text(encoding="ascii").splitlines() == ["pve_token"]
    assert "foresee" not in answer.err
    assert answer.code in (0, 4), answer.err  # there is no container yet
    assert token not in answer.out + answer.err
    assert CANARY not in answer.out + answer.err


@pytest.mark.parametrize("line", VERBS)
def test_a_host_s_secret_that_nobody_has_is_asked_for(
    line: str, pve: Double, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, pve)
    answer = provision(monkeypatch, *line.split())
    assert answer.code == 64
    assert 'hosts.pve1.token.secret: secret "pve_token" has no value; set PROVISION_SECRET_PVE_TOKEN' in answer.err
    assert "desk_password" not in answer.err


def test_containers_secrets_may_be_missing(
    pve: Double, token: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, pve)
    monkeypatch.setenv("PROVISION_SECRET_PVE_TOKEN", token)
    answer = provision(monkeypatch, "snapshot", "--list")
    assert answer.code == 0, answer.err
    assert token not in answer.out + answer.err


@pytest.mark.parametrize("line", APART)
def test_a_verb_that_touches_no_host_asks_for_none(
    line: str, pve: Double, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = with_command(file, pve, "")
    answer = provision(monkeypatch, *line.split())
    assert answer.code == 0 or line == "logs --run", answer.err  # nothing was run yet
    assert "has no value" not in answer.err
    assert not asked.exists()
