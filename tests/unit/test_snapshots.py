"""Snapshots: what is the same on every machine is compared, secrets and renewal in CI are refused, leftovers fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.checkout import tracked_files
from tests.processes import completed
from tests.snapshots import normalised

ROOT = Path(__file__).resolve().parents[2]
CANARIES = ("canary", "sk-master")
"""Parts of the secrets that tests plant."""
FOLDER = "__snapshots__"
TESTS = """
import pytest

@pytest.mark.parametrize("text", {texts})
def test_text(snapshot, text):
    assert text == snapshot
"""


def run(folder: Path, texts: tuple[str, ...], *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a test of these texts with the project's own plugin and default kind of snapshot."""
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\n")
    (folder / "test_texts.py").write_text(TESTS.format(texts=list(texts)))
    command = [sys.executable, "-m", "pytest", "-p", "tests.snapshots", "-p", "no:cacheprovider"]
    command += ["--snapshot-default-extension=tests.snapshots.TextFile", *arguments]
    kept = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    return completed(command, cwd=folder, env=kept | variables, timeout_s=60)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("made 2026-11-21T08:00:00+00:00.", "made <time>."),
        ("in clusters/20261130T033039Z-ghost-node", "in clusters/<time>-ghost-node"),
        ("Up complete after 3.2 s.", "Up complete after <duration>."),
        ("took 1m 12.4s", "took <duration>"),
        ("0.5s       10.25s  1 MiB", "<duration>  <duration>  1 MiB"),
        ("GPU-1b4e28ba-2fa1-11d2-883f-0016d3cca427", "GPU-<id>"),
        ("sha256 " + "a1" * 32, "sha256 <digest>"),
        ("root@vm, pid 32268, provision up", "<user>@<machine>, pid <pid>, provision up"),
        ("/opt/litellm/d186b67ea0ad4743", "/opt/litellm/<digest>"),
        ("http://127.0.0.1:40123/v1, http://127.0.0.1:8080", "http://127.0.0.1:<port>/v1, http://127.0.0.1:8080"),
        (f"{ROOT}/roles/door", "<checkout>/roles/door"),
        ("/home/me/pytest-of-root/pytest-3/test_x0/homelab.yml:3", "<tmp>/homelab.yml:3"),
        ("FLAGS=-I/home/me/pytest-of-root/pytest-3/test_x0/out", "FLAGS=-I<tmp>/out"),
        ("\x1b[31mred\x1b[0m  \nnext", "red\nnext"),
        ("port 8080, 4 of 5, 12 GiB", "port 8080, 4 of 5, 12 GiB"),
    ],
)
def test_what_differs_between_runs_is_replaced_and_nothing_else(text: str, written: str) -> None:
    assert normalised(text) == written


def test_a_text_that_changed_fails_and_renewal_writes_it(tmp_path: Path) -> None:
    assert run(tmp_path, ("one",), "--snapshot-update").returncode == 0
    assert run(tmp_path, ("one",)).returncode == 0
    (file,) = (tmp_path / FOLDER).rglob("*.txt")
    file.write_text("two\n")
    assert run(tmp_path, ("one",)).returncode == 1
    assert run(tmp_path, ("one",), "--snapshot-update").returncode == 0
    assert file.read_text() == "one\n"


def test_an_exact_snapshot_has_the_times_of_the_text(exact_snapshot: SnapshotAssertion) -> None:
    text = "made 2026-11-21T08:00:00+00:00, took 3.2s"
    assert text == exact_snapshot


def test_a_text_without_a_snapshot_fails(tmp_path: Path) -> None:
    assert run(tmp_path, ("one",)).returncode == 1


def test_a_snapshot_that_no_test_uses_fails(tmp_path: Path) -> None:
    assert run(tmp_path, ("one", "two"), "--snapshot-update").returncode == 0
    assert run(tmp_path, ("one",)).returncode == 1


def test_ci_writes_no_snapshot(tmp_path: Path) -> None:
    answer = run(tmp_path, ("one",), "--snapshot-update", CI="true")
    assert answer.returncode == pytest.ExitCode.USAGE_ERROR
    assert not (tmp_path / FOLDER).exists()


def test_no_snapshot_shows_a_secret() -> None:
    snapshots = [ROOT / name for name in tracked_files(ROOT) if f"/{FOLDER}/" in name]
    shown = {str(file): word for file in snapshots for word in CANARIES if word in file.read_text(encoding="utf-8")}
    assert shown == {}
