"""A model's hash is taken once, and again when the file was touched."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from provisioner.model_files import local_models
from provisioner.spec import Model


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    return file


def sha256(file: Path) -> str:
    return local_models({"m": Model(source=f"file:{file}")})["m"].sha256


def test_an_untouched_file_is_read_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sha256(model) == hashlib.sha256(b"one").hexdigest()
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("it was read again"))
    assert sha256(model) == hashlib.sha256(b"one").hexdigest()


def test_a_file_that_was_written_is_read_again_whatever_its_time_says(model: Path) -> None:
    times = model.stat()
    sha256(model)
    model.write_bytes(b"two")
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert sha256(model) == hashlib.sha256(b"two").hexdigest()
