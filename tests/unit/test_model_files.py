"""A model's hash is taken once, and again when the file was touched; where it comes from is not part of what it is."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from provisioner.catalog import load_catalog
from provisioner.lockfile import Pin
from provisioner.model_files import find_models
from provisioner.resolve import desired_fleet
from provisioner.spec import Model, parse_spec


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    return file


def sha256(file: Path) -> str:
    return find_models({"m": Model(source=f"file:{file}")}, {}).files["m"].sha256


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


def test_the_same_model_from_another_place_is_the_same_volume() -> None:
    pin = Pin("hf:acme/Small-GGUF:Q4_K_M", "5f" * 20, "sub/Small-Q4_K_M.gguf", "a" * 64, 5)
    models = [
        Model(source=pin.source),
        Model(source="https://host/x/Small-Q4_K_M.gguf?download=true", sha256=pin.sha256),
        Model(source="file:/srv/Small-Q4_K_M.gguf", sha256=pin.sha256),
    ]
    volumes = set()
    for model in models:
        written = {"m": model.model_dump(exclude_none=True)}
        containers = {"llama": {"services": {"llama_cpp": {"model": "m"}}}}
        spec = parse_spec({"name": "lab", "models": written, "containers": containers}, load_catalog()).spec
        assert spec is not None
        fleet = desired_fleet(spec, load_catalog(), find_models(spec.models, {"m": pin}).files)
        volumes |= {one.volume for one in fleet.artifacts if one.role == "model_store"}
    assert len(volumes) == 1
