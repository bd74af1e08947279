"""The model is there once, complete and read-only; what is not as it was asked for is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from testinfra.host import Host

MODEL = "/srv/models/tiny"
SHA256 = "6113584e2b24f1c91e7fab0b3be8f7f24be2fdf8833a2cc96e2910a2d1e53edb"
COPY = "/srv/models/copy"
PLAY = Path(__file__).resolve().parents[1] / "part.yml"


def run_part(part: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run one part of the role in the scenario's container; a variable may be left out to get the right one."""
    given = {"path": MODEL, "filename": "tiny.gguf", "sha256": SHA256} | variables
    named = {f"model_store_{name}": value for name, value in given.items()} | {"part": part}
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(PLAY)]
    command += ["--extra-vars", json.dumps(named)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def assert_refused(answer: subprocess.CompletedProcess[str], words: str) -> None:
    """The run failed, for the reason that ``words`` name."""
    shown = answer.stdout + answer.stderr
    assert answer.returncode != 0, shown
    assert re.search(words, shown), shown


def test_the_model_is_as_it_was_stored_and_nobody_can_change_it(host: Host) -> None:
    assert host.file(f"{MODEL}/tiny.gguf").sha256sum == SHA256
    assert host.file(f"{MODEL}/MANIFEST.sha256").content_string == f"{SHA256}  tiny.gguf\n"
    assert "Read-only file system" in host.run(f"touch {MODEL}/new").stderr


def test_another_model_than_the_one_asked_for_is_refused() -> None:
    assert_refused(run_part("main", sha256="0" * 64), rf"expected the manifest .*{'0' * 64}")


def test_a_model_that_can_be_written_is_refused(host: Host) -> None:
    host.check_output(f"rm -rf {COPY} && cp -r {MODEL} {COPY}")
    assert_refused(run_part("main", path=COPY), "and a read-only mount")
    assert run_part("verify", path=COPY).returncode == 0


def test_one_changed_byte_is_found(host: Host) -> None:
    host.check_output(f"rm -rf {COPY} && cp -r {MODEL} {COPY}")
    host.check_output(f"printf '\\377' | dd of={COPY}/tiny.gguf bs=1 seek=4000 conv=notrunc status=none")
    assert host.file(f"{COPY}/tiny.gguf").sha256sum != SHA256
    assert_refused(run_part("verify", path=COPY), "tiny.gguf: FAILED")


def test_a_file_with_another_hash_is_not_stored(host: Host, tmp_path: Path) -> None:
    source = tmp_path / "model.gguf"
    source.write_bytes(b"GGUF but not the one")
    host.check_output(f"rm -rf {COPY}")
    assert_refused(run_part("build", path=COPY, source=str(source)), "Unable to store the model")
    assert not host.file(f"{COPY}/MANIFEST.sha256").exists
