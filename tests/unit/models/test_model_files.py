"""A model's hash is taken once, and again when the file was touched; where it comes from is not part of what it is."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import desired_fleet, resolve
from provisioner.lab.opening import model_files
from provisioner.lab.opening.model_files import find_models, hashed, missing_files
from provisioner.labfile.pins import Pin
from provisioner.labfile.spec import Model
from provisioner.models import hashes
from provisioner.models.sources import ModelPart, part_count, part_names
from provisioner.values.errors import InputError
from provisioner.values.events import ApplyComplete, ApplyProgress, Event
from provisioner.values.state import Artifact
from tests.lab_files import hashed_models, spec_of


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    return file


def sha256(file: Path) -> str:
    found = find_models({"m": Model(source=f"file:{file}")}, {}).files["m"]
    assert found.sha256 == "", "nobody needs it yet"
    return hashed(found, print).sha256


def test_an_untouched_file_is_read_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sha256(model) == hashlib.sha256(b"one").hexdigest()
    monkeypatch.setattr(hashes, "open_file", lambda *_: pytest.fail("it was read again"))
    assert sha256(model) == hashlib.sha256(b"one").hexdigest()


def test_a_file_that_was_written_is_read_again_whatever_its_time_says(model: Path) -> None:
    times = model.stat()
    sha256(model)
    model.write_bytes(b"two")
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert sha256(model) == hashlib.sha256(b"two").hexdigest()


def test_a_file_that_changes_while_it_is_read_has_no_hash(model: Path) -> None:
    with pytest.raises(InputError, match=r"model\.gguf: it was changed while it was read"):
        hashes.sha256_of(model, lambda _count: os.truncate(model, 2))
    assert sha256(model) == hashlib.sha256(b"on").hexdigest()


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
        spec = spec_of({"name": "lab", "models": written, "containers": containers})
        fleet = desired_fleet(resolve(spec, load_catalog()), find_models(spec.models, {"m": pin}).files)
        volumes |= {one.volume for one in fleet.artifacts if one.role == "model_store"}
    assert len(volumes) == 1


def parts_in(folder: Path, count: int = 3) -> list[Path]:
    files = [folder / f"m-Q8_0-0000{number}-of-0000{count}.gguf" for number in range(1, count + 1)]
    for file in files:
        file.write_bytes(file.name.encode())
    return files


def test_how_far_the_reading_of_a_large_file_is_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "PIECE", 1)
    monkeypatch.setattr(model_files, "EACH_S", 0.0)
    told: list[Event] = []
    hashed(find_models({"m": Model(source=f"file:{model}")}, {}).files["m"], told.append)
    *going, done = told
    reading = [(one.target, one.message, one.goes_on) for one in going if isinstance(one, ApplyProgress)]
    words = "reading all of it for its sha256:"
    name = model.name
    assert reading == [(name, f"{words} 33 %", False), (name, f"{words} 66 %", True), (name, f"{words} 100 %", True)]
    assert isinstance(done, ApplyComplete)


def artifact_of(model: Model, pins: dict[str, Pin]) -> Artifact:
    written = {"m": model.model_dump(exclude_none=True)}
    containers = {"llama": {"services": {"llama_cpp": {"model": "m"}}}}
    spec = spec_of({"name": "lab", "models": written, "containers": containers})
    fleet = desired_fleet(resolve(spec, load_catalog()), hashed_models(spec.models, pins))
    engine = fleet.instances[0].services[-1]
    stored = next(one for one in fleet.artifacts if one.role == "model_store")
    assert engine.variables["llama_cpp_model"] == f"{stored.mounted_at}/m-Q8_0-00001-of-00003.gguf"
    return stored


def test_a_model_of_several_files_is_one_volume_of_all_their_hashes(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    files = parts_in(model.parent)
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    here = artifact_of(Model(source=f"file:{files[0]}"), {})
    rest = here.variables["model_store_rest"]
    assert [(one["filename"], one["sha256"]) for one in rest] == [
        (file.name, digest) for file, digest in zip(files[1:], digests[1:], strict=True)
    ]
    parts = [ModelPart(f"q8/{file.name}", digest, 5) for file, digest in zip(files, digests, strict=True)]
    source = "hf:acme/Small-GGUF:Q8_0"
    pin = Pin(source, "5f" * 20, parts[0].file, digests[0], 5, tuple(parts[1:]))
    there = artifact_of(Model(source=source), {"m": pin})
    assert there.volume == here.volume
    assert there.variables["model_store_rest"][1] == {
        "source": f"http://127.0.0.1:9/acme/Small-GGUF/resolve/{pin.revision}/q8/{files[2].name}",
        "filename": files[2].name,
        "sha256": digests[2],
        "size": 5,
    }
    files[2].write_bytes(b"another")
    assert artifact_of(Model(source=f"file:{files[0]}"), {}).volume != here.volume


def test_the_first_file_is_named_and_all_must_be_there(tmp_path: Path) -> None:
    first, second, third = parts_in(tmp_path)
    second.unlink()
    problems = list(missing_files({"m": Model(source=f"file:{first}"), "n": Model(source=f"file:{third}")}))
    assert [one.message for one in problems] == [
        f"its model is in 3 files, and there is no {second.name} beside it",
        "this is not the first file of a model of several",
    ]
    assert first.name in problems[1].hint
    first.unlink()
    assert [one.message for one in missing_files({"m": Model(source=f"file:{first}")})] == [f"no file {first}"]


@pytest.mark.parametrize("name", ["x-00000-of-00000.gguf", "x-00004-of-00003.gguf", "x-00001-of-99999.gguf", "x.gguf"])
def test_a_name_that_says_nothing_is_one_file(name: str) -> None:
    assert (part_count(name), part_names(name)) == (1, [name])
