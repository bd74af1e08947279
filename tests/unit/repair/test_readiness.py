"""What ``ready.sh`` writes is understood: what is missing, how ssh ended, what sshd_config says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from provisioner.repair.readiness import FAILED, Readiness, fingerprints, missing_programs, root_login, ssh_refusal
from provisioner.values import paths

GOOD = "ssh: ok\nroot-login: #PermitRootLogin prohibit-password\nhost-key: 256 SHA256:abc root@pve1 (ED25519)\n"
BAD = "missing: rsync\nmissing: pvecm\nssh: No RSA key is known\nssh: Host key verification failed.\nroot-login: \n"


def test_a_node_that_is_ready() -> None:
    assert missing_programs(GOOD) == ()
    assert ssh_refusal(GOOD) == ""
    assert root_login(GOOD) == "#PermitRootLogin prohibit-password"
    assert fingerprints(GOOD) == ("256 SHA256:abc root@pve1 (ED25519)",)


def test_a_node_that_is_not() -> None:
    assert missing_programs(BAD) == ("rsync", "pvecm")
    assert ssh_refusal(BAD) == "No RSA key is known\nHost key verification failed."
    assert root_login(BAD) == ""


@pytest.mark.parametrize("text", ["", "missing: rsync\n", "xssh: ok\n", "ssh: ok, they said\n"])
def test_silence_is_no_consent(text: str) -> None:
    assert ssh_refusal(text) in (FAILED, "ok, they said")


@pytest.mark.parametrize(
    ("line", "keeps"),
    [
        ("PermitRootLogin yes", True),
        ("PermitRootLogin  yes ", True),
        ("PermitRootLogin prohibit-password", False),
        ("#PermitRootLogin yes", False),
        ("", False),
    ],
)
def test_pvecm_leaves_alone_only_what_it_wants(line: str, *, keeps: bool) -> None:
    assert Readiness(root_login=line).keeps_root_login is keeps


def test_the_script_says_what_is_missing_and_what_ssh_said(tmp_path: Path) -> None:
    for name in ("sh", "timeout", "grep", "head", "sed"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    (tmp_path / "ssh").write_text("#!/bin/sh\necho 'no way' >&2\nexit 255\n", encoding="ascii")
    (tmp_path / "ssh").chmod(0o755)
    script = (paths.data() / "cluster" / "ready.sh").read_text(encoding="utf-8").replace(":/usr/sbin:/sbin", "")
    call = ["/bin/sh", "-c", script, "ready", "10.0.0.1"]
    done = subprocess.run(call, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True, timeout=60)
    assert {"pvecm", "rsync", "flock", "ssh-copy-id"} <= set(missing_programs(done.stdout))
    assert "ssh" not in missing_programs(done.stdout)
    assert ssh_refusal(done.stdout) == "no way"
