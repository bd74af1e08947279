"""``host prepare --trust``: what is refused before anything is asked, and how the host is called."""

from __future__ import annotations

import json
from base64 import b64encode
from http.client import RemoteDisconnected
from pathlib import Path

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from provisioner.cli.app import app
from provisioner.cli.host import label
from provisioner.hosts.incus import trust
from provisioner.hosts.incus.api import Endpoint, WireError
from tests.raising import raising
from tests.snapshots import case_name

CANARY = "canary-trust-77"
TOKEN = b64encode(json.dumps({"fingerprint": "ab", "addresses": ["box:8443"], "secret": CANARY}).encode()).decode()


@pytest.mark.parametrize(
    "line",
    [
        *("--address https://box:8443", "--trust x --gpu", "--trust x --image debian/13 --bridge b", "--trust x"),
        *("--trust x --address http://box:8443", "--trust x --address https://box:99999"),
    ],
    ids=case_name,
)
def test_what_cannot_be_meant_is_refused(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["host", "prepare", *line.split()])
    assert result.exit_code == 64
    assert result.stderr == snapshot
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "called"), [("box", "box"), ("box.lan", "box-lan"), ("7of9", "of9"), ("42", "box"), ("-a_b-", "a-b")]
)
def test_a_server_s_name_becomes_one_of_the_file(name: str, called: str) -> None:
    assert label(name) == called


def enrolled(monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """What is said on stderr, where it is refused."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    result = CliRunner().invoke(app, ["host", "prepare", "--trust", TOKEN])
    assert result.exit_code == 4, result.stderr
    assert [one for one in (CANARY, TOKEN) if one in result.stdout + result.stderr] == []
    return result.stderr


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(trust, "_reached", lambda *_: Endpoint("https://box:8443", fingerprint="ab"))
    (tmp_path / "provisioner").touch()
    assert enrolled(monkeypatch, tmp_path) == snapshot


@pytest.mark.parametrize(
    "error",
    [ConnectionResetError(104, "Connection reset"), RemoteDisconnected("it hung up"), WireError(0, "broke off")],
    ids=lambda error: type(error).__name__,
)
def test_a_line_that_breaks_is_no_surprise(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(trust, "enrol", raising(error))
    assert enrolled(monkeypatch, tmp_path) == snapshot
