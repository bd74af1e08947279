"""A key that is replaced is kept beside the new one, and told by checksums alone."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[3] / "src/provisioner/inside/former_key.py"
OLD, NEW = "canary-of-before", "canary-of-now"
GRACE_S = 900
BEGAN = 1_000_000_000


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The file of the server's key, and that of the former one, which is not there."""
    (tmp_path / "key").write_text(f"{OLD}\n")
    (tmp_path / "key").chmod(0o640)
    return tmp_path / "key", tmp_path / "former"


def told(files: tuple[Path, Path], key: str | None) -> list[dict[str, Any]]:
    """What it says when the server gets this key, or is only looked at."""
    words = [] if key is not None else ["--look"]
    running = files[0].with_name("running")
    command = [sys.executable, "-IS", str(PROGRAM), *words, str(running), *map(str, files), str(GRACE_S)]
    done = subprocess.run(command, input=f"{key}\n", capture_output=True, text=True, check=True, timeout=60)
    assert OLD not in done.stdout
    assert NEW not in done.stdout
    return list(json.loads(done.stdout))


def as_told(key: str, began: float) -> list[dict[str, Any]]:
    """What is to be said of a former key."""
    checksums = [hashlib.sha256(text.encode()).hexdigest() for text in (key, f"Bearer {key}")]
    return [{"sha256": checksums, "until": int(began) + GRACE_S}]


@pytest.mark.parametrize(("mode", "kept"), [(0o600, 0o600), (0o640, 0o640), (0o666, 0o640)])
def test_a_key_that_is_replaced_is_kept_for_those_who_may_read_it(
    files: tuple[Path, Path], mode: int, kept: int
) -> None:
    files[0].chmod(mode)
    said = told(files, NEW)
    assert files[1].read_text() == f"{OLD}\n"
    assert files[1].stat().st_mode & 0o777 == kept
    assert files[1].stat().st_uid == files[0].stat().st_uid
    assert said == as_told(OLD, files[1].stat().st_mtime)
    assert sorted(file.name for file in files[0].parent.iterdir()) == ["former", "key"]


def test_what_the_server_runs_with_counts_and_not_what_somebody_wrote_into_its_file(files: tuple[Path, Path]) -> None:
    files[0].with_name("running").write_text(f"{NEW}\n{OLD}\n")
    files[0].write_text("somebody's own\n")
    assert told(files, NEW) == []
    assert not files[1].exists()
    files[0].with_name("running").write_text(f"{OLD}\nbefore-that\n")
    files[0].write_text(f"{NEW}\n")  # an earlier run ended before it restarted the server
    assert told(files, NEW) == as_told(OLD, files[1].stat().st_mtime)


def test_its_time_goes_on_while_the_new_one_stays(files: tuple[Path, Path]) -> None:
    told(files, NEW)
    files[0].write_text(f"{NEW}\n")
    os.utime(files[1], (BEGAN, BEGAN))
    assert told(files, NEW) == as_told(OLD, BEGAN)
    assert told(files, None) == as_told(OLD, BEGAN)


def test_its_time_begins_anew_where_a_run_ended_before_the_new_one_was_written(files: tuple[Path, Path]) -> None:
    told(files, NEW)
    os.utime(files[1], (BEGAN, BEGAN))
    assert told(files, NEW)[0]["until"] > BEGAN + GRACE_S


@pytest.mark.parametrize("key", [OLD, None])
def test_nothing_is_kept_of_a_key_that_stays(files: tuple[Path, Path], key: str | None) -> None:
    assert told(files, key) == []
    assert not files[1].exists()


def test_a_key_that_counts_again_does_not_end(files: tuple[Path, Path]) -> None:
    told(files, NEW)
    assert told(files, OLD) == [], "the change was taken back before the new key was written"
    assert told(files, None) == []


@pytest.mark.parametrize("before", ["", None])
def test_who_had_no_key_has_no_former_one(files: tuple[Path, Path], before: str | None) -> None:
    if before is None:
        files[0].unlink()
    else:
        files[0].write_text(f"{before}\n")
    assert told(files, NEW) == []
    assert not files[1].exists()


def test_a_key_of_tabbyapi_stands_behind_its_name(files: tuple[Path, Path]) -> None:
    files[0].write_text(f'# ours\nadmin_key: "another"\napi_key: "{OLD}"\n')
    assert told(files, OLD) == []
    assert told(files, NEW) == as_told(OLD, files[1].stat().st_mtime)
    assert files[1].read_text() == f"{OLD}\n"


@pytest.mark.parametrize("odd", ["api_key: 1\n", "api_key: [\n", "api_key: plain\n"])
def test_what_is_no_key_of_tabbyapi_is_not_kept(files: tuple[Path, Path], odd: str) -> None:
    files[0].write_text(odd)
    assert told(files, NEW) == []
    assert not files[1].exists()


def test_a_former_key_that_somebody_wrote_is_replaced(files: tuple[Path, Path]) -> None:
    files[1].write_bytes(b"\xff\x00{")
    assert told(files, NEW) == as_told(OLD, files[1].stat().st_mtime)
    assert files[1].read_text() == f"{OLD}\n"


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_one_that_others_may_read_or_that_is_another_s_is_removed(files: tuple[Path, Path], mode: int) -> None:
    files[1].write_text(f"{NEW}-by-hand\n")
    files[1].chmod(mode)
    if mode == 0o600:
        os.chown(files[1], 12345, 12345)
    assert len(told(files, None)) == 1, "who only looks removes nothing"
    assert told(files, OLD) == []
    assert not files[1].exists()


def test_without_a_key_every_request_is_taken(files: tuple[Path, Path]) -> None:
    assert told(files, "") == []
    assert not files[1].exists()
