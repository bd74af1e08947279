"""The words of the command line → how a node is reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.cluster.reaching import Reach, reach
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


@pytest.mark.parametrize(
    ("words", "text", "told"),
    [
        ("", TWO, "pve1, pve2"),
        ("pve9", TWO, "pve1, pve2"),
        ("box", ONE, "pve1"),
        ("10.0.0.1", ONE, "root@ADDRESS"),
        ("", "name: lab\ncontainers: {}\n", "no Proxmox host"),
    ],
)
def test_words_that_name_no_host_are_refused_with_those_that_there_are(
    words: str, text: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        reach(words, file(tmp_path, text))
    assert told in str(caught.value)


@pytest.mark.parametrize("words", ["", "pve1"])
def test_without_a_file_the_form_is_said(words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        reach(words, tmp_path / "no.yml")
    assert "root@ADDRESS" in caught.value.resolution


@pytest.mark.parametrize(
    "words", ["root@", "@host", "-oProxyCommand=x@host", "root@-oProxyCommand=x", "root@a b", "root@h:p"]
)
def test_words_that_ssh_would_misread_are_refused(words: str, tmp_path: Path) -> None:
    with pytest.raises((InputError, PreflightError)):
        reach(words, tmp_path / "no.yml")


def test_host_without_ssh_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(PreflightError) as caught:
        reach("pve2", file(tmp_path, TWO))
    assert "ssh: root@NODE" in caught.value.resolution


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
