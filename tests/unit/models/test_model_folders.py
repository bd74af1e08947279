"""Models that are folders, from the words of a lab's file to the volume and to what an engine is given."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from provisioner.catalog import Catalog, load_catalog
from provisioner.lab import desired_fleet, problems, resolve
from provisioner.lab.opening.model_files import find_models, missing_files, read_headers
from provisioner.lab.opening.remote_models import cached_headers
from provisioner.labfile.loader import Loaded, load
from provisioner.labfile.pins import Pin
from provisioner.labfile.spec import Model, Spec
from provisioner.models.folders import contradiction, format_by_name, header_of
from provisioner.models.sources import ModelPart
from provisioner.values.state import Artifact, Problem
from tests.case_files import read_cases
from tests.folder_files import CONFIG, folder_files, taken, write_catalog, write_folder
from tests.lab_files import hashed_models, spec_of

CASES = read_cases("model_folders")

SOURCE = "hf:acme/Small-exl3@4.00bpw"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """The tests' catalog with an engine that reads folders."""
    return load_catalog(write_catalog(tmp_path_factory.mktemp("catalog") / "roles"))


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_TOKEN", raising=False)


def opened(tmp_path: Path, catalog: Catalog, model: str, engine: str = "tabbyapi") -> Loaded:
    """A lab's file with one model and one engine that uses it."""
    file = tmp_path / "homelab.yml"
    file.write_text(f"""\
name: homelab
hosts: {{ box: {{ incus: local }} }}
models:
  m: {model}
containers:
  engine:
    services:
      {engine}: {{ model: m }}
""")

    def rules(spec: Spec) -> list[Problem]:
        return [*problems(resolve(spec, catalog)), *missing_files(spec.models)]

    return load(file, catalog, run_secret_command=False, rules=rules)


def refused(tmp_path: Path, catalog: Catalog, model: str, engine: str = "tabbyapi") -> list[str]:
    """What is said of such a file."""
    from provisioner.values.errors import InputError

    with pytest.raises(InputError) as caught:
        opened(tmp_path, catalog, model, engine)
    return caught.value.details.splitlines()


def test_an_engine_that_reads_the_format_is_given_the_folder(tmp_path: Path, catalog: Catalog) -> None:
    folder = write_folder(tmp_path / "small", folder_files())
    spec = opened(tmp_path, catalog, '{ source: "dir:small" }').spec
    fleet = desired_fleet(resolve(spec, catalog), find_models(spec.models, {}).files)
    artifact = fleet.artifacts[0]
    assert fleet.instances[0].services[-1].variables["tabbyapi_model"] == artifact.mounted_at
    variables = artifact.variables
    stored = [(variables["model_store_filename"], variables["model_store_source"])]
    stored += [(one["filename"], one["source"]) for one in variables["model_store_rest"]]
    assert stored == [(name, str(folder / name)) for name in taken(folder_files())]
    assert (artifact.path, artifact.resumable) == ("/srv/models/m", False)


@pytest.mark.parametrize(("model", "engine", "words"), CASES["a wrong pair is refused with its line"])
def test_a_wrong_pair_is_refused_with_its_line(
    tmp_path: Path, catalog: Catalog, model: str, engine: str, words: str
) -> None:
    write_folder(tmp_path / "small", folder_files())
    (said,) = refused(tmp_path, catalog, model, engine)
    assert re.search(rf"homelab\.yml:8:[0-9]+: containers\.engine\.services\.{engine}\.model: ", said)
    assert said.endswith(words)


@pytest.mark.parametrize(("model", "path", "words"), CASES["words that contradict each other are refused"])
def test_words_that_contradict_each_other_are_refused(
    tmp_path: Path, catalog: Catalog, model: str, path: str, words: str
) -> None:
    (tmp_path / "a.gguf").touch()
    line = re.compile(rf"homelab\.yml:4:[0-9]+: models\.m\.{path}: {re.escape(words)}")
    assert any(map(line.search, refused(tmp_path, catalog, f"{{ source: {model} }}")))


def test_a_gguf_may_say_that_it_is_one(catalog: Catalog) -> None:
    models = {"m": {"source": "builtin:tiny", "format": "gguf"}, "n": {"source": "hf:a/b@c", "format": "safetensors"}}
    spec = spec_of({"name": "lab", "models": models, "containers": {}}, catalog)
    assert problems(resolve(spec, catalog)) == []
    assert [one.format for one in spec.models.values()] == ["gguf", "safetensors"]


@pytest.mark.parametrize(("name", "form"), CASES["the name tells the format or nothing does"])
def test_the_name_tells_the_format_or_nothing_does(name: str, form: str | None) -> None:
    assert format_by_name(name) == form


