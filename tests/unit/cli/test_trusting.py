"""``host prepare --trust``: what is refused before anything is asked, and how the host is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.cli.app import app
from provisioner.cli.trusting import label


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--address", "https://box:8443"), "it belongs to --trust"),
        (("--trust", "x", "--gpu"), "together with gpu"),
        (("--trust", "x", "--image", "debian/13", "--bridge", "b"), "together with bridge, images"),
        (("--trust", "x", "--address", "http://box:8443"), "would send the credentials in clear"),
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
