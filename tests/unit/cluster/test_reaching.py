"""The words of the command line → how a node is reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.cluster.reaching import Reach, reach
from provisioner.report.messages import error_text
from provisioner.values.errors import InputError, PreflightError

ONE = """\
name: lab
hosts:
  box: { incus: local }
  pve1: { proxmox: "https://10.0.0.1:8006", user: root@pam, password: !secret pw, ssh: "root@10.0.0.1:2222" }
containers: {}
"""
TWO = ONE.replace(
    "containers", '  pve2: { proxmox: "https://10.0.0.2:8006", user: root@pam, password: !secret pw }\ncontainers'
)


def file(folder: Path, text: str) -> Path:
    path = folder / "homelab.yml"
    path.write_text(text, encoding="utf-8")
    return path


def test_words_with_a_user_need_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SSH_CONFIG", "/x/config")
    assert reach("root@10.0.0.9:22", tmp_path / "no.yml") == Reach(
        "root@10.0.0.9:22", "root@10.0.0.9:22", Path("/x/config")
    )


def test_only_proxmox_host_of_the_file_needs_no_words_and_no_secrets(tmp_path: Path) -> None:
    assert reach("", file(tmp_path, ONE)).ssh == "root@10.0.0.1:2222"
    assert reach("pve1", file(tmp_path, TWO)).name == "pve1"


NOBODY: dict[str, tuple[str, str | None]] = {
    "none of two": ("", TWO),
    "another name": ("pve9", TWO),
    "a host of another kind": ("box", ONE),
    "an address": ("10.0.0.1", ONE),
    "no host": ("", "name: lab\ncontainers: {}\n"),
    "no file": ("", None),
    "a name without a file": ("pve1", None),
    "a host without ssh": ("pve2", TWO),
}


@pytest.mark.parametrize(("words", "text"), NOBODY.values(), ids=NOBODY)
def test_words_that_name_no_host_are_refused_with_those_that_there_are(
    words: str, text: str | None, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises((InputError, PreflightError)) as caught:
        reach(words, file(tmp_path, text) if text else tmp_path / "no.yml")
    assert error_text(caught.value) == snapshot


@pytest.mark.parametrize(
    "words", ["root@", "@host", "-oProxyCommand=x@host", "root@-oProxyCommand=x", "root@a b", "root@h:p"]
)
def test_words_that_ssh_would_misread_are_refused(words: str, tmp_path: Path) -> None:
    with pytest.raises((InputError, PreflightError)):
        reach(words, tmp_path / "no.yml")


@pytest.mark.parametrize(
    ("asked", "address", "expected"),
    [
        ("root@pve1", "10.0.0.2", "root@10.0.0.2"),
        ("root@10.0.0.1:2222", "10.0.0.2", "root@10.0.0.2:2222"),
        ("root@10.0.0.1:2222", "fd00::2", "root@[fd00::2]:2222"),
        ("pve1", "10.0.0.2", "10.0.0.2"),
    ],
)
def test_other_nodes_are_reached_with_the_same_user_and_port(asked: str, address: str, expected: str) -> None:
    assert Reach("x", asked).at(address).ssh == expected
