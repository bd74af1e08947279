"""The model is there once, complete and read-only; what is not as it was asked for is refused."""

from __future__ import annotations

import json
import os
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
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_model_is_as_it_was_stored_and_nobody_can_change_it(host: Host) -> None:
    assert host.file(f"{MODEL}/tiny.gguf").sha256sum == SHA256
    assert host.file(f"{MODEL}/MANIFEST.sha256").content_string == f"{SHA256}  tiny.gguf\n"
    assert "Read-only file system" in host.run(f"touch {MODEL}/new").stderr


def test_another_model_than_the_one_asked_for_is_refused() -> None:
    answer = run_part("main", sha256="0" * 64)
    assert answer.returncode != 0
    assert f'expected the manifest "{"0" * 64}' in answer.stdout.replace("\\", "")


def test_a_model_that_can_be_written_is_refused(host: Host) -> None:
    host.check_output(f"rm -rf {COPY} && cp -r {MODEL} {COPY}")
    answer = run_part("main", path=COPY)
    assert answer.returncode != 0
    assert "read-only mount" in answer.stdout
    assert run_part("verify", path=COPY).returncode == 0


def test_one_changed_byte_is_found(host: Host) -> None:
    host.check_output(f"rm -rf {COPY} && cp -r {MODEL} {COPY}")
    host.check_output(f"printf x | dd of={COPY}/tiny.gguf bs=1 seek=4000 conv=notrunc status=none")
    answer = run_part("verify", path=COPY)
    assert answer.returncode != 0
    assert "tiny.gguf: FAILED" in answer.stdout


def test_a_file_with_another_hash_is_not_stored(host: Host, tmp_path: Path) -> None:
    source = tmp_path / "model.gguf"
    source.write_bytes(b"GGUF but not the one")
    host.check_output(f"rm -rf {COPY}")
    answer = run_part("build", path=COPY, source=str(source))
    assert answer.returncode != 0
    assert "Unable to store the model" in answer.stdout
    assert not host.file(f"{COPY}/MANIFEST.sha256").exists