@pytest.mark.parametrize("source", CASES["a folder with the sign of a gguf is refused with the right one"])
def test_a_folder_with_the_sign_of_a_gguf_is_refused_with_the_right_one(source: str) -> None:
    with pytest.raises(ValidationError, match="names a GGUF, and this is a folder of weights") as caught:
        Model(source=source)
    written = "@".join(source.rsplit(":", 1))
    assert caught.value.errors()[0]["ctx"]["hint"] == f'did you mean "@"? Write "{written}"'


@pytest.mark.parametrize("source", CASES["what may be a gguf or is named by its revision is taken"])
def test_what_may_be_a_gguf_or_is_named_by_its_revision_is_taken(source: str) -> None:
    assert Model(source=source).source == source


@pytest.mark.parametrize(
    ("method", "name", "form"),
    [("exl3", "x", "exl3"), ("GPTQ", "x-awq", "gptq"), (None, "x-exl3", "safetensors"), ("fbgemm_fp8", "x-FP8", "fp8")],
)
def test_a_folder_here_is_what_its_configuration_says(
    tmp_path: Path, catalog: Catalog, method: str | None, name: str, form: str
) -> None:
    folder = write_folder(tmp_path / name, folder_files(method))
    models = {"m": {"source": f"dir:{folder}"}}
    (tmp_path / "lab.yml").write_text(json.dumps({"name": "lab", "models": models, "containers": {}}))
    spec = load(tmp_path / "lab.yml", catalog, run_secret_command=False).spec
    assert spec.models["m"].format == form
    assert list(missing_files(spec.models)) == []


@pytest.mark.parametrize(("written", "method", "is_refused"), CASES["the format is held against the configuration"])
def test_the_format_is_held_against_the_configuration(written: str, method: str, *, is_refused: bool) -> None:
    assert (contradiction(written, method) is not None) is is_refused


def artifact_of(model: Mapping[str, Any], pins: Mapping[str, Pin], catalog: Catalog) -> Artifact:
    written = {"name": "lab", "models": {"m": model}}
    spec = spec_of({**written, "containers": {"a": {"services": {"tabbyapi": {"model": "m"}}}}}, catalog)
    return desired_fleet(resolve(spec, catalog), hashed_models(spec.models, pins)).artifacts[0]


def pin_of(files: Mapping[str, bytes]) -> Pin:
    parts = [ModelPart(one, hashlib.sha256(files[one]).hexdigest(), len(files[one])) for one in taken(files)]
    return Pin(SOURCE, "5f" * 20, CONFIG, parts[0].sha256, parts[0].size or 0, tuple(parts[1:]), "exl3")


def test_the_same_folder_from_a_hub_and_from_here_is_one_volume(tmp_path: Path, catalog: Catalog) -> None:
    folder = write_folder(tmp_path / "small", folder_files())
    here = artifact_of({"source": f"dir:{folder}", "format": "exl3"}, {}, catalog)
    there = artifact_of({"source": SOURCE}, {"m": pin_of(folder_files())}, catalog)
    assert there.volume == here.volume
    assert there.resumable
    assert there.variables["model_store_rest"][0] == {
        "source": f"http://127.0.0.1:9/acme/Small-exl3/resolve/{'5f' * 20}/chat_template.jinja",
        "filename": "chat_template.jinja",
        "sha256": hashlib.sha256(b"{{ messages }}").hexdigest(),
        "size": 14,
    }
    (folder / "tokenizer_config.json").write_bytes(b"{ }")
    assert artifact_of({"source": f"dir:{folder}", "format": "exl3"}, {}, catalog).volume != here.volume
    (folder / "tokenizer_config.json").rename(folder / "added_tokens.json")
    (folder / "added_tokens.json").write_bytes(b"{}")
    assert artifact_of({"source": f"dir:{folder}", "format": "exl3"}, {}, catalog).volume != here.volume


def test_a_pin_is_held_against_a_format_that_was_written_later() -> None:
    pins = {"m": pin_of(folder_files())}
    assert find_models({"m": Model(source=SOURCE)}, pins).problems == ()
    found = find_models({"m": Model(source=SOURCE, format="exl2")}, pins)
    assert [one.message for one in found.problems] == ["its config.json says exl3, and its format is exl2"]


def test_a_folder_here_tells_its_layers_and_one_elsewhere_is_not_asked(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m-00001-of-00002.gguf", folder_files())
    pins = {"m": pin_of(folder_files())}
    models = {"m": Model(source=SOURCE), "n": Model(source=f"dir:{folder}", format="exl3")}
    headers, broken = read_headers(models)
    assert (headers, broken) == ({"n": header_of(folder_files()[CONFIG])}, [])
    assert cached_headers(models, pins) == {}
