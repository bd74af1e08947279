"""A stack is installed by hash and proved before it is used; whatever goes wrong, the one before goes on to be used."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

SCENARIO = Path(__file__).resolve().parents[1]
ROOT = "/opt/torch_stack"
SMALL = "/srv/small"
ADDRESS = "http://127.0.0.1:8099"
LOADS = "import torch, flash_attn_2_cuda, flash_attn; print(flash_attn.__version__)"


def run_role(which: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the role with that flash-attn, and with other options than the scenario's."""
    part = {"part": options.pop("part")} if "part" in options else {}
    named = {f"torch_stack_{option}": value for option, value in options.items()}
    inventory = os.environ["MOLECULE_INVENTORY_FILE"]
    variables = json.dumps({"which": which, **part, **named})
    command = ["ansible-playbook", "--inventory", inventory, str(SCENARIO / "part.yml"), "--extra-vars", variables]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def passes(which: str, **options: Any) -> None:
    """The role ends well."""
    answer = run_role(which, **options)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def refuses(which: str, *words: str, **options: Any) -> str:
    """The role fails and says all these words; what it said."""
    answer = run_role(which, **options)
    shown = answer.stdout + answer.stderr
    assert answer.returncode != 0, shown
    assert [word for word in words if word not in shown] == [], shown
    return shown


def used(host: Host, root: str = ROOT) -> str:
    """The version of the flash-attn that an account without rights loads."""
    return str(host.check_output(f"setpriv --reuid=nobody --clear-groups {root}/current/bin/python -c '{LOADS}'"))


def venvs(host: Host, root: str = ROOT) -> set[str]:
    """The folders in the stack's root."""
    return set(host.check_output(f"ls {root}").split())


@pytest.fixture
def first(host: Host) -> Iterator[set[str]]:
    """The stack as it was converged is used, and nothing else is there; so it is afterwards."""
    host.check_output(
        f"cd {ROOT} && find . -mindepth 1 -maxdepth 1 -type d ! -name $(readlink current) -exec rm -rf {{}} +"
    )
    passes("good")
    yield venvs(host)
    passes("good")
    host.check_output(
        f"cd {ROOT} && find . -mindepth 1 -maxdepth 1 -type d ! -name $(readlink current) -exec rm -rf {{}} +"
    )


@pytest.fixture
def server(host: Host) -> Iterator[None]:
    """The wheels over a network; each first answer is cut."""
    host.check_output("rm -f /srv/asked && systemd-run --unit=wheels --quiet /usr/bin/python3 /srv/serve.py")
    host.check_output(
        "timeout 20 sh -c 'until curl -s -o /dev/null 127.0.0.1:8099 || ss -ltn | grep -q 8099; do sleep 0.1; done'"
    )
    yield
    host.check_output("systemctl stop wheels")


def test_what_was_locked_is_used_and_nothing_of_its_making_is_left(host: Host) -> None:
    assert used(host) == "2.8.3"
    there = venvs(host)
    assert len(there) == 2
    assert "current" in there
    lock = host.file(f"{ROOT}/current/pylock.dummy.toml").content_string
    assert 'name = "flash-attn"' in lock
    assert "hashes = { sha256 = " in lock


def test_what_does_not_load_is_refused_and_the_one_before_is_used(host: Host, first: set[str]) -> None:
    shown = refuses("broken", "Unable to use the stack dummy", "flash-attn", "removed", "is used still")
    assert "Unable to make the stack dummy" in shown
    assert used(host) == "2.8.3"
    assert venvs(host) - {"wheels"} == first


def test_what_was_changed_by_hand_is_found(host: Host, first: set[str]) -> None:
    assert first
    module = f"{ROOT}/current/lib/python3.11/site-packages/flash_attn_2_cuda.so"
    host.check_output(f"mv {module} {module}.aside")
    refuses("good", "flash_attn_2_cuda", part="verify")
    host.check_output(f"mv {module}.aside {module}")
    passes("good", part="verify")


def test_the_one_before_the_last_is_removed(host: Host, first: set[str]) -> None:
    passes("newer")
    assert used(host) == "2.8.4"
    assert first < venvs(host)
    second = venvs(host) - first
    passes("newest")
    assert used(host) == "2.8.6"
    assert second < venvs(host)
    assert not (first - {"current"}) & venvs(host)


@pytest.mark.usefixtures("server")
def test_a_cut_download_goes_on_where_it_ended(host: Host, first: set[str]) -> None:
    assert first
    passes("newer", mirror=ADDRESS, environment={"LANG": "C"})
    asked = [line.split() for line in host.file("/srv/asked").content_string.splitlines() if "flash" in line]
    assert [int(start) > 0 for _, start in asked] == [False, True]
    assert used(host) == "2.8.4"


@pytest.mark.usefixtures("server")
def test_another_file_is_kept_aside_and_nothing_is_installed(host: Host, first: set[str]) -> None:
    refuses("of_another_hash", "should be 0000000000", "they are kept as", mirror=ADDRESS)
    assert (
        host.file(f"{ROOT}/wheels/refused/flash_attn-2.8.4+cu128torch2.9-cp311-cp311-linux_x86_64.whl").size > 3_000_000
    )
    refuses("of_another_hash", "Hash mismatch", "is used still")  # from a folder it is uv that looks
    assert used(host) == "2.8.3"
    assert venvs(host) - {"wheels"} == first - {"wheels"}


def test_without_the_index_the_old_one_is_used(host: Host, first: set[str]) -> None:
    refuses("newer", "Unable to download http://127.0.0.1/", mirror="http://127.0.0.1:8098")
    assert used(host) == "2.8.3"
    assert venvs(host) - {"wheels"} == first - {"wheels"}


def test_a_disk_that_fills_up_leaves_the_old_one(host: Host) -> None:
    host.check_output(f"mkdir -p {SMALL} && mount -t tmpfs -o size=140m,mode=755 none {SMALL}")
    try:
        passes("good", root=SMALL)
        before = venvs(host, SMALL)
        room = int(host.check_output(f"df --output=avail -k {SMALL} | tail -1"))
        host.check_output(f"head -c {room - 1024}K /dev/zero > {SMALL}/full")
        refuses("newer", "is used still", root=SMALL)
        assert used(host, SMALL) == "2.8.3"
        assert venvs(host, SMALL) == before | {"full"}
    finally:
        host.check_output(f"umount {SMALL}")


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("of_another_python", "with the Python of this image (cp311)"),
        ("unverified", "it has to be a wheel with a sha256"),
    ],
)
def test_what_cannot_be_is_refused_before_anything(host: Host, first: set[str], which: str, words: str) -> None:
    refuses(which, words)
    assert venvs(host) == first


def test_a_name_that_would_be_a_path_is_refused(host: Host, first: set[str]) -> None:
    refuses("good", "Unable to make the stack ../x", name="../x")
    assert venvs(host) == first
