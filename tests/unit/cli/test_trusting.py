"""``host prepare --trust``: what is refused before anything is asked, and how the host is called."""

from __future__ import annotations

import json
from base64 import b64encode
from http.client import RemoteDisconnected
from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.cli.app import app
from provisioner.cli.trusting import label
from provisioner.providers.incus import trust
from provisioner.providers.incus.endpoint import Endpoint
from provisioner.providers.incus.wire import WireError

CANARY = "canary-trust-77"
TOKEN = b64encode(json.dumps({"fingerprint": "ab", "addresses": ["box:8443"], "secret": CANARY}).encode()).decode()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--address", "https://box:8443"), "it belongs to --trust"),
        (("--trust", "x", "--gpu"), "together with gpu"),
        (("--trust", "x", "--image", "debian/13", "--bridge", "b"), "together with bridge, images"),
        (("--trust", "x", "--address", "http://box:8443"), "would send the credentials in clear"),
        (("--trust", "x", "--address", "https://box:99999"), "not an https address"),
        (("--trust", "x"), "that is none"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["host", "prepare", *arguments])
    assert result.exit_code == 64
    assert words in result.stderr
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


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_reached", lambda *_: Endpoint("https://box:8443", fingerprint="ab"))
    (tmp_path / "provisioner").touch()
    said = enrolled(monkeypatch, tmp_path)
    assert f"Unable to make the client certificate {tmp_path}/provisioner/client.crt" in said
    assert "File exists" in said
    assert f"See to {tmp_path}/provisioner: this user must be able to write there." in said


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(104, "Connection reset"),
        RemoteDisconnected("it hung up"),
        WireError(0, "broke off"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_line_that_breaks_is_no_surprise(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(trust, "enrol", broken)
    said = enrolled(monkeypatch, tmp_path)
    assert "Unable to be trusted by that Incus" in said
    assert str(error) in said
    assert "Run the same command again" in said
